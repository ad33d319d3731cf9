"""Groups of the consumer protocol as records of `__consumer_offsets` (record types 3 and 5 to 8, and 16)."""

from typing import Final

from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.classic.member import Protocol
from ottla.coordinator.group.consumer.member import (
    AssignmentEpochs,
    ClassicSide,
    Current,
    MemberState,
    ResolvedRegex,
    Subscription,
)
from ottla.coordinator.group.modern.records import (
    ModernRecords,
    read_target,
    record,
    stored_assignment,
    tombstone,
)
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records import consumer_group as schema


def group_epoch(group_id: str, epoch: int, metadata_hash: int) -> CoordinatorRecord:
    key = schema.ConsumerGroupMetadataKey(group_id=group_id)
    return record(key, schema.ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=metadata_hash))


def member_subscription(group_id: str, member_id: str, subscription: Subscription) -> CoordinatorRecord:
    key = schema.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
    value = schema.ConsumerGroupMemberMetadataValue(
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=sorted(subscription.topic_names),
        subscribed_topic_regex=subscription.topic_regex,
        rebalance_timeout_ms=subscription.rebalance_timeout_ms,
        server_assignor=subscription.server_assignor,
        classic_member_metadata=None if subscription.classic is None else _classic_metadata(subscription.classic),
    )
    return record(key, value)


def _classic_metadata(classic: ClassicSide) -> schema.ClassicMemberMetadata:
    return schema.ClassicMemberMetadata(
        session_timeout_ms=classic.session_timeout_ms,
        supported_protocols=[schema.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
    )


def target_epoch(group_id: str, epoch: int, now_ms: int) -> CoordinatorRecord:
    key = schema.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
    value = schema.ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=epoch, assignment_timestamp=now_ms)
    return record(key, value)


def target_assignment(group_id: str, member_id: str, assignment: Assignment) -> CoordinatorRecord:
    key = schema.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
    partitions = [
        schema.TopicPartition(topic_id=topic_id, partitions=sorted(assignment[topic_id]))
        for topic_id in sorted(assignment)
    ]
    return record(key, schema.ConsumerGroupTargetAssignmentMemberValue(topic_partitions=partitions))


def current_assignment(group_id: str, member_id: str, current: Current) -> CoordinatorRecord:
    key = schema.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
    value = schema.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=current.epoch,
        previous_member_epoch=current.previous_epoch,
        state=current.state,
        assigned_partitions=_partitions(current.assigned, current.epochs),
        partitions_pending_revocation=_partitions(current.pending_revocation, current.epochs),
    )
    return record(key, value)


def resolved_regex(group_id: str, regex: str, resolved: ResolvedRegex) -> CoordinatorRecord:
    key = schema.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
    value = schema.ConsumerGroupRegularExpressionValue(
        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
    )
    return record(key, value)


def regex_tombstone(group_id: str, regex: str) -> CoordinatorRecord:
    return tombstone(schema.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex))


def read_regex(value: schema.ConsumerGroupRegularExpressionValue) -> ResolvedRegex:
    """The resolved regular expression in a record."""
    return ResolvedRegex(frozenset(value.topics), value.version, value.timestamp)


def _subscription(value: schema.ConsumerGroupMemberMetadataValue) -> Subscription:
    classic = value.classic_member_metadata
    return Subscription(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        topic_names=frozenset(value.subscribed_topic_names),
        topic_regex=value.subscribed_topic_regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.server_assignor,
        classic=None if classic is None else _classic_side(classic),
    )


def _classic_side(value: schema.ClassicMemberMetadata) -> ClassicSide:
    return ClassicSide(
        value.session_timeout_ms,
        tuple(Protocol(each.name, bytes(each.metadata)) for each in value.supported_protocols),
    )


def _current(value: schema.ConsumerGroupCurrentMemberAssignmentValue) -> Current:
    known = value.state in MemberState.__members__.values()
    return Current(
        epoch=value.member_epoch,
        previous_epoch=value.previous_member_epoch,
        state=MemberState(value.state) if known else MemberState.STABLE,
        assigned=stored_assignment(value.assigned_partitions),
        pending_revocation=stored_assignment(value.partitions_pending_revocation),
        epochs={
            (topic.topic_id, index): epoch
            for topic in (*value.assigned_partitions, *value.partitions_pending_revocation)
            for index, epoch in zip(topic.partitions, _epochs(topic, value.member_epoch), strict=True)
        },
    )


def _epochs(topic: schema.TopicPartitions, epoch: int) -> list[int]:
    """The epoch of each partition; that of the member where the record has none, or not as many as partitions."""
    epochs = topic.assignment_epochs
    return epochs if epochs and len(epochs) == len(topic.partitions) else [epoch] * len(topic.partitions)


def _partitions(assignment: Assignment, epochs: AssignmentEpochs) -> list[schema.TopicPartitions]:
    return [
        schema.TopicPartitions(
            topic_id=topic_id,
            partitions=(indexes := sorted(assignment[topic_id])),
            assignment_epochs=[epochs[topic_id, index] for index in indexes],
        )
        for topic_id in sorted(assignment)
    ]


RECORDS: Final = ModernRecords(
    schema.ConsumerGroupMetadataKey,
    schema.ConsumerGroupMemberMetadataKey,
    schema.ConsumerGroupTargetAssignmentMetadataKey,
    schema.ConsumerGroupTargetAssignmentMemberKey,
    schema.ConsumerGroupCurrentMemberAssignmentKey,
    schema.ConsumerGroupRegularExpressionKey,
    read_member=_subscription,
    read_target=read_target,
    read_current=_current,
)
