"""Share groups as records of `__consumer_offsets` (record types 10 to 15)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final
from uuid import UUID

from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.modern.records import ModernRecords, read_target, record, stored_assignment
from ottla.coordinator.group.share.member import ShareCurrent, ShareSubscription
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records import share_group as schema

STABLE = 0


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    value = schema.ShareGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash)
    return record(schema.ShareGroupMetadataKey(group_id=group_id), value)


def member_subscription(group_id: str, member_id: str, subscription: ShareSubscription) -> CoordinatorRecord:
    value = schema.ShareGroupMemberMetadataValue(
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
    )
    return record(schema.ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id), value)


def target_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    value = schema.ShareGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return record(schema.ShareGroupTargetAssignmentMetadataKey(group_id=group_id), value)


def target_assignment(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    partitions = [
        schema.TopicPartition(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
    ]
    value = schema.ShareGroupTargetAssignmentMemberValue(topic_partitions=partitions)
    return record(schema.ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id), value)


def current_assignment(group_id: str, member_id: str, current: ShareCurrent) -> CoordinatorRecord:
    value = schema.ShareGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=STABLE,
        assigned_partitions=[
            schema.TopicPartitions(topic_id=topic_id, partitions=sorted(current.assigned[topic_id]))
            for topic_id in sorted(current.assigned)
        ],
    )
    return record(schema.ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id), value)


def state_partitions(group_id: str, known: StatePartitions) -> CoordinatorRecord:
    value = schema.ShareGroupStatePartitionMetadataValue(
        initializing_topics=_infos(known.initializing),
        initialized_topics=_infos(known.initialized),
        deleting_topics=[
            schema.TopicInfo(topic_id=topic_id, topic_name=known.deleting[topic_id])
            for topic_id in sorted(known.deleting)
        ],
    )
    return record(schema.ShareGroupStatePartitionMetadataKey(group_id=group_id), value)


def _infos(topics: Mapping[UUID, TopicPartitions]) -> list[schema.TopicPartitionsInfo]:
    return [
        schema.TopicPartitionsInfo(
            topic_id=topic_id, topic_name=topics[topic_id].name, partitions=sorted(topics[topic_id].partitions)
        )
        for topic_id in sorted(topics)
    ]


def _subscription(value: schema.ShareGroupMemberMetadataValue) -> ShareSubscription:
    return ShareSubscription(value.rack_id, value.client_id, value.client_host, frozenset(value.subscribed_topic_names))


def _current(value: schema.ShareGroupCurrentMemberAssignmentValue) -> ShareCurrent:
    return ShareCurrent(value.member_epoch, value.previous_member_epoch, stored_assignment(value.assigned_partitions))


def read_state_partitions(value: schema.ShareGroupStatePartitionMetadataValue) -> StatePartitions:
    """The state partitions in a record."""
    return StatePartitions(
        _topics(value.initializing_topics),
        _topics(value.initialized_topics),
        {info.topic_id: info.topic_name for info in value.deleting_topics},
    )


def _topics(infos: Iterable[schema.TopicPartitionsInfo]) -> dict[UUID, TopicPartitions]:
    return {info.topic_id: TopicPartitions(info.topic_name, frozenset(info.partitions)) for info in infos}


RECORDS: Final = ModernRecords(
    schema.ShareGroupMetadataKey,
    schema.ShareGroupMemberMetadataKey,
    schema.ShareGroupTargetAssignmentMetadataKey,
    schema.ShareGroupTargetAssignmentMemberKey,
    schema.ShareGroupCurrentMemberAssignmentKey,
    schema.ShareGroupStatePartitionMetadataKey,
    read_member=_subscription,
    read_target=read_target,
    read_current=_current,
)
