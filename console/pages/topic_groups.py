"""The groups that have committed offsets in a topic, and how far each is behind there."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.admin.group_state import SHARE
from ottla.client.offsets import TopicPartition
from ottla.console.groups import coordinator_of, list_groups
from ottla.console.lag import ends_of, total_lag
from ottla.console.nodes import ask_each
from ottla.console.selection import Ranking, select
from ottla.kproto.messages.groups.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla.metadata.acls import AclOperation, AclResource
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

    from ottla.console.console import Console
    from ottla.coordinator.group.listing import GroupListing
    from ottla.metadata.image import TopicImage
    from ottla.server.broker import Broker

MAX_GROUPS: Final = 500
"""How many groups' offsets are looked at for one page."""

MAX_PARTITIONS: Final = 1_000
"""How many partitions of a topic are looked at for offsets."""

Offsets = dict[str, list[tuple[TopicPartition, int]]]


class Row(NamedTuple):
    """A group's offsets in the topic. `lag` is None if no leader says where the partitions end."""

    listing: GroupListing
    partitions: int
    lag: int | None


async def show(console: Console, request: Request) -> Response:
    broker = console.broker
    topic = broker.metadata.topic(request.path_params["topic"])
    if topic is None:
        return await console.not_found(request, f"topic {request.path_params['topic']}")
    visitor = console.visitor(request)
    listings, problems = await list_groups(broker)
    looked_at = await select(
        listings,
        matches=lambda group_id: (
            listings[group_id].group_type != SHARE and visitor.may(AclOperation.DESCRIBE, AclResource.GROUP, group_id)
        ),
        after=None,
        limit=MAX_GROUPS,
    )
    if looked_at.next_after is not None:
        problems = [*problems, f"Only the first {MAX_GROUPS} of {looked_at.total:,} groups were looked at."]
    offsets, unanswered = await _offsets(broker, topic, looked_at.names)
    rows = await _rows(broker, listings, offsets)
    ranking = Ranking.of(request, ("lag",))
    page = await select(
        rows,
        matches=lambda _: True,
        after=None,
        limit=MAX_GROUPS,
        value=None if ranking.column is None else lambda group_id: _or_less(rows[group_id].lag),
        descending=ranking.descending,
    )
    return await console.page(
        request,
        "topic_groups.html",
        section="topics",
        topic=topic,
        ranking=ranking,
        rows=[rows[group_id] for group_id in page.names],
        problems=[*problems, *unanswered],
    )


async def _offsets(broker: Broker, topic: TopicImage, group_ids: Collection[str]) -> tuple[Offsets, list[str]]:
    """The groups' committed offsets in the topic, and a sentence for each node that did not answer."""
    found: Offsets = defaultdict(list)
    elsewhere: dict[int, list[str]] = defaultdict(list)
    slices = TimeSlice()
    shards = {shard.partition: shard for shard in broker.group_coordinator.runtime.loaded_shards()}
    for group_id in group_ids:
        node_id = coordinator_of(broker, group_id)
        if node_id is not None:
            elsewhere[node_id].append(group_id)
            continue
        shard = shards.get(broker.group_coordinator.partition_for(group_id))
        for where, offset in shard.offsets.offsets(group_id) if shard is not None else ():
            if where.topic == topic.name:
                found[group_id].append((TopicPartition(where.topic, where.partition), offset))
            if slices.is_over:
                await slices.maybe_yield()
    asked = OffsetFetchRequestTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_indexes=list(range(min(len(topic.partitions), MAX_PARTITIONS))),
    )
    requests = {
        node_id: OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=[asked]) for name in names])
        for node_id, names in elsewhere.items()
    }
    answers = await ask_each(broker, requests)
    for answer in answers.by_node.values():
        for group in answer.groups:
            for each in (partition for told in group.topics for partition in told.partitions):
                if not each.error_code and each.committed_offset >= 0:
                    found[group.group_id].append(
                        (TopicPartition(topic.name, each.partition_index), each.committed_offset)
                    )
                if slices.is_over:
                    await slices.maybe_yield()
    return found, answers.problems


async def _rows(broker: Broker, listings: Mapping[str, GroupListing], offsets: Offsets) -> dict[str, Row]:
    ends = await ends_of(broker, {where for each in offsets.values() for where, _ in each})
    rows = {}
    slices = TimeSlice()
    for group_id, each in offsets.items():
        rows[group_id] = Row(listings[group_id], len(each), total_lag(each, ends))
        if slices.is_over:
            await slices.maybe_yield()
    return rows


def _or_less(lag: int | None) -> int:
    return -1 if lag is None else lag
