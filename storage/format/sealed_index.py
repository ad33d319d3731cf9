"""The index file of a sealed segment: run entries sorted by partition, in checked pages, with a directory of pages.

Only the directory (one record for each page: partition, offsets, timestamps, place) is held in memory, and only after
its first use. A lookup bisects it and reads one page of at most `PAGE_ENTRIES` entries, whose CRC is checked. The file
can always be rebuilt from the data file, which is done when it turns out to be damaged (CorruptIndexError).
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ottla.kproto.records.crc import value as crc32c
from ottla.storage.config import INT64_MAX
from ottla.storage.disk import Disk, Handle
from ottla.storage.errors import StorageError
from ottla.storage.format.block import FORMAT_VERSION
from ottla.storage.format.run_table import ENTRY_BYTES, RunTable

__all__ = [
    "INDEX_HEADER_BYTES",
    "PAGE_ENTRIES",
    "CorruptIndexError",
    "IndexPage",
    "SealedIndex",
    "build_sealed_index",
    "sealed_data_length",
]

INDEX_MAGIC = b"OtIdxSea"
PAGE_ENTRIES = 512

# magic, format version, flags (0), generation, data file length, entries, pages, CRC of the page directory, …, CRC
_HEADER = struct.Struct(">8sHHIQQII20xI")
INDEX_HEADER_BYTES = _HEADER.size
_HEADER_CRC_POS = INDEX_HEADER_BYTES - 4

# key, base offset, last offset, cumulative max timestamp, truncated to, first entry, entries, bytes, CRC of the entries
_PAGE = struct.Struct(">20sqqqqIIQI")
PAGE_BYTES = _PAGE.size


class CorruptIndexError(StorageError):
    """An index file is missing, damaged, or belongs to another version of its data file: rebuild it."""


class IndexPage(NamedTuple):
    """A page's record in the directory. `size_bytes` counts the bytes of the runs in the data file.

    A page without entries stands for a partition that was only truncated in this segment.
    """

    key: bytes
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    truncated_to: int
    first_entry: int
    entry_count: int
    size_bytes: int
    crc: int


def sealed_data_length(disk: Disk, handle: Handle, generation: int) -> int | None:
    """The length of the data file for which an index file was made; None if it is not a sound one of this
    generation.
    """
    try:
        head = _read(disk, handle, 0, INDEX_HEADER_BYTES)
    except CorruptIndexError:
        return None
    magic, version, _, index_generation, length, *_, crc = _HEADER.unpack(head)
    is_sound = magic == INDEX_MAGIC and version == FORMAT_VERSION and crc == crc32c(head[:_HEADER_CRC_POS])
    return int(length) if is_sound and index_generation == generation else None


def build_sealed_index(generation: int, data_length: int, tables: Iterable[tuple[bytes, RunTable]]) -> list[bytes]:
    """Return the pieces of an index file from (key, table) pairs in the order of their keys."""
    entries: list[bytes] = []
    pages: list[bytes] = []
    entry_count = 0
    for key, table in tables:
        for page, data in _pages_of(key, table, entry_count):
            pages.append(_PAGE.pack(*page))
            entries.append(data)
            entry_count += page.entry_count
    directory = b"".join(pages)
    header = _HEADER.pack(
        INDEX_MAGIC, FORMAT_VERSION, 0, generation, data_length, entry_count, len(pages), crc32c(directory), 0
    )[:_HEADER_CRC_POS]
    return [header + struct.pack(">I", crc32c(header)), *entries, directory]


def _pages_of(key: bytes, table: RunTable, first_entry: int) -> Iterator[tuple[IndexPage, bytes]]:
    count = len(table)
    if count == 0 and table.truncated_to == INT64_MAX:
        return
    for first in range(0, max(count, 1), PAGE_ENTRIES):
        data = bytes(table.data[first * ENTRY_BYTES : (first + PAGE_ENTRIES) * ENTRY_BYTES])
        part = RunTable(data)
        size_bytes = table.size_bytes if count <= PAGE_ENTRIES else part.sum_of_lengths()
        offsets = (part.base_offset, part.last_offset, part.max_timestamp_ms) if data else (INT64_MAX, -1, -1)
        yield (
            IndexPage(key, *offsets, table.truncated_to, first_entry + first, len(part), size_bytes, crc32c(data)),
            data,
        )


class SealedIndex:
    """The directory of a sealed segment's index; pages are read from the file when they are asked for.

    The constructor and `read_page` wait for the disk: call them in a worker thread.
    """

    __slots__ = ("_directory", "_marks", "entry_count", "page_count")

    def __init__(self, disk: Disk, handle: Handle, generation: int, data_length: int) -> None:
        """Read and check header and directory; CorruptIndexError unless they are of this version of the data."""
        head = _read(disk, handle, 0, INDEX_HEADER_BYTES)
        magic, version, _, index_generation, length, self.entry_count, self.page_count, directory_crc, crc = (
            _HEADER.unpack(head)
        )
        if magic != INDEX_MAGIC or version != FORMAT_VERSION or crc != crc32c(head[:_HEADER_CRC_POS]):
            raise CorruptIndexError("not an index of a sealed segment")
        if index_generation != generation or length != data_length:
            raise CorruptIndexError("the index belongs to another version of the data file")
        start = INDEX_HEADER_BYTES + self.entry_count * ENTRY_BYTES
        self._directory = _read(disk, handle, start, self.page_count * PAGE_BYTES)
        if crc32c(self._directory) != directory_crc:
            raise CorruptIndexError("the directory of pages is damaged")
        self._marks: tuple[tuple[bytes, int], ...] | None = None

    @property
    def marks(self) -> Sequence[tuple[bytes, int]]:
        """The partitions of which older segments are void from an offset on, each with that offset.

        Found once: a rewrite asks all segments that follow, which are many and have next to none.
        """
        if self._marks is None:
            marks = ((page.key, page.truncated_to) for page in self.all_pages())
            self._marks = tuple(mark for mark in marks if mark[1] < INT64_MAX)
        return self._marks

    def page(self, index: int) -> IndexPage:
        """The page record at a place in the directory."""
        return IndexPage._make(_PAGE.unpack_from(self._directory, index * PAGE_BYTES))

    def find_pages(self, key: bytes) -> range:
        """The places of a partition's pages; empty if the segment holds nothing of it."""
        return range(self._bisect(key), self._bisect(key + b"\xff"))

    def find_offset(self, pages: range, offset: int) -> int:
        """The first of a partition's pages whose last offset is at least this; pages.stop if there is none."""
        return bisect_left(pages, offset, key=lambda index: self.page(index).last_offset) + pages.start

    def find_timestamp(self, pages: range, timestamp_ms: int) -> int:
        """The first of a partition's pages that holds a timestamp of at least this; pages.stop if there is none."""
        return bisect_left(pages, timestamp_ms, key=lambda index: self.page(index).max_timestamp_ms) + pages.start

    def all_pages(self) -> Iterator[IndexPage]:
        """Every page, in the order of keys and offsets."""
        return map(IndexPage._make, _PAGE.iter_unpack(self._directory))

    def read_page(self, disk: Disk, handle: Handle, page: IndexPage) -> RunTable:
        """Read and check one page's entries."""
        data = _read(disk, handle, INDEX_HEADER_BYTES + page.first_entry * ENTRY_BYTES, page.entry_count * ENTRY_BYTES)
        if crc32c(data) != page.crc:
            raise CorruptIndexError("a page of entries is damaged")
        return RunTable(data, page.size_bytes, page.truncated_to)

    def _bisect(self, prefix: bytes) -> int:
        directory, width = self._directory, len(prefix)
        low, high = 0, self.page_count
        while low < high:
            middle = (low + high) >> 1
            start = middle * PAGE_BYTES
            if directory[start : start + width] < prefix:
                low = middle + 1
            else:
                high = middle
        return low


def _read(disk: Disk, handle: Handle, position: int, length: int) -> bytes:
    buffer = bytearray(length)
    if length and disk.preadv(handle, [memoryview(buffer)], position) != length:
        raise CorruptIndexError("the index file ends early")
    return bytes(buffer)
