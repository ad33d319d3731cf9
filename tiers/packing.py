"""Divides batches into runs and parts, as they go into the objects of an upload. Nothing here awaits."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import BatchHeader, crc_matches, iter_batches
from ottla.kproto.records.crc import value as crc_of
from ottla.storage.errors import CorruptLogError
from ottla.tiers.partition_index import Run

__all__ = ["PART_BYTES", "Packer"]

PART_BYTES: Final = 16 * 1_048_576
"""The size of a part; a single larger batch makes a larger one."""

_RUN_BYTES: Final = 262_144


class Packer:
    """Takes the batches of one partition after the other, and gives out parts when they are full.

    It makes the same parts of the same batches each time, however they come. `runs` are those of the partition that is
    being packed.
    """

    __slots__ = ("_content", "_part", "_part_bytes", "_run", "_run_at", "_run_offset", "full", "runs")

    def __init__(self, part_bytes: int = PART_BYTES) -> None:
        self._part_bytes = part_bytes
        self._part = 0
        self._content = bytearray()
        self._run: list[BatchHeader] = []
        self._run_at = 0
        self._run_offset = 0
        self.runs: list[Run] = []
        #: Parts that are full and wait to be taken, by their numbers.
        self.full: list[tuple[int, bytearray]] = []

    def add(self, pieces: Iterable[memoryview], offset: int, next_offset: int, end_offset: int) -> None:
        """Whole batches with offsets in [offset, next_offset): those below `end_offset` are packed.

        The partition's first batch may begin before `offset`: it goes as a whole. Raises CorruptLogError for a batch
        that does not have its checksum, or lies across one of the offsets: nothing damaged is uploaded.
        """
        for piece in pieces:
            try:
                for position, header in iter_batches(piece):
                    if end_offset <= header.base_offset < next_offset:
                        return
                    self._require_between(header, offset, min(next_offset, end_offset))
                    if not crc_matches(piece, position, header):
                        raise CorruptLogError(f"the batch of offset {header.base_offset} does not have its checksum")
                    batch = piece[position : position + header.size_bytes]
                    self._add_batch(batch, header, max(offset, header.base_offset))
                    offset = header.next_offset
            except ProtocolError as error:
                raise CorruptLogError(f"a batch at or beyond offset {offset} is damaged: {error}") from error

    def _require_between(self, header: BatchHeader, offset: int, end_offset: int) -> None:
        is_first = not self.runs and not self._run and header.next_offset > offset
        if (header.base_offset < offset and not is_first) or header.next_offset > end_offset:
            raise CorruptLogError(f"a batch of offset {header.base_offset} lies across {offset} or {end_offset}")

    def end_partition(self) -> list[Run]:
        """The partition is complete: its runs. The next batch is another one's."""
        self._end_run()
        runs, self.runs = self.runs, []
        return runs

    def end(self) -> None:
        """All partitions are complete, and so is the last part."""
        assert not self._run
        if self._content:
            self._end_part()

    def _add_batch(self, view: memoryview, header: BatchHeader, offset: int) -> None:
        run = self._run
        run_bytes = len(self._content) - self._run_at
        if run and (run_bytes + len(view) > _RUN_BYTES or run[0].leader_epoch != header.leader_epoch):
            self._end_run()
        if self._content and len(self._content) + len(view) > self._part_bytes:
            self._end_run()
            self._end_part()
        if not self._run:
            self._run_at = len(self._content)
            self._run_offset = offset
        self._content += view
        self._run.append(header)

    def _end_run(self) -> None:
        run = self._run
        if not run:
            return
        length = len(self._content) - self._run_at
        content = memoryview(self._content)[self._run_at :]
        times = max(header.max_timestamp_ms for header in run)
        crc = crc_of(content)
        content.release()
        self.runs.append(
            Run(
                self._run_offset,
                run[-1].last_offset,
                times,
                run[0].leader_epoch,
                self._part,
                self._run_at,
                length,
                crc,
            )
        )
        self._run = []
        self._run_at = len(self._content)

    def _end_part(self) -> None:
        self.full.append((self._part, self._content))
        self._part += 1
        self._content = bytearray()
        self._run_at = 0
