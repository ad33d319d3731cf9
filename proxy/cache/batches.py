"""Checks of records before they are cached: their integrity, the positions of batches, aborted transactions."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.records.control import parse_end_txn_marker
from ottla.kproto.records.header import iter_batches, validate_batch, verify_crc, whole_batches_size_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

INDEX_BYTES: Final = 4096
"""Between two entries of an index there are at most this many bytes, plus one batch."""


class Aborted(NamedTuple):
    """An aborted transaction; `last_offset` is its marker's, or -1 if that is not among these records."""

    producer_id: int
    first_offset: int
    last_offset: int


class Batches(NamedTuple):
    """Whole batches in the order of their offsets."""

    start: int
    """The first offset for which this is the answer; lower than that of the first batch if offsets are missing."""
    end: int
    """The offset after the last batch."""
    size_bytes: int
    bases: array[int]
    """The base offsets of some batches, the first one's among them."""
    positions: array[int]
    """The positions of those batches."""
    is_transactional: bool
    aborts: Sequence[tuple[int, int]]
    """Producer id and offset of the markers that abort."""


def read_batches(records: memoryview, fetch_offset: int) -> Batches | None:
    """The whole batches of an answer, all checked; None if there are none, or they do not answer the request.

    A last batch that is cut off is left out. Raises RecordError if anything is wrong with another one.
    """
    whole = records[: whole_batches_size_bytes(records)]
    bases, positions = array("q"), array("I")
    aborts: list[tuple[int, int]] = []
    is_transactional = False
    start = end = -1
    for pos, header in iter_batches(whole):
        validate_batch(header)
        verify_crc(whole, pos, header)
        if start < 0:
            if header.next_offset <= fetch_offset:
                return None
            start = min(fetch_offset, header.base_offset)
        elif header.base_offset < end:
            return None
        if not positions or pos - positions[-1] >= INDEX_BYTES:
            bases.append(header.base_offset)
            positions.append(pos)
        if header.is_transactional:
            is_transactional = True
            if header.is_control:
                marker = parse_end_txn_marker(whole, pos, header)
                if marker is not None and not marker.is_commit:
                    aborts.append((marker.producer_id, header.base_offset))
        end = header.next_offset
    if start < 0:
        return None
    return Batches(start, end, len(whole), bases, positions, is_transactional, aborts)


def with_ends(aborted: Sequence[tuple[int, int]], aborts: Sequence[tuple[int, int]]) -> tuple[Aborted, ...]:
    """Aborted transactions, by producer id and first offset, with the markers that end them among these."""
    found = []
    for producer_id, first_offset in aborted:
        ends = (offset for of, offset in aborts if of == producer_id and offset > first_offset)
        found.append(Aborted(producer_id, first_offset, next(ends, -1)))
    return tuple(found)


def trim(records: memoryview, offset: int, max_bytes: int, end: int) -> tuple[memoryview, int]:
    """The batches from the one that holds the offset on, as many as fit but at least one, and the offset after them.

    `records` are whole batches and end at the offset `end`. They are walked through, so only a few may come before the
    offset, and there may only be a few at all if they do not fit.
    """
    begin = 0
    for pos, header in iter_batches(records):
        begin = pos
        if header.next_offset > offset:
            break
    records = records[begin:]
    if len(records) <= max_bytes:
        return records, end
    size_bytes, next_offset = 0, offset
    for pos, header in iter_batches(records):
        if size_bytes and pos + header.size_bytes > max_bytes:
            break
        size_bytes, next_offset = pos + header.size_bytes, header.next_offset
    return records[:size_bytes], next_offset
