"""Writing a sealed segment anew: sorted by partition, without what is dead, compacted where that is asked.

The new files stand beside the old ones under names of their own; the rename of the data file is the moment of the
change. What is abandoned before that leaves only files which the next start removes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.kproto.records import BatchHeader, BytesLike, iter_batches, verify_crc
from ottla.storage.block import BLOCK_HEADER_BYTES, RUN_BYTES, Run, RunFlag, RunKind, build_block_head
from ottla.storage.block_scan import read_exactly
from ottla.storage.config import INT64_MAX
from ottla.storage.errors import CorruptLogError
from ottla.storage.index_files import load_index, write_sealed_index
from ottla.storage.run_table import RunEntry, RunTable, enter_run
from ottla.storage.segment import SEGMENT_HEADER_BYTES, SORTED_FLAG, Segment, build_segment_header

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle
    from ottla.storage.sealed_index import IndexPage, SealedIndex

__all__ = ["Keep", "SegmentRewrite"]

_BLOCK_BYTES = 4 * 1_048_576
CleanBatch = Callable[[BytesLike, int, BatchHeader], BytesLike | None]


@dataclass(slots=True, frozen=True)
class Keep:
    """What stays of one partition in the segment: batches of runs that reach into [`log_start`, `last_offset`].

    `clean` sees each of them in order and returns what shall stand in its place, or None.
    """

    log_start: int
    last_offset: int = INT64_MAX
    clean: CleanBatch | None = None


class SegmentRewrite:
    """One rewrite, in steps that block and are run in a worker thread.

    `keep` names every partition that lives; all others are dropped. `is_oldest` says that no older segment is left,
    so that truncations need not be remembered. Usage: `open`, `step` until it returns False, `finish`, then `close`.
    """

    def __init__(
        self, disk: Disk, segment: Segment, keep: Mapping[bytes, Keep], *, run_bytes: int, is_oldest: bool
    ) -> None:
        self._disk = disk
        self._old = segment
        self._keep = keep
        self._run_bytes = run_bytes
        self._is_oldest = is_oldest
        self.segment = Segment(segment.directory, segment.position, segment.generation + 1)
        self.segment.first_sequence = segment.first_sequence
        self.segment.created_at_ms = segment.created_at_ms
        self.segment.is_sorted = True
        self._tables: dict[bytes, RunTable] = {}
        self._sequence = segment.first_sequence
        self._source: Handle | None = None
        self._index_handle: Handle | None = None
        self._target: Handle | None = None
        self._position = SEGMENT_HEADER_BYTES
        self._runs: list[list[int | bytes]] = []
        self._pieces: list[BytesLike] = []
        self._block_bytes = 0
        self._work: Iterator[int] = iter(())

    @property
    def _beside(self) -> str:
        return self.segment.data_path + ".new"

    def open(self) -> None:
        """Open the old files and begin the new one."""
        disk = self._disk
        index = load_index(disk, self._old)
        self._source = disk.open_read(self._old.data_path)
        self._index_handle = disk.open_read(self._old.index_path)
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
            end_position=segment.position + 1,
        )
        disk.pwritev(self._target, [header], 0)
        self._work = self._rewrite(index)

    def step(self, budget_bytes: int) -> int:
        """Read on for about so many bytes; returns how many were read, 0 at the end."""
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
        self.segment.size_bytes = self._position
        write_sealed_index(self._disk, self.segment, self._tables)
        self._disk.rename(self._beside, self.segment.data_path)
        self._disk.fsync_directory(os.path.dirname(self._beside))
        return self.segment

    def close(self) -> None:
        """Close the files, and remove what was begun and not finished."""
        for handle in (self._source, self._index_handle, self._target):
            if handle is not None:
                self._disk.close(handle)
        self._source = self._index_handle = self._target = None
        if self._disk.exists(self._beside):
            self._disk.unlink(self._beside)

    # The walk.

    def _rewrite(self, index: SealedIndex) -> Iterator[int]:
        key = b""
        for page in index.all_pages():
            keep = self._keep.get(page.key)
            if keep is None:
                continue
            if page.key != key:
                key = page.key
                self._note_state(page, keep)
            if page.base_offset > keep.last_offset or page.last_offset < keep.log_start:
                continue
            assert self._index_handle is not None
            table = index.read_page(self._disk, self._index_handle, page)
            for number in range(len(table)):
                entry = table[number]
                if entry.last_offset >= keep.log_start and entry.base_offset <= keep.last_offset:
                    self._copy_run(key, entry, keep)
                    yield entry.length

    def _note_state(self, page: IndexPage, keep: Keep) -> None:
        """The runs without bytes that a reader of the data alone needs."""
        if page.truncated_to < INT64_MAX and not self._is_oldest:
            if page.truncated_to == 0:
                self._add_note(page.key, RunKind.LOG_START, keep.log_start, keep.log_start)
                return
            self._add_note(page.key, RunKind.TRUNCATE, page.truncated_to, -1)
        if keep.log_start > 0:
            self._add_note(page.key, RunKind.LOG_START, keep.log_start, -1)

    def _add_note(self, key: bytes, kind: int, base_offset: int, last_offset: int) -> None:
        self._runs.append([key, -1, base_offset, last_offset, -1, 0, 0, kind])

    def _copy_run(self, key: bytes, entry: RunEntry, keep: Keep) -> None:
        assert self._source is not None
        content = read_exactly(self._disk, self._source, entry.position, entry.length)
        if len(content) != entry.length:
            raise CorruptLogError(f"{self._old.data_path} ends early")
        last_offset = min(entry.last_offset, keep.last_offset)
        flags = entry.flags & ~RunFlag.CLIPPED
        for pos, batch in iter_batches(content):
            verify_crc(content, pos, batch)
            if batch.base_offset < entry.base_offset:
                raise CorruptLogError(f"{self._old.data_path}: a batch outside its run at byte {entry.position + pos}")
            if batch.last_offset > last_offset:
                if last_offset == entry.last_offset and not entry.flags & RunFlag.CLIPPED:
                    raise CorruptLogError(f"{self._old.data_path}: a batch beyond its run at {entry.position + pos}")
                break
            if keep.clean is None:
                self._add_batch(key, batch, memoryview(content)[pos : pos + batch.size_bytes], flags)
            else:
                cleaned = keep.clean(content, pos, batch)
                if cleaned is not None:
                    self._add_batch(key, batch, cleaned, flags | RunFlag.CLEANED)

    def _add_batch(self, key: bytes, batch: BatchHeader, content: BytesLike, flags: int) -> None:
        run = self._runs[-1] if self._runs else None
        if (
            run is None
            or run[0] != key
            or run[1] != batch.leader_epoch
            or run[7] != flags
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
        self.segment.run_count += len(packed)
        self._sequence += 1
        self._position += length
        self._runs, self._pieces, self._block_bytes = [], [], 0
