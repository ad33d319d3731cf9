"""Reading a sealed segment from its first byte to its last, and saying where it is not sound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches, verify_crc
from ottla.storage.format.block import Run, RunFlag, RunKind
from ottla.storage.format.block_scan import read_exactly, scan_heads
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES, parse_segment_header

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle
    from ottla.storage.store.segment import Segment

__all__ = ["SegmentCheck"]

# How much is checked without a pause: other threads wait for it.
_PART_BYTES = 32_768


class _Found(NamedTuple):
    """After this many more bytes: what is wrong at a position, nothing if the message is empty."""

    read_bytes: int
    position: int = -1
    message: str = ""


class SegmentCheck:
    """One segment's check, in steps that block and are run in a worker thread. Its caller keeps the segment pinned."""

    __slots__ = ("_disk", "_handle", "_name", "_segment", "_work")

    def __init__(self, disk: Disk, segment: Segment) -> None:
        self._disk = disk
        self._segment = segment
        self._name = os.path.basename(segment.data_path)
        self._handle: Handle | None = None
        self._work: Iterator[_Found] = self._walk()

    def step(self, budget_bytes: int) -> tuple[int, list[tuple[int, str]]]:
        """Read on for about this many bytes: how many were read, 0 at the end; and the damage, as byte and sentence.

        OSError if the file cannot be read.
        """
        read_bytes, damage = 0, []
        for found in self._work:
            read_bytes += found.read_bytes
            if found.message:
                damage.append((found.position, found.message))
            if read_bytes >= budget_bytes:
                break
        return read_bytes, damage

    def close(self) -> None:
        """Give the descriptor back."""
        if self._handle is not None:
            self._disk.close(self._handle)
            self._handle = None

    def _walk(self) -> Iterator[_Found]:
        disk, segment = self._disk, self._segment
        handle = self._handle = disk.open_read(segment.data_path)
        end = segment.size_bytes
        if parse_segment_header(read_exactly(disk, handle, 0, SEGMENT_HEADER_BYTES)) is None:
            yield _Found(SEGMENT_HEADER_BYTES, 0, f"{self._name}: the header is damaged")
        position = SEGMENT_HEADER_BYTES
        for head in scan_heads(disk, handle, end, skip_damage=True):
            if head.position != position:
                yield self._unsound(position, head.position)
            yield _Found(head.header.head_bytes)
            for run in head.runs:
                if run.kind == RunKind.DATA:
                    yield from self._check_run(handle, run)
            position = head.end
        if position < end:
            yield self._unsound(position, end)

    def _unsound(self, start: int, end: int) -> _Found:
        return _Found(end - start, start, f"{self._name}: no sound block from byte {start} to {end}")

    def _check_run(self, handle: Handle, run: Run) -> Iterator[_Found]:
        """Every batch: its checksum, its place, its epoch. Nothing is said of what follows damage in the run."""
        content = read_exactly(self._disk, handle, run.position, run.length)
        pos = checked = 0
        expected = run.base_offset
        try:
            for pos, batch in iter_batches(content):
                verify_crc(content, pos, batch)
                if batch.last_offset > run.last_offset and run.flags & RunFlag.CLIPPED:
                    break
                is_dense = not run.flags & RunFlag.CLEANED
                is_in_place = batch.base_offset == expected or (batch.base_offset > expected and not is_dense)
                if not is_in_place or batch.last_offset > run.last_offset or batch.leader_epoch != run.leader_epoch:
                    yield self._damaged(run, pos, f"a batch at offset {batch.base_offset} is not in its place")
                    return
                expected = batch.next_offset
                if pos - checked >= _PART_BYTES:
                    yield _Found(pos - checked)
                    checked = pos
        except ProtocolError as error:
            yield self._damaged(run, pos, str(error))
            return
        if len(content) != run.length:
            yield self._damaged(run, len(content), "the file ends here")
            return
        yield _Found(run.length - checked)

    def _damaged(self, run: Run, pos: int, what: str) -> _Found:
        position = run.position + pos
        return _Found(run.length, position, f"{self._name} is damaged at byte {position}: {what}")
