"""One partition's runs in one segment, packed into 44 bytes each, and searched by bisection.

The same bytes are in memory for the active segment and in the index file of a sealed one, so sealing just joins tables,
and reading just slices the file. Offsets ascend. The maximum timestamp is cumulative: that of the run and all runs
before it in the table, which makes timestamps bisectable too.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.storage.config import INT64_MAX
from ottla.storage.format.block import Run, RunFlag, RunKind

__all__ = ["ENTRY_BYTES", "RunEntry", "RunTable", "enter_run", "voided_from"]

# leader epoch, base offset, last offset, cumulative max timestamp, position, length, flags
_ENTRY = struct.Struct(">iqqqQII")
ENTRY_BYTES = _ENTRY.size
_INT64 = struct.Struct(">q")
_BASE_POS = 4
_LAST_POS = 12
_TIMESTAMP_POS = 20
_offset_at = _INT64.unpack_from


class RunEntry(NamedTuple):
    """A data run: its offsets, and where its batches are in the segment's data file."""

    leader_epoch: int
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    position: int
    length: int
    flags: int


class RunTable:
    """The runs of one partition in one segment, in the order of their offsets, which is the order of writing.

    `truncated_to` is the least offset to which the partition was truncated while this segment was written: runs of
    older segments at and beyond it are void. A table of a sealed segment is never changed.
    """

    __slots__ = ("data", "size_bytes", "truncated_to")

    def __init__(
        self, data: bytearray | bytes | memoryview = b"", size_bytes: int = 0, truncated_to: int = INT64_MAX
    ) -> None:
        self.data = data
        self.size_bytes = size_bytes
        self.truncated_to = truncated_to

    def __len__(self) -> int:
        return len(self.data) // ENTRY_BYTES

    def __getitem__(self, index: int) -> RunEntry:
        if index < 0:
            index += len(self)
        return RunEntry._make(_ENTRY.unpack_from(self.data, index * ENTRY_BYTES))

    def append(
        self,
        leader_epoch: int,
        base_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        position: int,
        length: int,
        flags: int,
    ) -> None:
        """Add a run that follows all others."""
        data = self.data
        if not isinstance(data, bytearray):
            self.data = data = bytearray(data)
        if data:
            before = _INT64.unpack_from(data, len(data) - ENTRY_BYTES + _TIMESTAMP_POS)[0]
            if before > max_timestamp_ms:
                max_timestamp_ms = before
        data += _ENTRY.pack(leader_epoch, base_offset, last_offset, max_timestamp_ms, position, length, flags)
        self.size_bytes += length

    @property
    def base_offset(self) -> int:
        """The first run's base offset; the table must not be empty."""
        return int(_INT64.unpack_from(self.data, _BASE_POS)[0])

    @property
    def last_offset(self) -> int:
        """The last run's last offset; the table must not be empty."""
        return int(_INT64.unpack_from(self.data, len(self.data) - ENTRY_BYTES + _LAST_POS)[0])

    @property
    def max_timestamp_ms(self) -> int:
        """The largest timestamp in the table, which must not be empty."""
        return int(_INT64.unpack_from(self.data, len(self.data) - ENTRY_BYTES + _TIMESTAMP_POS)[0])

    def find_offset(self, offset: int) -> int:
        """The index of the first run whose last offset is at least this; len(self) if there is none."""
        return self._first_at_least(_LAST_POS, offset)

    def find_timestamp(self, timestamp_ms: int) -> int:
        """The index of the first run that holds a timestamp of at least this; len(self) if there is none."""
        return self._first_at_least(_TIMESTAMP_POS, timestamp_ms)

    def truncate(self, offset: int) -> None:
        """Void everything at and beyond an offset, here and in older segments.

        A run that extends across the offset keeps its bytes and gets a smaller last offset: readers stop there.
        """
        self.truncated_to = min(self.truncated_to, offset)
        count = self._first_at_least(_BASE_POS, offset)
        data = self.data
        if count * ENTRY_BYTES < len(data) or (count and self[count - 1].last_offset >= offset):
            kept = bytearray(data[: count * ENTRY_BYTES])
            if count and self[count - 1].last_offset >= offset:
                start = (count - 1) * ENTRY_BYTES
                _INT64.pack_into(kept, start + _LAST_POS, offset - 1)
                kept[start + ENTRY_BYTES - 1] |= RunFlag.CLIPPED
            self.data = kept
            self.size_bytes = self.sum_of_lengths()

    def sum_of_lengths(self) -> int:
        """The bytes of the runs, counted."""
        return self.bytes_of(0, len(self))

    def bytes_of(self, first: int, last: int) -> int:
        """The bytes of the runs at these indexes, without the last."""
        part = self.data[first * ENTRY_BYTES : last * ENTRY_BYTES]
        return sum(entry[5] for entry in _ENTRY.iter_unpack(part))

    def _first_at_least(self, field_pos: int, value: int) -> int:
        data = self.data
        low, high = 0, len(data) // ENTRY_BYTES
        while low < high:
            middle = (low + high) >> 1
            if _offset_at(data, middle * ENTRY_BYTES + field_pos)[0] < value:
                low = middle + 1
            else:
                high = middle
        return low


def voided_from(kind: int, base_offset: int, last_offset: int) -> int:
    """The offset from which a run without bytes makes void what was written before it; INT64_MAX if nothing."""
    if kind == RunKind.TRUNCATE:
        return base_offset
    return 0 if kind == RunKind.DELETE or base_offset == last_offset else INT64_MAX


def enter_run(tables: dict[bytes, RunTable], run: Run) -> None:
    """Enter a block's run in the tables of its segment, by log key, as a restart or a rebuild does."""
    is_data = run.kind == RunKind.DATA
    offset = INT64_MAX if is_data else voided_from(run.kind, run.base_offset, run.last_offset)
    if not is_data and offset == INT64_MAX:
        return
    table = tables.get(run.key)
    if table is None:
        table = tables[run.key] = RunTable()
    if is_data:
        table.append(*run[1:])
    else:
        table.truncate(offset)
