"""The records of groups in `__consumer_offsets`, in Kafka's own formats and in the versions that 4.3 writes."""

from typing import NamedTuple

from ottla.coordinator.replay import CoordinatorRecord, SkippedRecordError
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records.consumer_offsets import GroupMetadataKey, GroupMetadataValue
from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue, UnknownRecordTypeError


class GroupRecord(NamedTuple):
    """A classic group's durable part, or its removal."""

    group_id: str
    value: GroupMetadataValue | None


class OtherRecord(NamedTuple):
    """A record of another kind of group."""

    key: CoordinatorKey
    value: CoordinatorValue | None


Decoded = GroupRecord | OtherRecord


def decode(record: CoordinatorRecord) -> Decoded:
    """Decode a record. Raises SkippedRecordError for types of a newer broker, DecodeError for damage."""
    try:
        key, value = record_types("__consumer_offsets").parse(record.key, record.value)
    except UnknownRecordTypeError as error:
        raise SkippedRecordError(str(error)) from None
    match key, value:
        case GroupMetadataKey(), GroupMetadataValue() | None:
            return GroupRecord(key.group, value)
        case CoordinatorKey(), _:
            return OtherRecord(key, value)
    raise DecodeError(f"{type(value).__name__} under a {type(key).__name__}")
