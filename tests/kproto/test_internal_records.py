"""Records of internal topics carry their type and version in front, and unknown ones are told apart."""

from __future__ import annotations

import pytest

from ottla.kproto import codec
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records.consumer_group import (
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
)
from ottla.kproto.internal_records.consumer_offsets import (
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    build_consumer_protocol,
    parse_consumer_protocol,
)
from ottla.kproto.internal_records.coordinator import (
    CoordinatorKey,
    CoordinatorValue,
    UnknownRecordTypeError,
    build_key,
    build_value,
    parse_value,
)
from ottla.kproto.internal_records.share_state import ShareSnapshotKey
from ottla.kproto.internal_records.transaction_log import TransactionLogKey, TransactionLogValue

OFFSETS = record_types("__consumer_offsets")


def test_key_has_its_record_type_in_front() -> None:
    key = OffsetCommitKey(group="g", topic="t", partition=3)
    assert build_key(key) == b"\x00\x01" + b"\x00\x01g" + b"\x00\x01t" + b"\x00\x00\x00\x03"
    assert OFFSETS.parse_key(build_key(key)) == key


def test_old_offset_keys_are_told_from_new_ones() -> None:
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=3)
    assert isinstance(OFFSETS.parse_key(build_key(key)), LegacyOffsetCommitKey)


@pytest.mark.parametrize("version", range(5))
def test_value_has_its_version_in_front(version: int) -> None:
    value = OffsetCommitValue(offset=7, leader_epoch=2 if version >= 3 else -1, metadata="m", commit_timestamp=5)
    raw = build_value(value, version)
    assert raw[:2] == version.to_bytes(2, "big")
    assert parse_value(OffsetCommitValue, raw) == value
    assert OFFSETS.parse(build_key(OffsetCommitKey()), raw) == (OffsetCommitKey(), value)


def test_tombstone_has_no_value() -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    assert OFFSETS.parse(build_key(key), None) == (key, None)


def test_types_are_those_of_the_topic() -> None:
    assert isinstance(record_types("__transaction_state").parse_key(build_key(TransactionLogKey())), TransactionLogKey)
    assert isinstance(record_types("__share_group_state").parse_key(build_key(ShareSnapshotKey())), ShareSnapshotKey)
    with pytest.raises(KeyError):
        record_types("orders")


def test_unknown_record_type_can_be_skipped() -> None:
    with pytest.raises(UnknownRecordTypeError) as caught:
        OFFSETS.parse_key(b"\x03\xe7" + b"from the future")
    assert caught.value.record_type == 999


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\x00\x01", b"\x00\x01\x00\x05ab", build_key(OffsetCommitKey()) + b"\x00"]
)
def test_malformed_key(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        OFFSETS.parse_key(raw)


@pytest.mark.parametrize("raw", [b"", b"\x00\x05" + bytes(40), b"\xff\xff" + bytes(40)])
def test_malformed_value(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_value(OffsetCommitValue, raw)


def test_version_that_there_is_not() -> None:
    with pytest.raises(EncodeError):
        build_value(TransactionLogValue(), 2)


def test_nullable_struct_in_a_tagged_field() -> None:
    value = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    assert parse_value(ConsumerGroupMemberMetadataValue, build_value(value, 0)).classic_member_metadata is None


def test_every_key_has_a_value_of_its_type() -> None:
    keys = {cls.RECORD_TYPE for cls in CoordinatorKey.__subclasses__()}
    values = {cls.RECORD_TYPE for cls in CoordinatorValue.__subclasses__()}
    assert keys == values
    assert -1 not in keys


def test_consumer_protocol_reads_the_known_part_of_newer_versions() -> None:
    subscription = ConsumerProtocolSubscription(
        topics=["a"], owned_partitions=[TopicPartition(topic="a", partitions=[1, 2])], generation_id=4, rack_id="r"
    )
    raw = build_consumer_protocol(subscription, 3)
    assert parse_consumer_protocol(ConsumerProtocolSubscription, raw) == subscription
    newer = b"\x00\x09" + codec.build(subscription, 3) + b"added later"
    assert parse_consumer_protocol(ConsumerProtocolSubscription, newer) == subscription


@pytest.mark.parametrize("raw", [b"", b"\x00", b"\xff\xff" + bytes(20), b"\x00\x00\x00\x00\x00\x09"])
def test_malformed_consumer_protocol(raw: bytes) -> None:
    with pytest.raises(DecodeError):
        parse_consumer_protocol(ConsumerProtocolAssignment, raw)


def test_assignment_survives() -> None:
    assignment = ConsumerProtocolAssignment(assigned_partitions=[AssignedTopicPartition(topic="a", partitions=[0])])
    assert parse_consumer_protocol(ConsumerProtocolAssignment, build_consumer_protocol(assignment, 0)) == assignment
