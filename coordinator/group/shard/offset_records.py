"""Committed offsets as records of `__consumer_offsets`, in Kafka's own format and in the versions that 4.3 writes.

Both types of their keys are the type, the group, the topic and the partition.
"""

from functools import lru_cache
from struct import Struct
from typing import Final
from uuid import UUID

from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from ottla.kproto.internal_records.coordinator import build_value, parse_value
from ottla.kproto.schema import ZERO_UUID
from ottla.kproto.text import ERRORS

OFFSET_VALUE_VERSION: Final = 4
OFFSET_VALUE_VERSION_WITH_EXPIRY: Final = 1
OFFSET_KEY_TYPE: Final = OffsetCommitKey.RECORD_TYPE

_OFFSET_KEYS: Final = (b"\0\0", b"\0\1")
_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_KEY_START: Final = Struct(">hh")
# Of version 4 of the value: its version, the offset, the leader epoch, and the length of the metadata plus one; then
# the time of the commit and how many tagged fields there are; the topic id is the one with number 0, of 16 bytes.
_VALUE_START: Final = Struct(">hqiB")
_VALUE_END: Final = Struct(">qB")
_VALUE_END_WITH_ID: Final = Struct(">qBBB16s")
_LONG_METADATA_BYTES: Final = 127
_TOPIC_ID_TAG: Final = b"\1\0\x10"
# Groups commit the same partitions again and again: so many keys are kept, of half a kilobyte each with what they name.
_MOST_KEPT: Final = 4096
TOPIC_ID_BYTES: Final = len(_TOPIC_ID_TAG) + 16
"""How much a topic's id takes at the end of an offset's value."""


def is_offset(key: bytes) -> bool:
    """Whether a record is about a committed offset."""
    return key.startswith(_OFFSET_KEYS)


@lru_cache(_MOST_KEPT)
def offset_group(key: bytes) -> str:
    """The group whose offset a record is about."""
    return key[4 : 4 + (key[2] << 8 | key[3])].decode("utf-8", ERRORS)


def current_offset_key(key: bytes) -> bytes:
    """An offset's key as it is written today. Brokers before 0.8.2 used type 0; the rest is the same."""
    return bytes((0, OFFSET_KEY_TYPE)) + key[2:]


@lru_cache(_MOST_KEPT)
def offset_key(group_id: str, partition: TopicPartition) -> bytes:
    """The key of an offset's record."""
    group, topic = group_id.encode(), partition.topic.encode()
    return b"".join(
        (_KEY_START.pack(OFFSET_KEY_TYPE, len(group)), group, _INT16.pack(len(topic)), topic, _INT32.pack(partition[1]))
    )


def offset_partition(key: bytes) -> TopicPartition:
    """The partition that an offset's key names."""
    topic_start = 6 + (key[2] << 8 | key[3])
    return TopicPartition(key[topic_start:-4].decode("utf-8", ERRORS), int.from_bytes(key[-4:], "big", signed=True))


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


def topic_id(data: bytes) -> UUID:
    """The topic's id in an offset's value, read alone where that is possible; zero if there is none.

    Raises DecodeError.
    """
    if len(data) > _VALUE_START.size and data[1] == OFFSET_VALUE_VERSION and 0 < data[14] <= _LONG_METADATA_BYTES:
        tags = 14 + data[14] + 8
        if data[tags:] == b"\0":
            return ZERO_UUID
        if data[tags : tags + 3] == _TOPIC_ID_TAG and len(data) == tags + TOPIC_ID_BYTES:
            return UUID(bytes=data[tags + 3 :])
    return parse_value(OffsetCommitValue, data).topic_id


def offset_commit(group_id: str, partition: TopicPartition, committed: CommittedOffset) -> CoordinatorRecord:
    """The record that commits an offset."""
    return CoordinatorRecord(offset_key(group_id, partition), _offset_value(committed))


def _offset_value(committed: CommittedOffset) -> bytes:
    """OffsetCommitValue, as its schema says. The usual form is built by hand, ten times as fast."""
    metadata = committed.metadata.encode()
    has_expiry = committed.expire_timestamp_ms >= 0
    if not has_expiry and len(metadata) < _LONG_METADATA_BYTES:
        start = _VALUE_START.pack(OFFSET_VALUE_VERSION, committed.offset, committed.leader_epoch, len(metadata) + 1)
        if not committed.topic_id.int:
            return start + metadata + _VALUE_END.pack(committed.commit_timestamp_ms, 0)
        end = _VALUE_END_WITH_ID.pack(committed.commit_timestamp_ms, 1, 0, 16, committed.topic_id.bytes)
        return start + metadata + end
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    return build_value(value, OFFSET_VALUE_VERSION_WITH_EXPIRY if has_expiry else OFFSET_VALUE_VERSION)


def offset_tombstone(group_id: str, partition: TopicPartition) -> CoordinatorRecord:
    """The record that removes a committed offset."""
    return CoordinatorRecord(offset_key(group_id, partition), None)
