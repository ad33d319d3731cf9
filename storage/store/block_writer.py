"""The write path of a store: two memstores in turn, one block at a time, written at the end of a turn or by a loop.

The contract of durability is stated here, once: a log's `flushed_end_offset` moves when a block has been written to the
file, and synced where the topic's flush settings ask for it; nothing is acknowledged for any other reason. A failed
write or sync stops the store for good (`StoreOfflineError`): nothing is retried, because after a failed sync the kernel
may have dropped the pages, and nothing that was waiting is ever acknowledged. What was acknowledged stays readable.

What is appended in one turn of the event loop gathers, and is written when the turn ends (`ottla.storage.turn`): a
small block there and then, all others by the write loop. The loop runs only while there is something to write: an idle
store has no task. While it runs it is inside the store's gate, so that closing waits for the block that is being
written.

A lack of room or of descriptors is not a failure: they pass. The block is void then, what there is of it is cut off,
and it is written again, to the same place, when it can be. While the disk is full (`is_stalled`) appends are refused,
and those who wait for the block are told that it is not written.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from time import perf_counter
from typing import TYPE_CHECKING, Protocol

import trio

from ottla.runtime.time_slice import TimeSlice, chunks
from ottla.storage.disk.passing import RETRY_SECONDS, is_full
from ottla.storage.errors import DiskFullError, LogClosedError, StoreOfflineError
from ottla.storage.format.block import RunFlag
from ottla.storage.store.context import StorageContext
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.memstore import Memstore, RunGroup, StoreLog
from ottla.storage.store.segment import Segment

if TYPE_CHECKING:
    from ottla.kproto.records.header import BatchHeader
    from ottla.storage.memory.iobuf import Fragment

__all__ = ["BlockOwner", "BlockWriter"]

logger = logging.getLogger(__name__)

_MAX_IN_PLACE_GROUPS = 64
"""A block of more partitions is left to the write loop, which lets others run while it publishes them."""

_NEXT_BYTES = 72 * 1024
"""A turn ends when a block has no room left for so much: the largest request that a turn takes, and the block's head.
Otherwise each crowd would gather a little more than is written in place, and leave all of it to the write loop.
"""


class BlockOwner(Protocol):
    """The store, as its writer sees it."""

    @property
    def needs_swap(self) -> bool:
        """Whether a checkpoint waits for a memstore to be swapped out."""

    def takes_at_once(self, size_bytes: int, now_ms: int) -> bool:
        """Whether a block of this size can be written without rolling, and no checkpoint waits for a swap."""

    def must_roll(self, size_bytes: int, now_ms: int) -> bool:
        """Whether a block of this size belongs in a new segment."""

    def changed(self, log: StoreLog) -> None:
        """The next checkpoint must take this log's state."""

    def swapped(self, memstore: Memstore) -> None:
        """All that was appended is in known blocks, of which this memstore becomes the last."""

    def rolled(self) -> None:
        """A new segment was begun, and the one before can be sealed."""

    def written(self, memstore: Memstore, size_bytes: int) -> None:
        """A block is written and published."""

    def stalled(self) -> None:
        """The disk is full: nothing should wait any longer for a block to be written."""

    def failed(self, error: Exception) -> None:
        """A write or a sync has failed."""


class BlockWriter:
    """Takes what the logs of one store append, and writes it."""

    __slots__ = (
        "_context",
        "_files",
        "_is_awaited",
        "_is_gathering",
        "_is_running",
        "_is_writing",
        "_owner",
        "_pending",
        "_retry",
        "_room",
        "_stops",
        "active",
        "error",
        "is_stalled",
        "refuses",
        "sync_epoch",
    )

    def __init__(self, context: StorageContext, files: FileStore, owner: BlockOwner) -> None:
        self._context = context
        self._files = files
        self._owner = owner
        self._room = trio.lowlevel.ParkingLot()
        # Somebody may wait for room.
        self._is_awaited = False
        # The end of the turn will have it written.
        self._is_gathering = False
        self._is_running = False
        # The write loop has a block under way.
        self._is_writing = False
        self._stops = False
        self.active = Memstore(files)
        # Swapped out and not written yet, because it could not be.
        self._pending: Memstore | None = None
        self._retry: trio.Event | None = None
        self.error: Exception | None = None
        self.is_stalled = False
        #: Whether appends are refused, for good or for now: `check_room` says why.
        self.refuses = False
        #: Rises with each block that is synced.
        self.sync_epoch = 0

    # What the logs call.

    @property
    def has_room(self) -> bool:
        """Whether the active memstore accepts more."""
        config = self._context.config
        memstore = self.active
        return (
            memstore.size_bytes < config.memstore_bytes
            and memstore.batch_count < config.memstore_batches
            and memstore.record_count < config.memstore_records
        )

    async def wait_for_room(self) -> None:
        """Wait until the active memstore accepts more; StoreOfflineError or LogClosedError if it never will."""
        while not self.has_room:
            self.check()
            self.check_room()
            self._is_awaited = True
            await self._room.park()
        self.check()

    def check(self) -> None:
        """Raise StoreOfflineError or LogClosedError if nothing more can be written."""
        if self.error is not None:
            raise StoreOfflineError(f"the store {self._files.directory} is offline: {self.error}") from self.error
        if self._stops:
            raise LogClosedError(f"the store {self._files.directory} is closed")

    def check_room(self) -> None:
        """Raise DiskFullError if nothing can be appended for now."""
        if self.is_stalled:
            raise DiskFullError(f"the disk of {self._files.directory} is full")

    @property
    def waits_for_room(self) -> bool:
        """Whether a block could not be written, and is not tried again by itself."""
        return self._retry is not None and not self._retry.is_set()

    def add_batch(
        self,
        log: StoreLog,
        header: BatchHeader,
        view: memoryview,
        fragment: Fragment | None,
        base_offset: int,
        last_offset: int,
        leader_epoch: int,
        counts_unsynced: bool,
    ) -> None:
        """Accept a batch whose offsets were assigned; it will be in the next block."""
        memstore, context = self.active, self._context
        config = context.config
        group = memstore.groups.get(log)
        if group is None:
            self._owner.changed(log)
            group = memstore.group(log, config.run_bytes)
        group.add(header, view, fragment, base_offset, last_offset, leader_epoch)
        records = last_offset - base_offset + 1
        size_bytes = memstore.grown(records, len(view))
        if counts_unsynced and log.wants_sync(records, len(view), self.sync_epoch):
            memstore.want_sync()
        if not self._is_gathering:
            self._is_gathering = True
            context.turn.write(self._write_gathered)
        if size_bytes > _NEXT_BYTES and size_bytes > config.inline_write_bytes - _NEXT_BYTES:
            context.turn.fill()

    def note_gap(self, log: StoreLog) -> None:
        """The leader's compaction has left a gap before the batch that was just added."""
        self.active.groups[log].runs[-1].flags_with(RunFlag.CLEANED)

    def _write_gathered(self) -> None:
        """The turn has ended: write what has gathered, here and now if that holds up nobody.

        The write loop is for blocks that are large, must be synced or have to wait. While a block is under way the loop
        writes the next one after it.
        """
        self._is_gathering = False
        memstore = self.active
        if (
            self._is_writing
            or self._pending is not None
            or not (memstore.groups or memstore.has_work)
            or self.error is not None
            or self._stops
        ):
            return
        context, files = self._context, self._files
        size_bytes = memstore.block_bytes()
        now_ms = context.clock.time_ms()
        if (
            memstore.wants_sync
            or size_bytes > context.config.inline_write_bytes
            or not 0 < len(memstore.groups) <= _MAX_IN_PLACE_GROUPS
            or not files.is_open
            or not self._owner.takes_at_once(size_bytes, now_ms)
        ):
            self.start()
            return
        context.writers.use(files)
        self._swap()
        try:
            try:
                self._write_in_place(memstore, size_bytes, now_ms)
            except OSError as error:
                if files.may_try_again(error):
                    self._pending = memstore
                    self.start()
                else:
                    self.fail(error, memstore)
                    memstore.release()
                return
            self._publish_part(memstore.groups.values(), files.active)
            self._finish(memstore, size_bytes)
        except Exception as error:
            # A bug: what was swapped out is nowhere now, so nothing may follow it.
            self.fail(error, memstore)
            raise

    def add_note(self, log: StoreLog, kind: int, leader_epoch: int, base_offset: int, last_offset: int = -1) -> None:
        """Accept a run without bytes: what happened to the log, for readers that have only the files."""
        self.active.group(log, self._context.config.run_bytes).note(kind, leader_epoch, base_offset, last_offset)
        self._owner.changed(log)
        # Its caller waits for it.
        self.start()

    async def flush(self, *, sync: bool) -> None:
        """Wait until everything taken up to now is written and published, and synced if asked.

        That includes the block that is being written. StoreOfflineError or LogClosedError if it cannot be, and
        DiskFullError if it cannot be for now; before that, the reserve of room is given up for it.
        """
        self.check()
        if sync:
            self.active.want_sync()
        done = self.active.wait_event()
        if self.is_stalled:
            await self._context.space.make_room(if_full=True)
            self.try_again()
        self.start()
        await done.wait()
        self.check()
        if not done.is_written:
            self.check_room()

    def sync_soon(self) -> None:
        """Sync with the next block, which is written soon even if it is empty."""
        if self.error is None and not self._stops:
            self.active.want_sync()
            self.start()

    # Its end.

    @property
    def is_running(self) -> bool:
        """Whether the write loop runs."""
        return self._is_running

    @property
    def has_work(self) -> bool:
        """Whether something is to be written, or is being written."""
        return self._is_running or self._pending is not None or self.active.has_work

    def stop(self) -> None:
        """Accept nothing more, and drop what is not being written yet: the store is being closed."""
        self._stops = True
        self._context.space.remove(self)
        self._room.unpark_all()
        self.active.wake()
        self.try_again()

    def release(self) -> None:
        """Give back what was taken and will never be written. The write loop has ended, and nothing can be appended."""
        assert not self._is_running
        self.active.release()

    def fail(self, error: Exception, memstore: Memstore | None = None) -> None:
        """Stop for good: write no more, acknowledge nothing."""
        is_first = self.error is None
        if is_first:
            self.error = error
            self.refuses = True
            self._context.space.remove(self)
        self.try_again()
        self._room.unpark_all()
        for each in (memstore, self.active):
            if each is not None:
                each.wake()
        if is_first:
            self._owner.failed(error)

    # A full disk.

    def stall(self) -> None:
        """Refuse appends, and tell those who wait for a block."""
        self.is_stalled = self.refuses = True
        self._room.unpark_all()
        for memstore in (self._pending, self.active):
            if memstore is not None:
                memstore.refuse()
        self._owner.stalled()

    def resume(self) -> None:
        """There is room: write what waits."""
        self.is_stalled = False
        self.refuses = self.error is not None
        self.try_again()

    def try_again(self) -> None:
        """Write what could not be written, now."""
        if self._retry is not None:
            self._retry.set()

    async def _wait_out(self, error: OSError, memstore: Memstore) -> None:
        """Wait for what a write lacked, or until there is nothing to wait for."""
        self._pending = memstore
        if is_full(error):
            await self._context.offload(self._files.undo_write)
            self._context.space.filled(error, memstore.block_bytes())
            # It was full before: the caller that asked for another attempt is answered as well.
            self.stall()
        else:
            logger.warning("%s: no file descriptor for writing, trying again", self._files.directory)
            self._context.shed_descriptors()
        if self._stops or self.error is not None:
            return
        self._retry = trio.Event()
        with trio.move_on_after(math.inf if self.is_stalled else RETRY_SECONDS):
            await self._retry.wait()
        self._retry = None

    # The write loop.

    def start(self) -> None:
        """Run the write loop, if it does not run. It ends by itself when nothing is left to write."""
        if self._is_running:
            return
        if not self._files.gate.is_open:
            self.stop()
            return
        self._files.gate.enter()
        self._files.use(is_in_use=True)
        self._is_running = True
        self._context.spawn(self._run)

    async def _run(self) -> None:
        """Write block after block until nothing is left; what arrives meanwhile gathers in the other memstore."""
        # Shielded, because a half-recorded block could never be repaired. Every wait inside is for a disk call, which
        # returns; and the loop ends when nothing is left to write, or the store has failed or is closed.
        with trio.CancelScope(shield=True):
            try:
                while not self._stops and self.error is None and self._has_next:
                    await self._write_next()
            finally:
                self._is_running = False
                pending, self._pending = self._pending, None
                if pending is not None:
                    pending.wake()
                    pending.release()
                self._files.use(is_in_use=False)
                self._context.writers.has_written(self._files)
                self._files.gate.leave()

    @property
    def _has_next(self) -> bool:
        return self._pending is not None or self.active.has_work or self._owner.needs_swap

    async def _write_next(self) -> None:
        self._is_writing = True
        try:
            await self._write_block_of_loop()
        finally:
            self._is_writing = False
        # While a block was written in place nobody else could run, so nothing has gathered.
        await trio.lowlevel.checkpoint()
        while self._context.tail.evict():
            await trio.lowlevel.checkpoint()

    async def _write_block_of_loop(self) -> None:
        memstore, self._pending = self._pending, None
        if memstore is None:
            memstore = self._swap()
        try:
            size_bytes = await self._write(memstore)
        except OSError as error:
            if self._files.may_try_again(error):
                await self._wait_out(error, memstore)
            else:
                self.fail(error, memstore)
                memstore.release()
            return
        except Exception as error:
            self.fail(error, memstore)
            raise
        if self.error is not None:
            memstore.wake()
            memstore.release()
            return
        await self._publish(memstore)
        self._finish(memstore, size_bytes)

    def _swap(self) -> Memstore:
        memstore = self.active
        self.active = Memstore(self._files)
        if memstore.wants_sync:
            self.sync_epoch += 1
        self._owner.swapped(memstore)
        if self._is_awaited:
            self._is_awaited = False
            self._room.unpark_all()
        return memstore

    async def _write(self, memstore: Memstore) -> int:
        self._context.writers.use(self._files)
        if memstore.groups:
            size_bytes = memstore.block_bytes()
            now_ms = self._context.clock.time_ms()
            if self._owner.must_roll(size_bytes, now_ms):
                await self._roll(now_ms)
            if memstore.wants_sync or size_bytes > self._context.config.inline_write_bytes:
                started = perf_counter()
                runs = await self._context.offload(self._write_block, memstore, size_bytes, now_ms)
                self._count_written(memstore, size_bytes, runs, now_ms, perf_counter() - started)
            else:
                self._write_in_place(memstore, size_bytes, now_ms)
            return size_bytes
        if memstore.wants_sync and self._files.unsynced_bytes:
            await self._context.offload(self._files.sync)
        return 0

    async def _roll(self, now_ms: int) -> None:
        """Begin a new segment; the one before is sealed in the background."""
        has_sealable = self._files.active is not None
        segment, handle = await self._context.offload(self._files.create_segment, now_ms, self._context.boot_id)
        self._files.begin_segment(segment, handle)
        if has_sealable:
            self._owner.rolled()

    def _write_in_place(self, memstore: Memstore, size_bytes: int, now_ms: int) -> None:
        started = perf_counter()
        files = self._files
        pieces, runs = memstore.seal(files.segments[-1].size_bytes, files.next_sequence, now_ms, size_bytes)
        files.write(pieces)
        self._count_written(memstore, size_bytes, runs, now_ms, perf_counter() - started)

    def _count_written(
        self, memstore: Memstore, size_bytes: int, runs: list[bytes], now_ms: int, seconds: float
    ) -> None:
        self._context.count_block(size_bytes, seconds)
        self._files.advance(size_bytes, runs, now_ms, synced=memstore.wants_sync)

    def _write_block(self, memstore: Memstore, size_bytes: int, now_ms: int) -> list[bytes]:
        """Build the block, write it, and sync it if that is asked for; its run records. Runs in a worker thread."""
        files = self._files
        pieces, runs = memstore.seal(files.segments[-1].size_bytes, files.next_sequence, now_ms, size_bytes)
        files.write(pieces)
        if memstore.wants_sync:
            files.sync()
        return runs

    async def _publish(self, memstore: Memstore) -> None:
        """Let readers see the block, and tell the listener."""
        segment = self._files.active
        time_slice = TimeSlice()
        for groups in chunks(list(memstore.groups.values())):
            await time_slice.maybe_yield()
            self._publish_part(groups, segment)

    def _publish_part(self, groups: Collection[RunGroup], segment: Segment | None) -> None:
        assert segment is not None
        logs = []
        for group in groups:
            log = group.log
            group.enter(segment.table(log.key), segment.summed)
            log.on_flushed(group)
            logs.append(log)
        listener = self._context.listener
        if listener is not None:
            listener.on_flushed(logs)

    def _finish(self, memstore: Memstore, size_bytes: int) -> None:
        """Keep the block for the readers of the tail, and wake its waiters."""
        if memstore.batch_count:
            self._context.tail.add(memstore)
        self._owner.written(memstore, size_bytes)
        if memstore.done is not None:
            memstore.written()
