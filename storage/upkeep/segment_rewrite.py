"""Rewriting sealed segments: sorted by partition, without what is dead, compacted where that is asked; several
that follow each other become one.

The new files stand beside the old ones under names of their own; the rename of the data file is the moment of the
change, and its header says for which others it stands. What is abandoned before leaves only files which the next start
removes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, BytesLike, iter_batches, verify_crc
from ottla.storage.config import INT64_MAX
from ottla.storage.disk.disk import Disk, Handle
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import BLOCK_HEADER_BYTES, RUN_BYTES, Run, RunFlag, RunKind, build_block_head
from ottla.storage.format.block_scan import read_exactly
from ottla.storage.format.run_table import RunEntry, RunTable, enter_run
from ottla.storage.format.sealed_index import IndexPage
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES, SORTED_FLAG, build_segment_header
from ottla.storage.store.index_files import load_index, write_sealed_index
from ottla.storage.store.segment import Segment

__all__ = ["Keep", "SegmentRewrite"]

logger = logging.getLogger(__name__)

_BLOCK_BYTES = 4 * 1_048_576
CleanBatch = Callable[[BytesLike, int, BatchHeader], BytesLike | None]


@dataclass(slots=True, frozen=True)
class Keep:
    """What stays of one partition in the segment: batches of runs that reach into [`log_start`, `last_offset`].

    `clean` sees each of them in order and returns what takes its place, or None.
    """

    log_start: int
    last_offset: int = INT64_MAX
    clean: CleanBatch | None = None


class _Source:
    """One of the old segments. `keep` names every partition that lives, with what is left of it in this segment."""

    __slots__ = ("data", "index", "index_handle", "keep", "segment")

    def __init__(self, disk: Disk, segment: Segment, keep: Mapping[bytes, Keep]) -> None:
        self.segment = segment
        self.keep = keep
        self.index = load_index(disk, segment)
        self.data = disk.open_read(segment.data_path)
        try:
            self.index_handle = disk.open_read(segment.index_path)
        except BaseException:
            disk.close(self.data)
            raise

    def pages(self, number: int) -> Iterator[tuple[bytes, int, IndexPage]]:
        """(key, number, page) of the partitions that live or were deleted, in the order of keys and offsets."""
        pages = self.index.all_pages()
        return ((page.key, number, page) for page in pages if page.key in self.keep or page.truncated_to == 0)


class SegmentRewrite:
    """One rewrite, in steps that block and are run in a worker thread.

    `sources` are segments that follow each other, each with what stays of it; what `keep` does not name is dropped.
    `is_oldest` says that no older segment is left, so that truncations and deletions need not be remembered. Usage:
    `open`, `step` until it returns 0, `finish`, then `close`.
    """

    def __init__(
        self,
        disk: Disk,
        sources: Sequence[tuple[Segment, Mapping[bytes, Keep]]],
        *,
        run_bytes: int,
        is_oldest: bool,
    ) -> None:
        self._disk = disk
        self._old = sources
        self._run_bytes = run_bytes
        self._is_oldest = is_oldest
        first, last = sources[0][0], sources[-1][0]
        self.segment = Segment(first.directory, first.position, first.generation + 1)
        self.segment.stand_for(first, last)
        self._tables: dict[bytes, RunTable] = {}
        self._sequence = first.first_sequence
        self._sources: list[_Source] = []
        self._target: Handle | None = None
        self._position = SEGMENT_HEADER_BYTES
        self._runs: list[list[int | bytes]] = []
        self._pieces: list[BytesLike] = []
        self._block_bytes = 0
        self._run_count = 0
        self._work: Iterator[int] = iter(())

    @property
    def _beside(self) -> str:
        return self.segment.data_path + ".new"

    def open(self) -> None:
        """Open the old files and begin the new one."""
        disk = self._disk
        for segment, keep in self._old:
            self._sources.append(_Source(disk, segment, keep))
        if disk.exists(self._beside):
            disk.unlink(self._beside)
        self._target = disk.create(self._beside)
        segment = self.segment
        header = build_segment_header(
            segment.generation,
            segment.position,
            segment.first_sequence,
            segment.created_at_ms,
            flags=SORTED_FLAG,
            end_position=segment.end_position,
        )
        disk.pwritev(self._target, [header], 0)
        self._work = self._rewrite()

    def step(self, budget_bytes: int) -> int:
        """Read on for about this many bytes; returns how many were read, 0 at the end."""
        read_bytes = 0
        for count in self._work:
            read_bytes += count
            if read_bytes >= budget_bytes:
                break
        return read_bytes

    def finish(self) -> Segment | None:
        """Put the new files in place, durably; None if nothing is left of the segment."""
        self._write_block()
        if not self._tables:
            return None
        assert self._target is not None
        self._disk.fdatasync(self._target)
        self.segment.rewritten(self._position, self._run_count)
        write_sealed_index(self._disk, self.segment, self._tables)
        self._disk.rename(self._beside, self.segment.data_path)
        self._disk.fsync_directory(os.path.dirname(self._beside))
        return self.segment

    def close(self) -> None:
        """Close the files, and remove what was begun and not finished."""
        for source in self._sources:
            self._disk.close(source.data)
            self._disk.close(source.index_handle)
        if self._target is not None:
            self._disk.close(self._target)
        self._sources, self._target = [], None
        if self._disk.exists(self._beside):
            self._disk.unlink(self._beside)

    # The walk.

    def _rewrite(self) -> Iterator[int]:
        """Write each partition's runs, segment after segment; yields how many bytes were read."""
        pages = merge(*(source.pages(number) for number, source in enumerate(self._sources)), key=itemgetter(0, 1))
        for key, group in groupby(pages, key=itemgetter(0)):
            found = [(self._sources[number], page) for _, number, page in group]
            keep = found[0][0].keep.get(key)
            if keep is None:
                # A partition of a living topic may be made again: what older segments hold of it must stay void.
                if not self._is_oldest:
                    self._add_note(key, RunKind.DELETE, -1, 0)
                continue
            self._note_state(key, min(page.truncated_to for _, page in found), keep.log_start)
            for source, page in found:
                yield from self._copy_page(source, page)

    def _copy_page(self, source: _Source, page: IndexPage) -> Iterator[int]:
        keep = source.keep[page.key]
        if page.base_offset > keep.last_offset or page.last_offset < keep.log_start:
            return
        table = source.index.read_page(self._disk, source.index_handle, page)
        for number in range(len(table)):
            entry = table[number]
            if entry.last_offset >= keep.log_start and entry.base_offset <= keep.last_offset:
                self._copy_run(source, page.key, entry, keep)
                yield entry.length

    def _note_state(self, key: bytes, truncated_to: int, log_start: int) -> None:
        """The runs without bytes that a reader of the data alone needs."""
        if truncated_to < INT64_MAX and not self._is_oldest:
            if truncated_to == 0:
                self._add_note(key, RunKind.LOG_START, log_start, log_start)
                return
            self._add_note(key, RunKind.TRUNCATE, truncated_to, -1)
        if log_start > 0:
            self._add_note(key, RunKind.LOG_START, log_start, -1)

    def _add_note(self, key: bytes, kind: int, base_offset: int, last_offset: int) -> None:
        self._runs.append([key, -1, base_offset, last_offset, -1, 0, 0, kind])

    def _copy_run(self, source: _Source, key: bytes, entry: RunEntry, keep: Keep) -> None:
        path = source.segment.data_path
        content = read_exactly(self._disk, source.data, entry.position, entry.length)
        if len(content) != entry.length:
            raise CorruptLogError(f"{path} ends early")
        last_offset = min(entry.last_offset, keep.last_offset)
        try:
            batches = _sound_batches(content, entry, last_offset)
        except (ProtocolError, CorruptLogError) as error:
            logger.error(  # noqa: TRY400
                "%s: damaged near byte %d, offsets %d to %d of a partition cannot be read: %s",
                path,
                entry.position,
                entry.base_offset,
                entry.last_offset,
                error,
                extra={"path": path, "position": entry.position, "error": str(error)},
            )
            self._carry_over(key, entry, last_offset, content)
            return
        flags = entry.flags & ~RunFlag.CLIPPED
        for pos, batch in batches:
            if keep.clean is None:
                self._add_batch(key, batch, memoryview(content)[pos : pos + batch.size_bytes], flags)
            else:
                cleaned = keep.clean(content, pos, batch)
                if cleaned is not None:
                    self._add_batch(key, batch, cleaned, flags | RunFlag.CLEANED)

    def _carry_over(self, key: bytes, entry: RunEntry, last_offset: int, content: bytes) -> None:
        """Copy a damaged run as it stands, in a block of its own.

        So the damage stays what it is, for those who look for it, and does not keep the other partitions of the segment
        from being compacted and given back.
        """
        self._write_block()
        flags = entry.flags | (RunFlag.CLIPPED if last_offset < entry.last_offset else 0)
        self._runs.append(
            [key, entry.leader_epoch, entry.base_offset, last_offset, entry.max_timestamp_ms, 0, len(content), flags]
        )
        self._pieces.append(content)
        self._block_bytes += len(content)
        self._write_block()

    def _add_batch(self, key: bytes, batch: BatchHeader, content: BytesLike, flags: int) -> None:
        run = self._runs[-1] if self._runs else None
        if (
            run is None
            or run[0] != key
            or run[1] != batch.leader_epoch
            or run[7] != flags
            # Inside a run there are gaps only where compaction has been: a read takes others for damage.
            or (run[3] != batch.base_offset - 1 and not flags & RunFlag.CLEANED)
            or int(run[6]) + len(content) > self._run_bytes
        ):
            if self._block_bytes >= _BLOCK_BYTES:
                self._write_block()
            run = [key, batch.leader_epoch, batch.base_offset, -1, -1, 0, 0, flags]
            self._runs.append(run)
        run[3] = batch.last_offset
        run[4] = max(int(run[4]), batch.max_timestamp_ms)
        run[6] = int(run[6]) + len(content)
        self._pieces.append(content)
        self._block_bytes += len(content)

    def _write_block(self) -> None:
        if not self._runs:
            return
        assert self._target is not None
        length = BLOCK_HEADER_BYTES + len(self._runs) * RUN_BYTES + self._block_bytes
        position = self._position + length - self._block_bytes
        packed = []
        for fields in self._runs:
            fields[5] = position
            position += int(fields[6])
            run = Run(*fields)  # type: ignore[arg-type]
            packed.append(run.pack())
            enter_run(self._tables, run)
        head = build_block_head(self._sequence, length, self.segment.created_at_ms, packed)
        self._disk.pwritev(self._target, [head, *(memoryview(piece) for piece in self._pieces)], self._position)
        self._run_count += len(packed)
        self._sequence += 1
        self._position += length
        self._runs, self._pieces, self._block_bytes = [], [], 0


def _sound_batches(content: bytes, entry: RunEntry, last_offset: int) -> list[tuple[int, BatchHeader]]:
    """The batches of a run up to an offset, with their places; ProtocolError or CorruptLogError if one is damaged."""
    found = []
    for pos, batch in iter_batches(content):
        verify_crc(content, pos, batch)
        if batch.base_offset < entry.base_offset:
            raise CorruptLogError(f"a batch outside its run at byte {entry.position + pos}")
        if batch.last_offset > last_offset:
            if last_offset == entry.last_offset and not entry.flags & RunFlag.CLIPPED:
                raise CorruptLogError(f"a batch beyond its run at {entry.position + pos}")
            break
        found.append((pos, batch))
    return found
