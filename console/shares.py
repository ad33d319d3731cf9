"""The positions of a share group in its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.client.offsets import TopicPartition
from ottla.console.groups import coordinator_of
from ottla.console.lag import PartitionLag, ends_of
from ottla.console.nodes import NodeError, ask
from ottla.coordinator.share.state import UNINITIALIZED_COUNT
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.broker import Broker


class Shares(NamedTuple):
    """The positions of a share group in partitions, in order, and how many more partitions there are."""

    lags: list[PartitionLag]
    hidden: int


async def share_lags(broker: Broker, group_id: str, limit: int) -> Shares:
    """How far behind a share group is: the records that are not over. Raises CoordinatorError or NodeError."""
    node_id = coordinator_of(broker, group_id)
    found = await (_lags_here(broker, group_id) if node_id is None else _lags_there(broker, node_id, group_id))
    found.sort()
    return Shares(found[:limit], max(0, len(found) - limit))


async def _lags_here(broker: Broker, group_id: str) -> list[PartitionLag]:
    image, slices = broker.metadata, TimeSlice()
    offsets = await broker.group_coordinator.share_groups.describe_offsets(group_id, None)
    begun = {
        TopicPartition(topic.name, key.partition): offset
        for key, offset in offsets.items()
        if offset.start_offset >= 0 and (topic := image.topic_by_id(key.topic_id)) is not None
    }
    ends = await ends_of(broker, begun)
    lags = []
    for where, offset in begun.items():
        end = ends.get(where)
        lag = None
        if end is not None and offset.complete != UNINITIALIZED_COUNT:
            lag = end - offset.start_offset - offset.complete
        lags.append(PartitionLag(*where, offset.start_offset, end, lag))
        if slices.is_over:
            await slices.maybe_yield()
    return lags


async def _lags_there(broker: Broker, node_id: int, group_id: str) -> list[PartitionLag]:
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    (described,) = (await ask(broker, node_id, DescribeShareGroupOffsetsRequest(groups=[asked]))).groups
    if described.error_code:
        code = ErrorCode.of(described.error_code)
        raise NodeError(f"Node {node_id} does not tell the group's offsets: {code.name}.")
    begun = {
        TopicPartition(topic.topic_name, each.partition_index): each
        for topic in described.topics
        for each in topic.partitions
        if each.start_offset >= 0
    }
    ends = await ends_of(broker, begun)
    return [
        PartitionLag(*where, each.start_offset, ends.get(where), each.lag if each.lag >= 0 else None)
        for where, each in begun.items()
    ]
