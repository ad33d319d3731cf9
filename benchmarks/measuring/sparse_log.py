"""A log of many GB that takes little of the disk: of most batches only the beginning is written, the rest is a hole."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final
from uuid import UUID

import trio

from ottla.kproto.records import Record, build_batch, crc
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import Handle, RealDisk
from ottla.storage.log.partition_log import AppendOrigin
from ottla.storage.log_manager import LogManager

RECORDS_OF_SPARSE_BATCH: Final = 1_000
WHOLE: Final = 100
"""One of so many batches is written whole, the first one first."""

_NODE_ID: Final = 1
_STEP_MS: Final = 1_000
# A batch is larger, everything else that is written at once is smaller.
_LARGE_BYTES: Final = 524_288
# The block's header and the batch's are in it.
_WRITTEN_BYTES: Final = 1_024
_SYNCED_EVERY: Final = 1_000

# In a batch's header: the first and the largest timestamp, and the CRC of all that comes after it.
_TIMESTAMPS: Final = struct.Struct(">qq")
_TIMESTAMPS_AT: Final = 27
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_SUMMED_FROM: Final = 21


class SparseDisk(RealDisk):
    """Leaves holes in large writes, except while `is_whole`."""

    is_whole = True

    def pwritev(self, handle: Handle, buffers: Iterable[memoryview | bytes], position: int) -> int:
        views = list(buffers)
        if self.is_whole or all(len(view) < _LARGE_BYTES for view in views):
            return super().pwritev(handle, views, position)
        at = position
        for view in views:
            super().pwritev(handle, [view[:_WRITTEN_BYTES] if len(view) >= _LARGE_BYTES else view], at)
            at += len(view)
        os.ftruncate(handle, max(at, os.fstat(handle).st_size))
        return at - position


def write_sparse(data_dir: Path, topic_id: UUID, batches: int, value: bytes, first_ms: int) -> None:
    """Write the log of the first partition of the topic `t` into a stopped node's folder.

    Timestamps rise by a second for each batch.
    """
    trio.run(_write, data_dir, topic_id, batches, value, first_ms)


async def _write(data_dir: Path, topic_id: UUID, batches: int, value: bytes, first_ms: int) -> None:
    disk = SparseDisk()
    manager = LogManager(disk, data_dir, StorageConfig(), SystemClock(), node_id=_NODE_ID)
    records = [Record(timestamp_ms=first_ms, key=None, value=value)] * RECORDS_OF_SPARSE_BATCH
    # The same memory each time: it is written before the next one comes.
    batch = bytearray(build_batch(records))
    async with manager.run():
        log = await manager.open_log(topic_id, "t", 0, LogConfig())
        for number in range(batches):
            timestamp_ms = first_ms + _STEP_MS * number
            _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, timestamp_ms, timestamp_ms)
            _CRC.pack_into(batch, _CRC_AT, crc.value(memoryview(batch)[_SUMMED_FROM:]))
            log.append_as_leader(
                memoryview(batch),
                None,
                leader_epoch=0,
                origin=AppendOrigin.COORDINATOR,
                now_ms=timestamp_ms,
            )
            disk.is_whole = number % WHOLE == 0
            await log.store.writer.flush(sync=number % _SYNCED_EVERY == 0)


def forget_cached(folder: Path) -> None:
    """Let go of what the page cache holds of a folder's files."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
