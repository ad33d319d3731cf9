"""What goes into snapshots: both are record batches, as they would lie in a log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.kproto.records import Record, build_batch
from ottla.runtime.time_slice import TimeSlice
from ottla.tiers.errors import SnapshotTooLargeError
from ottla.tiers.offload import in_a_thread
from ottla.tiers.snapshot import MAX_SNAPSHOT_BYTES

if TYPE_CHECKING:
    from ottla.coordinator.group.shard.offset_cache import OffsetCache
    from ottla.storage.log.partition_log import PartitionLog

__all__ = ["committed_offsets", "whole_log"]

_RECORDS_A_BATCH: Final = 10_000


async def committed_offsets(offsets: OffsetCache) -> bytes:
    """The committed offsets of one partition of `__consumer_offsets`, in the order of their keys.

    Those of a group are of one moment. SnapshotTooLargeError if there are too many.
    """
    found: dict[bytes, bytes] = {}
    size_bytes = 0
    time_slice = TimeSlice()
    for group_id in offsets.groups():
        await time_slice.maybe_yield()
        for key, (_, value) in offsets.committed(group_id):
            found[key] = value
            size_bytes += len(key) + len(value)
        if size_bytes > MAX_SNAPSHOT_BYTES:
            raise SnapshotTooLargeError(f"the committed offsets have more than {MAX_SNAPSHOT_BYTES} bytes")
    return await in_a_thread(_batches, found)


async def whole_log(log: PartitionLog, end_offset: int) -> bytes:
    """All batches of a log below an offset. SnapshotTooLargeError if there are too many; raises what a read does."""
    found: list[bytes] = []
    size_bytes, offset = 0, log.log_start_offset
    while offset < end_offset:
        records, offset = await log.read_batches(offset, end_offset)
        content = records.to_bytes()
        records.release()
        found.append(content)
        size_bytes += len(content)
        if size_bytes > MAX_SNAPSHOT_BYTES:
            raise SnapshotTooLargeError(f"{log} has more than {MAX_SNAPSHOT_BYTES} bytes")
    return b"".join(found)


def _batches(found: dict[bytes, bytes]) -> bytes:
    records = [Record(key=key, value=value, timestamp_ms=-1) for key, value in sorted(found.items())]
    return b"".join(
        build_batch(records[first : first + _RECORDS_A_BATCH], base_offset=first)
        for first in range(0, len(records), _RECORDS_A_BATCH)
    )
