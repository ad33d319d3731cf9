"""The state of share partitions as records of `__share_group_state`, in Kafka's own formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.coordinator.replay import CoordinatorRecord, SkippedRecordError
from ottla.coordinator.share.state import SharePartitionKey, ShareState, StateBatch
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records import share_state as schema
from ottla.kproto.internal_records.coordinator import UnknownRecordTypeError, build_key, build_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.coordinator.share.state import StateChange

SHARE_GROUP_STATE: Final = "__share_group_state"
VALUE_VERSION: Final = 0


class SnapshotRecord(NamedTuple):
    """The whole state of a share partition; None if it was removed."""

    key: SharePartitionKey
    snapshot_epoch: int
    created_ms: int
    state: ShareState | None


class UpdateRecord(NamedTuple):
    """The changes since the snapshot of this epoch."""

    key: SharePartitionKey
    snapshot_epoch: int
    change: schema.ShareUpdateValue | None


def snapshot(
    key: SharePartitionKey, state: ShareState, *, snapshot_epoch: int, created_ms: int, now_ms: int
) -> CoordinatorRecord:
    """The record that replaces everything known about a share partition."""
    value = schema.ShareSnapshotValue(
        snapshot_epoch=snapshot_epoch,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp=created_ms,
        write_timestamp=now_ms,
        state_batches=_written(state.batches),
    )
    return CoordinatorRecord(_snapshot_key(key), build_value(value, VALUE_VERSION))


def update(key: SharePartitionKey, change: StateChange, snapshot_epoch: int) -> CoordinatorRecord:
    """The record of a change since the snapshot of this epoch."""
    record_key = schema.ShareUpdateKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition)
    value = schema.ShareUpdateValue(
        snapshot_epoch=snapshot_epoch,
        leader_epoch=change.leader_epoch,
        start_offset=change.start_offset,
        delivery_complete_count=change.delivery_complete_count,
        state_batches=_written(change.batches),
    )
    return CoordinatorRecord(build_key(record_key), build_value(value, VALUE_VERSION))


def tombstone(key: SharePartitionKey) -> CoordinatorRecord:
    """The record after which nothing is known about a share partition."""
    return CoordinatorRecord(_snapshot_key(key), None)


def decode(record: CoordinatorRecord) -> SnapshotRecord | UpdateRecord:
    """Decode a record. Raises SkippedRecordError for types of a newer broker, DecodeError for damage."""
    try:
        key, value = record_types(SHARE_GROUP_STATE).parse(record.key, record.value)
    except UnknownRecordTypeError as error:
        raise SkippedRecordError(str(error)) from None
    match key, value:
        case schema.ShareSnapshotKey(), schema.ShareSnapshotValue():
            state = ShareState(
                value.state_epoch,
                value.leader_epoch,
                value.start_offset,
                value.delivery_complete_count,
                read_batches(value.state_batches),
            )
            return SnapshotRecord(_share_key(key), value.snapshot_epoch, value.create_timestamp, state)
        case schema.ShareSnapshotKey(), None:
            return SnapshotRecord(_share_key(key), 0, 0, None)
        case schema.ShareUpdateKey(), schema.ShareUpdateValue():
            return UpdateRecord(_share_key(key), value.snapshot_epoch, value)
        case schema.ShareUpdateKey(), None:
            return UpdateRecord(_share_key(key), 0, None)
    raise DecodeError(f"{type(value).__name__} under a {type(key).__name__}")


def read_batches(batches: Sequence[schema.StateBatch]) -> tuple[StateBatch, ...]:
    return tuple(
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    )


def _written(batches: Sequence[StateBatch]) -> list[schema.StateBatch]:
    return [
        schema.StateBatch(first_offset=first, last_offset=last, delivery_state=state, delivery_count=count)
        for first, last, state, count in batches
    ]


def _snapshot_key(key: SharePartitionKey) -> bytes:
    return build_key(schema.ShareSnapshotKey(group_id=key.group_id, topic_id=key.topic_id, partition=key.partition))


def _share_key(key: schema.ShareSnapshotKey | schema.ShareUpdateKey) -> SharePartitionKey:
    return SharePartitionKey(key.group_id, key.topic_id, key.partition)
