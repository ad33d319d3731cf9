"""Where the records of many batches begin and end.

A record says how long it is, so that within a batch one must go from record to record. Over many batches numpy takes
these steps for all of them together; a few large batches are walked one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ottla.kproto.records import CorruptRecordError
from ottla.kproto.records.varint import read_varint
from ottla.pipeline.decoder.varints import Bytes, Ints, read_varints

__all__ = ["find_records"]

# A step of numpy costs as much as some fifty of Python's.
_MIN_ROWS_PER_STEP: Final = 48
_MIN_BODY_BYTES: Final = 6


def find_records(data: Bytes, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The body's first byte (behind its length) and the end of every record, batch after batch.

    Batch `i` holds `counts[i]` records, exactly from `starts[i]` to `ends[i]`: CorruptRecordError otherwise.
    """
    total = int(counts.sum())
    if total < _MIN_ROWS_PER_STEP * int(counts.max(initial=0)):
        return _walk_each(data, starts, ends, counts)
    return _walk_together(data, starts, ends, counts)


def _walk_together(data: Bytes, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    total = int(counts.sum())
    bodies = np.empty(total, dtype=np.int64)
    tails = np.empty(total, dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    places = (np.cumsum(counts) - counts)[order]
    positions, limits, falling = starts[order], ends[order], -counts[order]
    for step in range(int(counts.max(initial=0))):
        active = int(np.searchsorted(falling, -step, side="left"))
        lengths, body = read_varints(data, positions[:active])
        tail = body + lengths
        if bool(((lengths < _MIN_BODY_BYTES) | (tail > limits[:active])).any()):
            raise CorruptRecordError("a record's length exceeds its batch, or is less than the least")
        bodies[places[:active] + step] = body
        tails[places[:active] + step] = tail
        positions[:active] = tail
    if bool((positions != limits).any()):
        raise CorruptRecordError("bytes follow the last record of a batch")
    return bodies, tails


def _walk_each(data: Bytes, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    heads: list[int] = []
    for start, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True):
        if start + _walk(data[start:end].tobytes(), start, count, heads) != end:
            raise CorruptRecordError("bytes follow the last record of a batch, or are missing")
    lengths, bodies = read_varints(data, np.array(heads, dtype=np.int64))
    if bool((lengths < _MIN_BODY_BYTES).any()):
        raise CorruptRecordError("a record's length is less than the least")
    return bodies, bodies + lengths


def _walk(payload: bytes, start: int, count: int, heads: list[int]) -> int:
    """Note where each record of a batch begins; returns the bytes they take. Signs are for the caller to check."""
    append = heads.append
    pos = 0
    try:
        for _ in range(count):
            append(start + pos)
            number = payload[pos]
            if number < 0x80:
                pos += 1 + (number >> 1)
            elif (second := payload[pos + 1]) < 0x80:
                pos += 2 + (number >> 1 & 0x3F | second << 6)
            else:
                length, body = read_varint(payload, pos)
                pos = body + length
    except IndexError:
        raise CorruptRecordError("a record ends beyond its batch") from None
    return pos
