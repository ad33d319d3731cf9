"""How far a group is behind: its committed offsets compared with the ends of the partitions, on any node."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.offsets import LATEST, TopicPartition, list_offsets_request
from ottla.console.groups import coordinator_of
from ottla.console.messages.readable import MAX_ASKED, led_elsewhere, led_here
from ottla.console.nodes import NodeError, ask, ask_each
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.coordinator.group.shard.shard import GroupShard
    from ottla.server.broker import Broker

_FETCH_BY_NAME: Final = 7


class PartitionLag(NamedTuple):
    """One partition of a group. `end_offset` and `lag` are None if no leader says where it ends."""

    topic: str
    partition: int
    committed_offset: int
    end_offset: int | None
    lag: int | None


class Committed(NamedTuple):
    """Some of a group's committed offsets, in order, and how many more there are."""

    offsets: list[tuple[TopicPartition, int]]
    hidden: int


async def committed(broker: Broker, group_id: str, limit: int) -> Committed:
    """The committed offsets of a group; none while its coordinator is here and still loading it. Raises NodeError."""
    node_id = coordinator_of(broker, group_id)
    if node_id is not None:
        return await _committed_there(broker, node_id, group_id, limit)
    partition = broker.group_coordinator.partition_for(group_id)
    shards: list[GroupShard] = broker.group_coordinator.runtime.loaded_shards()
    shard = next((shard for shard in shards if shard.partition == partition), None)
    if shard is None:
        return Committed([], 0)
    found = await committed_in(shard, group_id, limit)
    return Committed(sorted(found), shard.offsets.count(group_id) - len(found))


async def committed_in(shard: GroupShard, group_id: str, limit: int) -> list[tuple[TopicPartition, int]]:
    """The committed offsets of a group whose coordinator is here, read in slices of the loop's time."""
    slices = TimeSlice()
    found = []
    for where, offset in islice(shard.offsets.offsets(group_id), limit):
        found.append((TopicPartition(where.topic, where.partition), offset))
        if slices.is_over:
            await slices.maybe_yield()
    return found


async def _committed_there(broker: Broker, node_id: int, group_id: str, limit: int) -> Committed:
    request = OffsetFetchRequest(group_id=group_id, topics=None)
    answer = await ask(broker, node_id, request, at_most=_FETCH_BY_NAME)
    if answer.error_code:
        raise NodeError(f"Node {node_id} does not give the group's offsets: {ErrorCode.name_of(answer.error_code)}.")
    found = sorted(
        (TopicPartition(topic.name, each.partition_index), each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    )
    return Committed(found[:limit], max(0, len(found) - limit))


async def partition_lags(broker: Broker, offsets: Sequence[tuple[TopicPartition, int]]) -> list[PartitionLag]:
    """How far behind these offsets are."""
    ends = await ends_of(broker, (where for where, _ in offsets))
    return [
        PartitionLag(*where, offset, end, None if end is None else max(0, end - offset))
        for where, offset in offsets
        for end in (ends.get(where),)
    ]


def total_lag(offsets: Sequence[tuple[TopicPartition, int]], ends: Mapping[TopicPartition, int]) -> int | None:
    """The sum over the partitions whose end is known; None if none is."""
    known = [max(0, ends[where] - offset) for where, offset in offsets if where in ends]
    return sum(known) if known else None


async def ends_of(broker: Broker, wanted: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The high watermarks of partitions, as far as they are known; other nodes are asked for theirs."""
    slices = TimeSlice()
    ends: dict[TopicPartition, int] = {}
    elsewhere: dict[int, dict[TopicPartition, int]] = defaultdict(dict)
    asked = 0
    for where in wanted:
        topic = broker.metadata.topic(where.topic)
        if topic is None or where.partition >= len(topic.partitions):
            continue
        held = led_here(broker, topic, where.partition)
        if held is not None:
            ends[where] = held.log.high_watermark
        elif asked < MAX_ASKED and (leader := led_elsewhere(broker, topic, where.partition)) is not None:
            elsewhere[leader][where] = LATEST
            asked += 1
        if slices.is_over:
            await slices.maybe_yield()
    requests = {leader: list_offsets_request(timestamps) for leader, timestamps in elsewhere.items()}
    for answer in (await ask_each(broker, requests)).by_node.values():
        for topic in answer.topics:
            for each in topic.partitions:
                if not each.error_code:
                    ends[TopicPartition(topic.name, each.partition_index)] = each.offset
    return ends
