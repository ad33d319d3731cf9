"""The positions of a share group (KIP-932) in its partitions, and the delivery states of records after them."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.client.errors import BrokerError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.kproto.messages.share.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.kproto.messages.share.read_share_group_state import PartitionData, ReadShareGroupStateRequest, ReadStateData

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from ottla.client.admin.group_state import Coordinator
    from ottla.client.client import Client

_SHARE: Final = 2
"""The type of key by which the coordinator of a share partition is found."""
"""Of a reader that leads nothing: it fences nobody."""
_GROUP: Final = 32
_STATES: Final = {0: "available", 1: "acquired", 2: "acknowledged", 3: "archiving", 4: "archived"}


class SharePosition(NamedTuple):
    """A share group's position in a partition: the first record that is not finished, and how many are not."""

    topic_id: UUID
    start_offset: int
    lag: int | None


def move_share_group(coordinator: Coordinator, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Let a share group begin at these offsets, and forget what was delivered of them. Raises BrokerError, with
    NON_EMPTY_GROUP if it has members.
    """
    topics: dict[str, AlterShareGroupOffsetsRequestTopic] = {}
    for (topic, index), offset in offsets.items():
        named = topics.setdefault(topic, AlterShareGroupOffsetsRequestTopic(topic_name=topic))
        named.partitions.append(AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=offset))
    answer = coordinator.call(
        group_id,
        AlterShareGroupOffsetsRequest(group_id=group_id, topics=list(topics.values())),
        lambda answer: int(answer.error_code),
    )
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message, what=f"group {group_id}")
    for each in answer.responses:
        for partition in each.partitions:
            if partition.error_code:
                what = f"{each.topic_name}-{partition.partition_index}"
                raise BrokerError(partition.error_code, partition.error_message, what=what)


class Delivered(NamedTuple):
    """Records of one state and one delivery count, as they were stored last.

    `available` ones are to be delivered again, `archiving` ones go to the dead-letter queue, `acknowledged` and
    `archived` ones are over. What members hold at the
    moment is not stored: it is what it was before they got it.
    """

    first_offset: int
    last_offset: int
    state: str
    delivery_count: int


def share_positions(coordinator: Coordinator, group_id: str) -> dict[TopicPartition, SharePosition]:
    """The positions of a share group in all partitions that it has begun to read."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    answer = coordinator.call(
        group_id,
        DescribeShareGroupOffsetsRequest(groups=[asked]),
        lambda answer: int(answer.groups[0].error_code),
    ).groups[0]
    if answer.error_code:
        raise BrokerError(answer.error_code, answer.error_message, what=f"offsets of group {group_id}")
    return {
        TopicPartition(topic.topic_name, each.partition_index): SharePosition(
            topic.topic_id, each.start_offset, each.lag if each.lag >= 0 else None
        )
        for topic in answer.topics
        for each in topic.partitions
        if each.start_offset >= 0
    }


def share_deliveries(
    client: Client, group_id: str, positions: Mapping[TopicPartition, SharePosition]
) -> dict[TopicPartition, list[Delivered]]:
    """The stored delivery states of records after the first that is not finished.

    The share coordinators tell it to brokers and to those who may act for the cluster: partitions of which this client
    is told nothing are left out.
    """
    keys = {_key(group_id, position.topic_id, where.partition): where for where, position in positions.items()}
    if not keys:
        return {}
    answer = client.call(FindCoordinatorRequest(key_type=_SHARE, coordinator_keys=list(keys)))
    # Since Kafka 4.4 the coordinator wants to be told the leader's epoch, and refuses an earlier one.
    epochs = {
        TopicPartition(topic.name or "", each.partition_index): each.leader_epoch
        for topic in client.metadata(sorted({where.topic for where in positions})).topics
        for each in topic.partitions
    }
    by_node: dict[int, list[TopicPartition]] = {}
    for each in answer.coordinators:
        if not each.error_code:
            by_node.setdefault(each.node_id, []).append(keys[each.key])
    found: dict[TopicPartition, list[Delivered]] = {}
    for node_id, partitions in by_node.items():
        found |= _read(client, node_id, group_id, partitions, positions, epochs)
    return found


def _key(group_id: str, topic_id: UUID, partition: int) -> str:
    return f"{group_id}:{urlsafe_b64encode(topic_id.bytes).rstrip(b'=').decode()}:{partition}"


def _read(
    client: Client,
    node_id: int,
    group_id: str,
    partitions: Sequence[TopicPartition],
    positions: Mapping[TopicPartition, SharePosition],
    epochs: Mapping[TopicPartition, int],
) -> dict[TopicPartition, list[Delivered]]:
    by_id: dict[UUID, dict[int, TopicPartition]] = {}
    for where in partitions:
        by_id.setdefault(positions[where].topic_id, {})[where.partition] = where
    request = ReadShareGroupStateRequest(
        group_id=group_id,
        topics=[
            ReadStateData(
                topic_id=topic_id,
                partitions=[
                    PartitionData(partition=index, leader_epoch=max(0, epochs.get(where, 0)))
                    for index, where in indexes.items()
                ],
            )
            for topic_id, indexes in by_id.items()
        ],
    )
    return {
        by_id[topic.topic_id][each.partition]: [
            Delivered(
                batch.first_offset,
                batch.last_offset,
                _STATES.get(batch.delivery_state, str(batch.delivery_state)),
                batch.delivery_count,
            )
            for batch in each.state_batches
        ]
        for topic in client.broker(node_id).call(request).results
        for each in topic.partitions
        if each.error_code == ErrorCode.NONE
    }


def dead_letter_topic(client: Client, group_id: str) -> str:
    """The topic of a share group's dead-letter queue; empty if it has none, or the broker knows of no such queues."""
    asked = DescribeConfigsResource(
        resource_type=_GROUP, resource_name=group_id, configuration_keys=["errors.deadletterqueue.topic.name"]
    )
    (result,) = client.call(DescribeConfigsRequest(resources=[asked])).results
    return "".join(config.value or "" for config in result.configs)
