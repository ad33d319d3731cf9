"""A segment: one data file with its index, which many partitions share.

Only the last segment of a store is written to. While its runs are in memory (`tables`) they are searched there; once it
is sealed, they are searched through its index file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from ottla.storage.format.run_table import RunTable
from ottla.storage.format.sealed_index import SealedIndex
from ottla.storage.format.segment_header import NO_BOOT, SEGMENT_HEADER_BYTES, SORTED_FLAG, SegmentHeader, segment_name
from ottla.storage.store.summed_runs import SummedRuns

__all__ = ["Segment", "pinned"]


class Segment:
    """What a running store knows of one segment. Others read its fields; only its methods change them.

    `position` names it: the bytes of all segments before it, at the time it was begun. A rewritten one stands for all
    that began before `end_position`, and `created_at_ms` is that of the oldest. `written_at_ms` is when its data file
    was written to at last. `tables` holds the runs of an unsealed segment by log key, and is None for a sealed one;
    `version` rises when runs are taken away from `tables`.
    `pending_index` are the run records that wait for a checkpoint to add them to the index file, which by then has
    `index_length` bytes with the CRC-32C `index_crc`. `index` is the index of a sealed segment once it was loaded.

    `summed` are the runs of its data file that need not be read to know that they are sound.

    `is_lost` says that the data file is gone, or a part of its end: `size_bytes` is what it was. `listed_bytes` is what
    the store's list says of it, 0 if it is not listed.

    A reader of its files keeps it pinned. A doomed segment's files are removed when the last pin is gone.
    """

    __slots__ = (
        "_pins",
        "_remove",
        "boot_tag",
        "created_at_ms",
        "data_path",
        "directory",
        "end_position",
        "first_sequence",
        "generation",
        "index",
        "index_crc",
        "index_length",
        "index_path",
        "is_lost",
        "is_sorted",
        "listed_bytes",
        "pending_index",
        "position",
        "run_count",
        "size_bytes",
        "summed",
        "tables",
        "version",
        "written_at_ms",
    )

    def __init__(self, directory: str, position: int, generation: int = 0) -> None:
        self.directory = directory
        self.position = position
        self.generation = generation
        path = os.path.join(directory, segment_name(position, generation))
        self.data_path = f"{path}.data"
        self.index_path = f"{path}.index"
        self.is_lost = False
        self.listed_bytes = 0
        self.is_sorted = False
        self.end_position = 0
        self.boot_tag = NO_BOOT
        self.first_sequence = 0
        self.created_at_ms = 0
        self.written_at_ms = 0
        self.size_bytes = 0
        self.run_count = 0
        self.tables: dict[bytes, RunTable] | None = None
        self.index: SealedIndex | None = None
        self.version = 0
        self.summed = SummedRuns()
        self.pending_index = bytearray()
        self.index_length = 0
        self.index_crc = 0
        self._pins = 0
        self._remove: Callable[[Segment], None] | None = None

    def __repr__(self) -> str:
        return f"<Segment {self.data_path}, {self.size_bytes} bytes>"

    @property
    def next_position(self) -> int:
        """Where the segment after it begins, or would: a rewritten one takes the room of what it stands for."""
        return self.end_position or self.position + self.size_bytes

    @property
    def is_sealed(self) -> bool:
        return self.tables is None

    def table(self, key: bytes) -> RunTable:
        """The partition's runs in this unsealed segment, made on first use."""
        assert self.tables is not None, "a sealed segment takes no runs"
        table = self.tables.get(key)
        if table is None:
            table = self.tables[key] = RunTable()
        return table

    # How it comes to be.

    def begin(self, first_sequence: int, created_at_ms: int, boot_tag: bytes = NO_BOOT) -> None:
        """It is a new file, with nothing but a header so far."""
        self.boot_tag = boot_tag
        self.first_sequence = first_sequence
        self.created_at_ms = created_at_ms
        self.written_at_ms = created_at_ms
        self.size_bytes = SEGMENT_HEADER_BYTES
        self.tables = {}

    def adopt_header(self, header: SegmentHeader) -> None:
        """Take over what the file says of itself."""
        self.is_sorted = bool(header.flags & SORTED_FLAG)
        self.end_position = header.end_position
        self.first_sequence = header.first_sequence
        self.created_at_ms = header.created_at_ms
        self.boot_tag = header.boot_tag

    def expect(self, size_bytes: int) -> None:
        """The store's list says that its data file has this length."""
        self.listed_bytes = size_bytes

    def lost(self, size_bytes: int, end_position: int) -> None:
        """Its data file, which had this size and stood for this range, is gone or too short. It counts as sealed."""
        self.is_lost = True
        self.size_bytes = size_bytes
        self.end_position = end_position

    def found(self, size_bytes: int) -> None:
        """It is a file of this size, and sealed as far as is known yet."""
        self.size_bytes = size_bytes

    def restore_written_at(self, time_ms: int) -> None:
        """The disk says that its data file was written to at this time."""
        self.written_at_ms = time_ms

    def reopen(self) -> None:
        """Recovery fills its tables, as it may be written to."""
        self.tables = {}

    def restore_index(self, run_count: int, index_length: int, index_crc: int) -> None:
        """The runs of its index file were entered in its tables."""
        self.run_count = run_count
        self.index_length = index_length
        self.index_crc = index_crc

    def stand_for(self, first: Segment, last: Segment) -> None:
        """It is written in place of segments that follow each other, sorted by partition."""
        self.first_sequence = first.first_sequence
        self.created_at_ms = first.created_at_ms
        self.written_at_ms = last.written_at_ms
        self.end_position = last.next_position
        self.is_sorted = True

    def rewritten(self, size_bytes: int, run_count: int) -> None:
        """It is a finished rewrite of other segments."""
        self.size_bytes = size_bytes
        self.run_count = run_count

    # How it grows and is sealed.

    def extend(self, size_bytes: int, runs: list[bytes], written_at_ms: int) -> None:
        """A block with these run records is written at its end."""
        self.size_bytes += size_bytes
        self.written_at_ms = written_at_ms
        self.run_count += len(runs)
        self.pending_index += b"".join(runs)

    def note_runs(self, runs: list[bytes]) -> None:
        """Keep the run records of a block for the index file."""
        self.run_count += len(runs)
        self.pending_index += b"".join(runs)

    def truncate_table(self, key: bytes, offset: int) -> None:
        """Void a partition's runs at and beyond an offset, here and in older segments."""
        self.table(key).truncate(offset)
        self.version += 1

    def indexed(self, count: int, index_length: int, index_crc: int) -> None:
        """The first `count` bytes of `pending_index` are in the index file, which has this length now."""
        del self.pending_index[:count]
        self.index_length = index_length
        self.index_crc = index_crc

    def sealed(self) -> None:
        """Its index file is written: it takes nothing more."""
        assert self.tables is not None
        self.tables = None
        self.pending_index = bytearray()

    def remember_index(self, index: SealedIndex | None) -> None:
        """Keep what was loaded of its index file; None where it must be loaded again."""
        self.index = index

    # Who reads it, and its end.

    def pin(self) -> None:
        """Begin to use its files; `unpin` ends it."""
        self._pins += 1

    def unpin(self) -> None:
        """End a use of its files. The last user of a doomed segment has its files removed."""
        self._pins -= 1
        assert self._pins >= 0
        if not self._pins and self._remove is not None:
            self._remove(self)

    @property
    def is_doomed(self) -> bool:
        """Whether its files wait for the last user to be removed: what can be left off is, for the room."""
        return self._remove is not None

    def doom(self, remove: Callable[[Segment], None]) -> None:
        """It is no longer part of its store: `remove` its files as soon as nobody uses them."""
        assert self._remove is None
        self._remove = remove
        if not self._pins:
            remove(self)


@contextmanager
def pinned(segments: Iterable[Segment]) -> Iterator[None]:
    """Keep the files of segments there while they are used."""
    held = list(segments)
    for segment in held:
        segment.pin()
    try:
        yield
    finally:
        for segment in held:
            segment.unpin()
