"""Groups and offsets as records of `__consumer_offsets`, in Kafka's own formats and in the versions that 4.3 writes."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.kproto.internal_records.coordinator import (
    CoordinatorKey,
    CoordinatorValue,
    UnknownRecordTypeError,
    build_key,
    build_value,
    parse_value,
)
from ottla.server.coordinator.group.classic_group import ClassicGroup
from ottla.server.coordinator.group.offsets import CommittedOffset, TopicPartition
from ottla.server.coordinator.runtime import CoordinatorRecord

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
GROUP_VALUE_VERSION: Final = 3
OFFSET_KEY_TYPE: Final = OffsetCommitKey.RECORD_TYPE


class GroupRecord(NamedTuple):
    """A classic group's durable part, or its removal."""

    group_id: str
    value: GroupMetadataValue | None


class OtherRecord(NamedTuple):
    """A record of another kind of group."""

    key: CoordinatorKey
    value: CoordinatorValue | None


Decoded = GroupRecord | OtherRecord


def decode(record: CoordinatorRecord) -> Decoded | None:
    """What a record says; None for types of a newer broker, which must be skipped. Raises DecodeError for damage."""
    try:
        key, value = record_types("__consumer_offsets").parse(record.key, record.value)
    except UnknownRecordTypeError:
        return None
    match key, value:
        case GroupMetadataKey(), GroupMetadataValue() | None:
            return GroupRecord(key.group, value)
        case CoordinatorKey(), _:
            return OtherRecord(key, value)
    raise DecodeError(f"{type(value).__name__} under a {type(key).__name__}")


# Committed offsets: both types of their keys are the type, the group, the topic and the partition.


def is_offset(key: bytes) -> bool:
    """Whether a record is about a committed offset."""
    return key[1] <= OFFSET_KEY_TYPE and not key[0]


def offset_group(key: bytes) -> str:
    """The group whose offset a record is about."""
    return key[4 : 4 + (key[2] << 8 | key[3])].decode()


def current_offset_key(key: bytes) -> bytes:
    """An offset's key as it is written today: brokers before 0.8.2 used type 0, alike but for that."""
    return bytes((0, OFFSET_KEY_TYPE)) + key[2:]


def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of an offset's record."""
    return build_key(OffsetCommitKey(group=group_id, topic=partition.topic, partition=partition.partition))


def offset_partition(key: bytes) -> TopicPartition:
    """The partition that an offset's key names."""
    topic_start = 6 + (key[2] << 8 | key[3])
    return TopicPartition(key[topic_start:-4].decode(), int.from_bytes(key[-4:], "big"))


def decode_offset(record_offset: int, data: bytes) -> CommittedOffset:
    """The committed offset in a record's value. Raises DecodeError."""
    value = parse_value(OffsetCommitValue, data)
    return CommittedOffset(
        record_offset=record_offset,
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        topic_id=value.topic_id,
    )


def offset_commit(group_id: str, partition: TopicPartition, committed: CommittedOffset) -> CoordinatorRecord:
    """The record that commits an offset."""
    has_expiry = committed.expire_timestamp_ms >= 0
    version = OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return CoordinatorRecord(offset_key(group_id, partition), build_value(value, version))


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """The record that removes a committed offset."""
    return CoordinatorRecord(offset_key(group_id, partition), None)


def group_metadata(group: ClassicGroup, assignments: Mapping[str, bytes]) -> CoordinatorRecord:
    """The record of a classic group's current generation with the assignments given."""
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.current_state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(group.protocol_name or ""),
                assignment=assignments.get(member.member_id, b""),
            )
            for member in group.members.values()
        ],
    )
    return CoordinatorRecord(build_key(GroupMetadataKey(group=group.group_id)), build_value(value, GROUP_VALUE_VERSION))


def group_tombstone(group_id: str) -> CoordinatorRecord:
    """The record that removes a classic group."""
    return CoordinatorRecord(build_key(GroupMetadataKey(group=group_id)), None)
