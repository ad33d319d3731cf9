"""Reading a store's files directly: one partition's part of one segment, by any process that sees the file.

`ottla.storage.inspect.store_view` says which parts there are. Everything here blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.records import find_timestamp as find_timestamp_in
from ottla.kproto.records import iter_batches
from ottla.storage.disk import RealDisk
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import RunFlag
from ottla.storage.format.run_table import ENTRY_BYTES, RunEntry, RunTable
from ottla.storage.format.sealed_index import CorruptIndexError, SealedIndex

if TYPE_CHECKING:
    from ottla.storage.disk import Disk, Handle

__all__ = ["Piece", "RealDisk", "find_timestamp", "read_piece", "split_piece"]

READ_BYTES: Final = 8 * 1024 * 1024
"""How much is read at once, unless a single run is larger."""

SEARCH_BYTES: Final = 256 * 1024
"""The same, where a single record is looked for."""


class Piece(NamedTuple):
    """A partition's part of one segment: the pages of a sealed index, or run entries if there is none.

    Only its batches up to `last_offset` count. `size_bytes` is about what they take in the data file, and no record has
    a time after `max_timestamp_ms`.
    """

    data_path: str
    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp_ms: int
    index_path: str = ""
    generation: int = 0
    data_length: int = 0
    pages: range = range(0)
    runs: bytes = b""


def split_piece(disk: Disk, piece: Piece, size_bytes: int) -> list[Piece]:
    """Split a piece into parts of about this size, at the borders of its index's pages; OSError if a file is gone."""
    if not piece.index_path:
        return _split_runs(piece, size_bytes)
    if piece.size_bytes <= size_bytes or len(piece.pages) < 2:
        return [piece]
    handle = disk.open_read(piece.index_path)
    try:
        index = _index(disk, handle, piece)
    finally:
        disk.close(handle)
    parts: list[Piece] = []
    first, taken = piece.pages.start, 0
    for number in piece.pages:
        page = index.page(number)
        taken += page.size_bytes
        if taken >= size_bytes or number == piece.pages[-1]:
            last_offset = min(page.last_offset, piece.last_offset)
            base_offset = index.page(first).base_offset
            if base_offset <= last_offset:
                pages = range(first, number + 1)
                parts.append(
                    piece._replace(base_offset=base_offset, last_offset=last_offset, size_bytes=taken, pages=pages)
                )
            first, taken = number + 1, 0
    return parts


def _split_runs(piece: Piece, size_bytes: int) -> list[Piece]:
    table = RunTable(piece.runs)
    parts: list[Piece] = []
    first, taken = 0, 0
    for place in range(len(table)):
        entry = table[place]
        taken += entry.length
        if taken >= size_bytes or place == len(table) - 1:
            base_offset, last_offset = table[first].base_offset, min(entry.last_offset, piece.last_offset)
            if base_offset <= last_offset:
                runs = piece.runs[first * ENTRY_BYTES : (place + 1) * ENTRY_BYTES]
                parts.append(
                    piece._replace(base_offset=base_offset, last_offset=last_offset, size_bytes=taken, runs=runs)
                )
            first, taken = place + 1, 0
    return parts


def read_piece(
    disk: Disk, piece: Piece, start_offset: int, end_offset: int, *, only: int = 0, read_bytes: int = READ_BYTES
) -> Iterator[memoryview]:
    """Yield whole batches, in order, that hold the offsets in [`start_offset`, `end_offset`), several runs at once.

    With `only`, runs that have none of these flags are left out. Batches that a truncation has cut are left out as
    well. The CRCs of the batches are not checked. CorruptLogError if the file is shorter than its index says, or if the
    batches are not where it says; OSError if a file is gone.
    """
    handle = disk.open_read(piece.data_path)
    try:
        waiting: list[RunEntry] = []
        size = 0
        for entry in _entries(disk, piece):
            if entry.last_offset < start_offset or (only and not entry.flags & only):
                continue
            if entry.base_offset >= end_offset:
                break
            if waiting and (size + entry.length > read_bytes or entry.flags & RunFlag.CLIPPED):
                yield _read(disk, handle, piece, waiting, size)
                waiting, size = [], 0
            waiting.append(entry)
            size += entry.length
            if entry.flags & RunFlag.CLIPPED or entry.last_offset > piece.last_offset:
                yield _clipped(_read(disk, handle, piece, waiting, size), min(entry.last_offset, piece.last_offset))
                waiting, size = [], 0
        if waiting:
            yield _read(disk, handle, piece, waiting, size)
    finally:
        disk.close(handle)


def find_timestamp(disk: Disk, piece: Piece, timestamp_ms: int, start_offset: int) -> int | None:
    """The first offset at or beyond `start_offset` whose record's time is at least this; None if none has one.

    Raises as `read_piece` does, and RecordError for batches that cannot be read.
    """
    if piece.max_timestamp_ms < timestamp_ms or piece.last_offset < start_offset:
        return None
    # An entry's time is the largest up to it, so that no run before the first one has such a record.
    begin = next((each.base_offset for each in _entries(disk, piece) if each.max_timestamp_ms >= timestamp_ms), None)
    if begin is None:
        return None
    begin = max(begin, start_offset)
    for content in read_piece(disk, piece, begin, piece.last_offset + 1, read_bytes=SEARCH_BYTES):
        if (found := find_timestamp_in(content, timestamp_ms, begin)) is not None:
            return found[1]
    return None


def _entries(disk: Disk, piece: Piece) -> Iterator[RunEntry]:
    if not piece.index_path:
        table = RunTable(piece.runs)
        yield from (table[index] for index in range(len(table)) if table[index].base_offset <= piece.last_offset)
        return
    handle = disk.open_read(piece.index_path)
    try:
        index = _index(disk, handle, piece)
        for number in piece.pages:
            table = _page(disk, handle, piece, index, number)
            yield from (table[place] for place in range(len(table)) if table[place].base_offset <= piece.last_offset)
    finally:
        disk.close(handle)


def _index(disk: Disk, handle: Handle, piece: Piece) -> SealedIndex:
    try:
        return SealedIndex(disk, handle, piece.generation, piece.data_length)
    except CorruptIndexError as error:
        raise CorruptLogError(f"{piece.index_path}: {error}") from error


def _page(disk: Disk, handle: Handle, piece: Piece, index: SealedIndex, number: int) -> RunTable:
    try:
        return index.read_page(disk, handle, index.page(number))
    except CorruptIndexError as error:
        raise CorruptLogError(f"{piece.index_path}: {error}") from error


def _read(disk: Disk, handle: Handle, piece: Piece, entries: list[RunEntry], size: int) -> memoryview:
    """The bytes of consecutive runs; those that lie side by side in the file are read together."""
    content = memoryview(bytearray(size))
    done = 0
    first = 0
    while first < len(entries):
        position, length = entries[first].position, 0
        while first < len(entries) and entries[first].position == position + length:
            length += entries[first].length
            first += 1
        if disk.preadv(handle, [content[done : done + length]], position) != length:
            raise CorruptLogError(f"{piece.data_path} ends before byte {position + length}")
        done += length
    return content


def _clipped(content: memoryview, last_offset: int) -> memoryview:
    """The batches before the first one that reaches beyond an offset."""
    for pos, header in iter_batches(content):
        if header.last_offset > last_offset:
            return content[:pos]
    return content
