"""Background work on the files of stores: sealing rolled segments, checkpoints. One task for the node, when needed."""

from __future__ import annotations

import os
from functools import partial
from typing import Final

import trio

from ottla.storage.disk.disk import Disk
from ottla.storage.disk.passing import RETRY_SECONDS, is_full
from ottla.storage.errors import DiskFullError, LogClosedError, StoreOfflineError
from ottla.storage.format.run_table import RunTable
from ottla.storage.format.segment_list import SEGMENT_LIST_NAME
from ottla.storage.format.topic_file import TOPIC_FILE
from ottla.storage.store.checkpoint_files import says, take_checkpoint
from ottla.storage.store.context import StorageContext
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.index_files import write_sealed_index
from ottla.storage.store.message_store import MessageStore
from ottla.storage.store.segment import Segment
from ottla.storage.store.segment_files import list_of

__all__ = ["Maintenance", "checkpoint_after_loss", "list_sealed_segments", "maintain"]

_RETRY_SECONDS: Final = 1.0
_ATTEMPTS_AFTER_LOSS: Final = 100


class Maintenance:
    """The stores that wait to be sealed or checkpointed, and the one task which serves them in turn.

    The log manager owns it, and waits for it before it closes the stores.
    """

    __slots__ = ("_context", "_idle", "_is_running", "_waiting")

    def __init__(self, context: StorageContext) -> None:
        self._context = context
        self._waiting: dict[MessageStore, None] = {}
        self._is_running = False
        self._idle = trio.lowlevel.ParkingLot()

    def request(self, store: MessageStore) -> None:
        """Seal what was rolled in this store, and checkpoint it, soon."""
        if not store.is_usable:
            return
        self._waiting[store] = None
        if not self._is_running:
            self._is_running = True
            self._context.spawn(self._serve)

    def forget(self, store: MessageStore) -> None:
        """The store is being closed."""
        self._waiting.pop(store, None)

    async def wait_idle(self) -> None:
        """Wait until nothing is left to do."""
        while self._is_running:
            await self._idle.park()

    async def _request_later(self, store: MessageStore) -> None:
        """There was no room, or no descriptor: try again in a while."""
        await trio.sleep(_RETRY_SECONDS)
        self.request(store)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                store = next(iter(self._waiting))
                del self._waiting[store]
                if not await maintain(store):
                    self._context.spawn(partial(self._request_later, store))
        finally:
            self._is_running = False
            self._idle.unpark_all()


async def maintain(store: MessageStore, *, makes_room: bool = False) -> bool:
    """Seal every rolled segment, then take a checkpoint. A failure of the disk stops the store.

    While the disk is full this is done only if it `makes_room`, since segments before the checkpoint can be removed: in
    what room there is, with that of the reserve.

    Returns False if there was no room, or no descriptor, and it should be tried again. What is deleted meanwhile is
    left as it is.
    """
    # The lock first: a deletion of the store holds it while waiting for the gate.
    async with store.lock:
        try:
            with store.gate:
                return await _seal_and_checkpoint(store, makes_room=makes_room)
        except LogClosedError:
            # It is being closed, and nothing of it need be kept.
            return True


async def checkpoint_after_loss(store: MessageStore) -> None:
    """Checkpoint a store whose checkpoint knew more than there is, before anything is appended to it.

    By the old one the next start would take what is appended for what follows a loss, and set it aside. Something must
    wait to be written, with which a segment begins. Raises StorageError if the disk refuses.
    """
    await store.writer.flush(sync=False)
    attempts = _ATTEMPTS_AFTER_LOSS
    while not await maintain(store):
        store.writer.check_room()
        attempts -= 1
        if not attempts:
            raise StoreOfflineError(f"{store.files.directory} cannot be checkpointed: there are no descriptors")
        await trio.sleep(RETRY_SECONDS)
    store.writer.check()


async def _seal_and_checkpoint(store: MessageStore, *, makes_room: bool) -> bool:
    try:
        if store.is_usable:
            if makes_room:
                # Gives up the reserve, and proves that blocks can be written: the checkpoint waits for one.
                await store.writer.flush(sync=False)
            await _seal_segments(store)
            # Nothing comes in between: the checkpoint begins where all before it is sealed.
            await _checkpoint_store(store, makes_room=makes_room)
            await list_sealed_segments(store)
            await _describe_topic(store)
    except OSError as error:
        if not store.files.may_try_again(error):
            store.fail(error)
            return True
        if is_full(error):
            store.context.space.filled(error)
        else:
            store.context.shed_descriptors()
        return False
    except StoreOfflineError:
        # It stopped meanwhile, and has said so.
        return True
    except DiskFullError:
        return False
    return True


async def list_sealed_segments(store: MessageStore) -> None:
    """Let the list on the disk name the segments that are sealed now; then the files of those that were retired may go.

    Where there is no room for it the reserve is given up, since what follows makes room.
    """
    context, files = store.context, store.files
    async with files.list_lock:
        retired = list(files.retired)
        content = list_of(files.segments)
        if content != (files.list_content or list_of([])):
            write = partial(context.disk.write_file_atomic, os.path.join(files.directory, SEGMENT_LIST_NAME), content)
            try:
                await context.offload(write)
            except OSError as error:
                if not is_full(error) or not await context.space.make_room():
                    raise
                await context.offload(write)
        files.listed(content, retired)
    for segment in retired:
        store.doomed.doom(segment)


async def _describe_topic(store: MessageStore) -> None:
    """Write the description of the topic beside its files, if it has changed."""
    content = store.new_description()
    if content is None or not store.files.segments:
        return
    disk, path = store.context.disk, os.path.join(store.files.directory, TOPIC_FILE)

    def replace() -> None:
        if not says(disk, path, content):
            disk.write_file_atomic(path, content)

    await store.context.offload(replace)
    store.description_written(content)


async def _seal_segments(store: MessageStore) -> None:
    """Write the index files of the segments that were rolled, oldest first. The caller holds the store's lock."""
    context, files = store.context, store.files
    # Another may be rolled meanwhile: a checkpoint must not begin beyond a segment that is not synced.
    while len(files.unsealed) > 1:
        segment = files.unsealed[0]
        tables, version = segment.tables, segment.version
        assert tables is not None
        if version:
            # Its tables were clipped by a truncation, which may lie in a later block: that must be durable first.
            await store.writer.flush(sync=True)
        await context.offload(_seal, files, context.disk, segment, dict(tables))
        assert segment.version == version, "a truncation holds the lock"
        files.sealed(segment)


def _seal(files: FileStore, disk: Disk, segment: Segment, tables: dict[bytes, RunTable]) -> None:
    files.sync_segment(segment)
    segment.remember_index(None)
    write_sealed_index(disk, segment, tables)


async def _checkpoint_store(store: MessageStore, *, makes_room: bool) -> None:
    """Take every changed partition's state and move the recovery point. The caller holds the store's lock."""
    checkpoint = await take_checkpoint(store, makes_room=makes_room)
    if checkpoint is not None:
        await store.context.offload(checkpoint.write_durably)
        checkpoint.written()
