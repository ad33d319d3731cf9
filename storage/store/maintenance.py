"""Background work on the files of stores: sealing rolled segments, checkpoints. One task for the node, when needed."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

import trio
from google_crc32c import extend

from ottla.storage.errors import StoreOfflineError
from ottla.storage.format.run_table import RunTable
from ottla.storage.store.checkpoint import CHECKPOINT_NAME, Checkpoint, CheckpointBuilder, pack_checkpoint
from ottla.storage.store.file_store import sync_names
from ottla.storage.store.index_files import write_sealed_index

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.file_store import FileStore
    from ottla.storage.store.message_store import MessageStore
    from ottla.storage.store.segment import Segment

__all__ = ["Maintenance", "checkpoint_store", "seal_segments"]

logger = logging.getLogger(__name__)


class Maintenance:
    """The stores that wait to be sealed or checkpointed, and the one task which serves them in turn."""

    __slots__ = ("_context", "_idle", "_is_running", "_waiting")

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._waiting: dict[MessageStore, None] = {}
        self._is_running = False
        self._idle = trio.lowlevel.ParkingLot()

    def request(self, store: MessageStore) -> None:
        """Seal what was rolled in this store, and checkpoint it, soon."""
        self._waiting[store] = None
        if not self._is_running:
            self._is_running = True
            self._context.spawn(self._serve)

    async def wait_idle(self) -> None:
        """Wait until nothing is left to do."""
        while self._is_running:
            await self._idle.park()

    async def _serve(self) -> None:
        try:
            while self._waiting:
                store = next(iter(self._waiting))
                del self._waiting[store]
                await maintain(store)
        finally:
            self._is_running = False
            self._idle.unpark_all()


async def maintain(store: MessageStore) -> None:
    """Seal every rolled segment, then checkpoint. A failure of the disk stops the store."""
    async with store.lock:
        try:
            if store.error is None:
                await seal_segments(store)
                await checkpoint_store(store)
        except OSError as error:
            store.fail(error)
        except StoreOfflineError:
            # It stopped meanwhile, and has said so.
            return


async def seal_segments(store: MessageStore) -> None:
    """Write the index files of the segments that were rolled, oldest first. The caller holds the store's lock."""
    context = store.context
    # Another may be rolled meanwhile: a checkpoint must not begin beyond a segment that is not synced.
    while len(store.files.unsealed) > 1:
        segment = store.files.unsealed[0]
        while True:
            tables = segment.tables
            assert tables is not None
            version = segment.version
            await context.offload(_seal, store.files, context.disk, segment, dict(tables))
            if segment.version == version:
                break
        segment.tables = None
        segment.pending_index = bytearray()
        store.files.layout_version += 1


def _seal(files: FileStore, disk: Disk, segment: Segment, tables: dict[bytes, RunTable]) -> None:
    files.sync_segment(segment)
    segment.index = None
    write_sealed_index(disk, segment, tables)


async def checkpoint_store(store: MessageStore) -> None:
    """Take every changed partition's state and move the recovery point. The caller holds the store's lock."""
    segment = store.files.active
    if segment is None:
        return
    builder = CheckpointBuilder(store)
    index_tail = bytes(segment.pending_index)
    point = Checkpoint(
        store.context.boot_id,
        segment.position,
        segment.size_bytes,
        store.files.next_sequence,
        segment.index_length + len(index_tail),
        extend(segment.index_crc, index_tail),
    )
    store.checkpointed_bytes = store.written_bytes
    store.begin_checkpoint(builder)
    try:
        await builder.take_all()
    finally:
        store.end_checkpoint(builder)
    await store.flush(sync=False)
    store.snapshots.update(builder.taken)
    content = await pack_checkpoint(point, store.snapshots)
    first = store.files.segments.index(segment)
    await store.context.offload(
        _write_checkpoint, store.files, store.context.disk, store.files.segments[first:], index_tail, content
    )
    store.recovery_position = point.segment_position
    del segment.pending_index[: len(index_tail)]
    segment.index_length, segment.index_crc = point.index_length, point.index_crc


def _write_checkpoint(
    files: FileStore, disk: Disk, segments: list[Segment], index_tail: bytes, content: list[bytes]
) -> None:
    """Make durable what the checkpoint speaks of, then the checkpoint. Blocks."""
    for segment in segments:
        files.sync_segment(segment)
    segment = segments[0]
    exists = disk.exists(segment.index_path)
    handle = disk.open_write(segment.index_path) if exists else disk.create(segment.index_path)
    try:
        disk.pwritev(handle, [index_tail], segment.index_length)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    sync_names(disk, segment.directory)
    disk.write_file_atomic(os.path.join(segment.directory, CHECKPOINT_NAME), *content)
