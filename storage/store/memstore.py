"""The memory half of a store: what is appended gathers here, becomes a block, and stays a while for tail reads.

A store has two memstores in turn (TubeMQ's pair): one takes appends while the other is being written. Batches are
views of the memory they were received into; nothing is copied on the way to `pwritev`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING

import trio

from ottla.storage.format.block import BLOCK_HEADER_BYTES, RUN_BYTES, Run, RunFlag, RunKind, build_block_head

if TYPE_CHECKING:
    from ottla.kproto.records.header import BatchHeader
    from ottla.storage.format.run_table import RunTable
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.memory.iobuf import Fragment, IOBuf
    from ottla.storage.store.message_store import MessageStore

__all__ = ["Memstore", "RunGroup", "TailCache"]

BATCH_OVERHEAD_BYTES = 300
GROUP_OVERHEAD_BYTES = 900
"""What a batch and a partition's group cost in memory besides the bytes: objects, views, places in lists."""

# From so many batches on, of less than so many bytes in the mean, one copy is cheaper than a chain of views.
JOINED_BATCHES = 16
JOINED_MEAN_BYTES = 2048


class RunGroup:
    """One partition's part of a memstore: its batches in order, and the runs they form."""

    __slots__ = (
        "base_offset",
        "ends",
        "fragments",
        "joined",
        "last_offsets",
        "log",
        "position",
        "run_bytes",
        "runs",
        "size_bytes",
        "views",
    )

    def __init__(self, log: PartitionLog, run_bytes: int) -> None:
        self.log = log
        self.run_bytes = run_bytes
        self.base_offset = -1
        self.last_offsets: list[int] = []
        self.views: list[memoryview] = []
        self.fragments: list[Fragment | None] = []
        # Instead of views and fragments, once many small batches were read: their bytes, and where each one ends.
        self.joined: memoryview | None = None
        self.ends: list[int] = []
        self.size_bytes = 0
        self.position = -1
        # [leader epoch, base offset, last offset, max timestamp, length, flags]
        self.runs: list[list[int]] = []

    @property
    def last_offset(self) -> int:
        """The last batch's last offset; the group must hold one."""
        return self.last_offsets[-1]

    def add(
        self, header: BatchHeader, view: memoryview, fragment: Fragment | None, base_offset: int, epoch: int
    ) -> None:
        """Add a batch whose offsets were assigned."""
        last_offset = base_offset + header.last_offset_delta
        size_bytes = header.batch_length + 12
        # The attribute bits for transactional and control are those of the run's flags.
        flags = header.attributes & (RunFlag.TRANSACTIONAL | RunFlag.CONTROL)
        runs = self.runs
        run = runs[-1] if runs else None
        if run is None or run[0] != epoch or run[4] + size_bytes > self.run_bytes or run[5] & RunKind.MASK:
            runs.append([epoch, base_offset, last_offset, header.max_timestamp_ms, size_bytes, flags])
        else:
            run[2] = last_offset
            if header.max_timestamp_ms > run[3]:
                run[3] = header.max_timestamp_ms
            run[4] += size_bytes
            run[5] |= flags
        if self.base_offset < 0:
            self.base_offset = base_offset
        self.last_offsets.append(last_offset)
        self.size_bytes += size_bytes
        self.views.append(view)
        self.fragments.append(fragment.retain() if fragment is not None else None)

    def note(self, kind: int, epoch: int, base_offset: int, last_offset: int) -> None:
        """Add a run without bytes: a truncation, a new log start, a deletion."""
        self.runs.append([epoch, base_offset, last_offset, -1, 0, kind])

    def enter(self, table: RunTable) -> None:
        """Enter the written data runs in the partition's table of the segment."""
        position = self.position
        for epoch, base_offset, last_offset, max_timestamp_ms, length, flags in self.runs:
            if flags & RunKind.MASK == RunKind.DATA:
                table.append(epoch, base_offset, last_offset, max_timestamp_ms, position, length, flags)
                position += length

    def read(self, target: IOBuf, offset: int, end_offset: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """Share whole batches from the one with `offset` on; returns the offset that follows, -1 if cut by size.

        Nothing at or beyond `end_offset` is shared, and no batch beyond `max_bytes` of the target, save the very
        first if `min_one_batch`.
        """
        last_offsets = self.last_offsets
        first = bisect_left(last_offsets, offset)
        if self.joined is not None or self._is_worth_joining():
            return self._read_joined(target, first, end_offset, max_bytes, min_one_batch=min_one_batch)
        for index in range(first, len(last_offsets)):
            if last_offsets[index] >= end_offset:
                return -1
            view = self.views[index]
            if target.size_bytes + view.nbytes > max_bytes and (target.size_bytes or not min_one_batch):
                return -1
            target.append(view, self.fragments[index])
        return last_offsets[-1] + 1

    def _is_worth_joining(self) -> bool:
        count = len(self.views)
        return count >= JOINED_BATCHES and self.size_bytes < count * JOINED_MEAN_BYTES

    def _join(self) -> memoryview:
        """Copy many small batches into one piece, once, and let go of the frames that they came in.

        To share, slice and send thousands of views costs far more than this copy, each time.
        """
        self.ends = list(accumulate(view.nbytes for view in self.views))
        self.joined = joined = memoryview(b"".join(self.views))
        fragments = self.fragments
        self.views, self.fragments = [], []
        release_fragments(fragments)
        return joined

    def _read_joined(self, target: IOBuf, first: int, end_offset: int, max_bytes: int, *, min_one_batch: bool) -> int:
        joined = self._join() if self.joined is None else self.joined
        last_offsets, ends = self.last_offsets, self.ends
        start = ends[first - 1] if first else 0
        visible = bisect_left(last_offsets, end_offset, first)
        stop = min(visible, bisect_right(ends, start + max_bytes - target.size_bytes, first))
        if stop == first and first < visible and min_one_batch and not target.size_bytes:
            stop = first + 1
        if stop > first:
            target.append(joined[start : ends[stop - 1]])
        return last_offsets[-1] + 1 if stop == len(last_offsets) else -1

    def truncate(self, offset: int) -> None:
        """Forget the batches at and beyond an offset."""
        kept = bisect_left(self.last_offsets, offset)
        dropped = self.fragments[kept:]
        del self.last_offsets[kept:], self.views[kept:], self.fragments[kept:], self.ends[kept:]
        release_fragments(dropped)

    def release(self) -> None:
        """Forget all batches."""
        fragments = self.fragments
        self.last_offsets, self.views, self.fragments = [], [], []
        self.joined, self.ends = None, []
        release_fragments(fragments)


def release_fragments(fragments: Iterable[Fragment | None]) -> None:
    """Give back one reference of each."""
    for fragment in fragments:
        if fragment is not None:
            fragment.release()


class Memstore:
    """The batches and notes of one block to be.

    `seal` fixes the block: afterwards nothing is added, and `runs` are the entries for the index, in the block's order.
    `done`, if somebody waits, is set when the block is written and published.
    """

    __slots__ = ("batch_count", "done", "groups", "record_count", "runs", "sequence", "size_bytes", "wants_sync")

    def __init__(self) -> None:
        self.groups: dict[PartitionLog, RunGroup] = {}
        self.size_bytes = 0
        self.batch_count = 0
        self.record_count = 0
        self.wants_sync = False
        self.done: trio.Event | None = None
        self.sequence = -1
        self.runs: list[bytes] = []

    @property
    def has_work(self) -> bool:
        """True if there is something to write."""
        return bool(self.groups) or self.wants_sync or self.done is not None

    def group(self, log: PartitionLog, run_bytes: int) -> RunGroup:
        """The log's part, made on first use."""
        group = self.groups.get(log)
        if group is None:
            group = self.groups[log] = RunGroup(log, run_bytes)
        return group

    def block_bytes(self) -> int:
        """The size of the block that `seal` will make."""
        run_count = 0
        for group in self.groups.values():
            run_count += len(group.runs)
        return BLOCK_HEADER_BYTES + run_count * RUN_BYTES + self.size_bytes

    def footprint_bytes(self) -> int:
        """What it holds in memory: whole frames, of which its batches may be a small part, and its own objects.

        A frame whose batches were divided among two memstores counts for both. Where batches are so small that readers
        make them join them (`RunGroup`), room for the copy counts as well.
        """
        frames: set[Fragment | None] = set()
        for group in self.groups.values():
            frames.update(group.fragments)
        pinned = sum([self.size_bytes if frame is None else frame.capacity_bytes for frame in frames])
        if self.size_bytes < self.batch_count * JOINED_MEAN_BYTES:
            pinned += self.size_bytes
        return pinned + self.batch_count * BATCH_OVERHEAD_BYTES + len(self.groups) * GROUP_OVERHEAD_BYTES

    def seal(self, position: int, sequence: int, written_at_ms: int, length: int) -> list[memoryview | bytes]:
        """Return the block's pieces for a `pwritev` at `position` of the segment file, sorted by partition.

        `length` is what `block_bytes` says.
        """
        groups = sorted(self.groups.values(), key=lambda group: group.log.key)
        self.sequence = sequence
        batch_position = position + length - self.size_bytes
        runs: list[bytes] = []
        pieces: list[memoryview | bytes] = [b""]
        for group in groups:
            key = group.log.key
            group.position = batch_position
            for run in group.runs:
                epoch, base_offset, last_offset, max_timestamp_ms, run_length, flags = run
                runs.append(
                    Run(
                        key, epoch, base_offset, last_offset, max_timestamp_ms, batch_position, run_length, flags
                    ).pack()
                )
                batch_position += run_length
            pieces += group.views
        pieces[0] = build_block_head(sequence, length, written_at_ms, runs)
        self.runs = runs
        return pieces

    def release(self) -> None:
        """Give the memory back without keeping it for readers."""
        for group in self.groups.values():
            group.release()
        self.groups.clear()


# Some 300 µs.
_EVICTED_AT_ONCE = 64


class TailCache:
    """The flushed blocks that still are in memory, of all stores of a node, within a bound.

    Eviction takes the oldest block first: the readers of a log's tail want the newest, and so each log's part of the
    cache is one unbroken range up to its flushed end.
    """

    __slots__ = ("_blocks", "limit_bytes", "size_bytes")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.size_bytes = 0
        self._blocks: deque[tuple[Memstore, int]] = deque()

    def add(self, memstore: Memstore) -> None:
        """Keep a flushed memstore, whose groups are in their logs' tails; of the oldest ones `evict` takes a few."""
        cost = memstore.footprint_bytes()
        self._blocks.append((memstore, cost))
        self.size_bytes += cost
        self.evict()

    def evict(self) -> bool:
        """Let go of a few of the oldest blocks, down to the bound; True if more must go.

        A large block displaces thousands of small ones, which together would hold the event loop for 40 ms.
        """
        for _ in range(_EVICTED_AT_ONCE):
            if self.size_bytes <= self.limit_bytes or not self._blocks:
                return False
            self.evict_one()
        return self.size_bytes > self.limit_bytes

    def evict_one(self) -> None:
        """Let go of the oldest block."""
        self._let_go(*self._blocks.popleft())

    def evict_store(self, store: MessageStore) -> None:
        """Let go of all blocks of a store."""
        blocks, self._blocks = self._blocks, deque()
        for memstore, cost in blocks:
            if any(log.store is store for log in memstore.groups):
                self._let_go(memstore, cost)
            else:
                self._blocks.append((memstore, cost))

    def _let_go(self, memstore: Memstore, cost: int) -> None:
        self.size_bytes -= cost
        for log, group in memstore.groups.items():
            log.forget_tail(group)
        memstore.release()

    def clear(self) -> None:
        """Let go of everything."""
        while self._blocks:
            self.evict_one()
