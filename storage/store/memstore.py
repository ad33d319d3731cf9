"""The memory half of a store: what is appended gathers here, becomes a block, and stays a while for tail reads.

A store has two memstores in turn (TubeMQ's pair): one takes appends while the other is being written. Batches are
views of the memory they were received into; nothing is copied on the way to `pwritev`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import accumulate
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.storage.config import LogConfig
from ottla.storage.format.block import (
    BLOCK_HEADER_BYTES,
    LONE_HEAD_BYTES,
    RUN_BYTES,
    RunFlag,
    RunKind,
    build_block_head,
    build_lone_head,
    pack_run,
)
from ottla.storage.format.run_table import RunTable, voided_from
from ottla.storage.store.summed_runs import LEAST_SUMMED_BYTES, SummedRuns

if TYPE_CHECKING:
    from ottla.kproto.records.header import BatchHeader
    from ottla.storage.format.checkpoint import PartitionState
    from ottla.storage.memory.iobuf import Fragment, IOBuf
    from ottla.storage.state.producer_state import FrozenProducers

__all__ = ["MemRun", "Memstore", "RunGroup", "StoreLog"]

BATCH_OVERHEAD_BYTES = 300
GROUP_OVERHEAD_BYTES = 900
"""What a batch and a partition's group cost in memory besides the bytes: objects, views, places in lists."""

#: The attribute bits for transactional and control are those of a run's flags.
FLAGS_OF_BATCH: Final = RunFlag.TRANSACTIONAL | RunFlag.CONTROL
_MASK: Final = RunKind.MASK

# From this many batches on, of fewer than this many bytes on average, one copy is cheaper than a chain of views.
JOINED_BATCHES = 16
JOINED_MEAN_BYTES = 2048


class StoreLog(Protocol):
    """A log, as its store sees it. `ottla.storage.log.PartitionLog` is the only one."""

    @property
    def key(self) -> bytes:
        """What names the partition in every run, see `log_key`."""

    @property
    def config(self) -> LogConfig:
        """The topic's settings."""

    @property
    def is_closed(self) -> bool:
        """Whether it was deleted, or its store closed."""

    def wants_sync(self, records: int, size_bytes: int, sync_epoch: int) -> bool:
        """Count what is appended against the un-flushed limits; True if this must be synced before it counts."""

    def on_flushed(self, group: RunGroup) -> None:
        """A block with this part of the log is written: readers may have it."""

    def forget_tail(self, group: RunGroup) -> None:
        """The oldest part of the tail leaves memory."""

    def state(self, as_of_sequence: int) -> tuple[PartitionState, FrozenProducers | None]:
        """What is known, as of a block, producers apart; nothing of it may be appended to a later one yet."""

    def close(self) -> None:
        """Everyone who still has the log gets LogClosedError from now on."""

    def __hash__(self) -> int: ...


class MemRun:
    """A run of a memstore while it grows: the fields of the run record that it becomes."""

    __slots__ = ("base_offset", "flags", "last_offset", "leader_epoch", "length", "max_timestamp_ms")

    def __init__(
        self, leader_epoch: int, base_offset: int, last_offset: int, max_timestamp_ms: int, length: int, flags: int
    ) -> None:
        self.leader_epoch = leader_epoch
        self.base_offset = base_offset
        self.last_offset = last_offset
        self.max_timestamp_ms = max_timestamp_ms
        self.length = length
        self.flags = flags

    def extend(
        self, epoch: int, last_offset: int, max_timestamp_ms: int, size_bytes: int, attributes: int, limit_bytes: int
    ) -> bool:
        """A batch follows in the same run; False if it begins another one."""
        length = self.length + size_bytes
        if self.leader_epoch != epoch or length > limit_bytes or self.flags & _MASK:
            return False
        self.length = length
        self.last_offset = last_offset
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
        if attributes:
            self.flags |= attributes & FLAGS_OF_BATCH
        return True

    def flags_with(self, flag: int) -> None:
        """Say more of the run."""
        self.flags |= flag


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

    def __init__(self, log: StoreLog, run_bytes: int) -> None:
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
        self.runs: list[MemRun] = []

    @property
    def last_offset(self) -> int:
        """The last batch's last offset; the group must hold one."""
        return self.last_offsets[-1]

    def add(
        self,
        header: BatchHeader,
        view: memoryview,
        fragment: Fragment | None,
        base_offset: int,
        last_offset: int,
        epoch: int,
    ) -> None:
        """Add a batch whose offsets were assigned."""
        size_bytes = len(view)
        runs = self.runs
        if not runs or not runs[-1].extend(
            epoch, last_offset, header.max_timestamp_ms, size_bytes, header.attributes, self.run_bytes
        ):
            flags = header.attributes & FLAGS_OF_BATCH
            runs.append(MemRun(epoch, base_offset, last_offset, header.max_timestamp_ms, size_bytes, flags))
            if self.base_offset < 0:
                self.base_offset = base_offset
        self.last_offsets.append(last_offset)
        self.size_bytes += size_bytes
        self.views.append(view)
        self.fragments.append(None if fragment is None else fragment.retain())

    def note(self, kind: int, epoch: int, base_offset: int, last_offset: int) -> None:
        """Add a run without bytes: a truncation, a new log start, a deletion."""
        self.runs.append(MemRun(epoch, base_offset, last_offset, -1, 0, kind))

    def enter(self, table: RunTable, summed: SummedRuns) -> None:
        """Enter the written runs in the partition's table of the segment.

        Those without bytes as well: what they make void is gone from all tables, but that they stand in this segment
        must be known when it is rewritten.
        """
        position = self.position
        for run in self.runs:
            kind = run.flags & RunKind.MASK
            if kind != RunKind.DATA:
                offset = voided_from(kind, run.base_offset, run.last_offset)
                if offset < table.truncated_to:
                    table.truncate(offset)
            else:
                table.append(
                    run.leader_epoch,
                    run.base_offset,
                    run.last_offset,
                    run.max_timestamp_ms,
                    position,
                    run.length,
                    run.flags,
                )
                if run.length >= LEAST_SUMMED_BYTES:
                    summed.add(position)  # each batch was, before it was written
                position += run.length
        # The table says it all from now on.
        self.runs.clear()

    def read(self, target: IOBuf, offset: int, end_offset: int, max_bytes: int, *, min_one_batch: bool) -> int:
        """Share whole batches from the one with `offset` on; returns the offset that follows those, or `offset`.

        Nothing at or beyond `end_offset` is shared, and no batch beyond `max_bytes` of the target, save the very
        first if `min_one_batch`.
        """
        last_offsets = self.last_offsets
        first = bisect_left(last_offsets, offset)
        if self.joined is not None or self._is_worth_joining():
            count = self._read_joined(target, first, end_offset, max_bytes, min_one_batch=min_one_batch)
        else:
            count = self._read_views(target, first, end_offset, max_bytes, min_one_batch=min_one_batch)
        return last_offsets[first + count - 1] + 1 if count else offset

    def _read_views(self, target: IOBuf, first: int, end_offset: int, max_bytes: int, *, min_one_batch: bool) -> int:
        for index in range(first, len(self.views)):
            view = self.views[index]
            too_large = target.size_bytes + view.nbytes > max_bytes and (target.size_bytes or not min_one_batch)
            if too_large or self.last_offsets[index] >= end_offset:
                return index - first
            target.append(view, self.fragments[index])
        return len(self.views) - first

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
        return stop - first

    def pack_runs(self, position: int) -> list[bytes]:
        """The run records, where the first batch stands at `position` of the segment file."""
        self.position = position
        key = self.log.key
        packed = []
        for run in self.runs:
            packed.append(
                pack_run(
                    key,
                    run.leader_epoch,
                    run.base_offset,
                    run.last_offset,
                    run.max_timestamp_ms,
                    position,
                    run.length,
                    run.flags,
                )
            )
            position += run.length
        return packed

    def seal_alone(self, position: int, sequence: int, written_at_ms: int, length: int) -> bytes:
        """The head of a block of `length` bytes, at `position` of the segment file, with nothing but this one run."""
        (run,) = self.runs
        self.position = position + LONE_HEAD_BYTES
        return build_lone_head(
            sequence,
            length,
            written_at_ms,
            self.log.key,
            run.leader_epoch,
            run.base_offset,
            run.last_offset,
            run.max_timestamp_ms,
            self.position,
            run.flags,
        )

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


def _key_of(group: RunGroup) -> bytes:
    return group.log.key


class Done:
    """How waiting for a block ends: it is written and published, or nobody should wait for it any more."""

    __slots__ = ("_event", "is_written")

    def __init__(self) -> None:
        self._event = trio.Event()
        self.is_written = False

    async def wait(self) -> None:
        """Return when it has ended; `is_written` says how."""
        await self._event.wait()

    def end(self, *, is_written: bool) -> None:
        """Release those who wait."""
        self.is_written = is_written
        self._event.set()


class Memstore:
    """The batches and notes of one block to be.

    `seal` fixes the block: afterwards nothing is added. Its run records are the entries for the index, in the block's
    order.
    `done`, if somebody waits, is set when the block is written and published.
    """

    __slots__ = (
        "batch_count",
        "done",
        "groups",
        "owner",
        "record_count",
        "sequence",
        "size_bytes",
        "wants_sync",
    )

    def __init__(self, owner: object) -> None:
        """`owner` is the store that it belongs to, for those who keep blocks of many."""
        self.groups: dict[StoreLog, RunGroup] = {}
        self.size_bytes = 0
        self.batch_count = 0
        self.record_count = 0
        self.wants_sync = False
        self.done: Done | None = None
        self.sequence = -1
        self.owner = owner

    @property
    def has_work(self) -> bool:
        """True if there is something to write."""
        return bool(self.groups) or self.wants_sync or self.done is not None

    def grown(self, records: int, size_bytes: int) -> int:
        """A batch was added to one of the groups; returns the size of all batches."""
        self.batch_count += 1
        self.record_count += records
        self.size_bytes = size_bytes = self.size_bytes + size_bytes
        return size_bytes

    def want_sync(self) -> None:
        """Its block must be synced before it counts."""
        self.wants_sync = True

    def wait_event(self) -> Done:
        """What is set when the block is written and published, or never will be."""
        if self.done is None:
            self.done = Done()
        return self.done

    def written(self) -> None:
        """Its block is written and published: release those who wait."""
        if self.done is not None:
            self.done.end(is_written=True)

    def refuse(self) -> None:
        """Its block cannot be written for now: release those who wait; those who come later wait again."""
        self.wake()
        self.done = None

    def wake(self) -> None:
        """Release those who wait; they check whether the store is still there."""
        if self.done is not None:
            self.done.end(is_written=False)

    def group(self, log: StoreLog, run_bytes: int) -> RunGroup:
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
        if self.batch_count == len(self.groups) == 1:
            (group,) = self.groups.values()
            (frame,) = group.fragments
            pinned = self.size_bytes if frame is None else frame.capacity_bytes
        else:
            frames: set[Fragment | None] = set()
            for group in self.groups.values():
                frames.update(group.fragments)
            pinned = sum([self.size_bytes if frame is None else frame.capacity_bytes for frame in frames])
        if self.size_bytes < self.batch_count * JOINED_MEAN_BYTES:
            pinned += self.size_bytes
        return pinned + self.batch_count * BATCH_OVERHEAD_BYTES + len(self.groups) * GROUP_OVERHEAD_BYTES

    def seal(
        self, position: int, sequence: int, written_at_ms: int, length: int
    ) -> tuple[list[memoryview | bytes], list[bytes]]:
        """The block's pieces for a `pwritev` at `position` of the segment file, by partition, and its run records.

        `length` is what `block_bytes` says.
        """
        self.sequence = sequence
        if len(self.groups) == 1:
            (group,) = self.groups.values()
            if len(group.runs) == 1:
                head = group.seal_alone(position, sequence, written_at_ms, length)
                return [head, *group.views], [head[BLOCK_HEADER_BYTES:]]
        batch_position = position + length - self.size_bytes
        runs: list[bytes] = []
        pieces: list[memoryview | bytes] = [b""]
        for group in sorted(self.groups.values(), key=_key_of):
            runs += group.pack_runs(batch_position)
            batch_position += group.size_bytes
            pieces += group.views
        pieces[0] = build_block_head(sequence, length, written_at_ms, runs)
        return pieces, runs

    def release(self) -> None:
        """Give the memory back without keeping it for readers."""
        for group in self.groups.values():
            group.release()
        self.groups.clear()
