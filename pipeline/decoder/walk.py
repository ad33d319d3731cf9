"""Where the records of many batches begin and end.

Only a record itself says how long it is, so within a batch one must go from record to record. Over many batches numpy
takes these steps for all of them together. A few large batches are walked one by one: in strides where many records in
a row have the same length, else record by record.
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
_VARINT_BYTES: Final = 5
# A run must be this long to be worth a step of its own; the first few may be shorter.
_MIN_RUN: Final = 64
_FREE_RUNS: Final = 4


def find_records(data: Bytes, starts: Ints, ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """The body's first byte (after its length) and the end of every record, batch after batch.

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
    found = []
    for start, end, count in zip(starts.tolist(), ends.tolist(), counts.tolist(), strict=True):
        payload = data[start:end]
        heads = _stride(payload, count)
        if heads is None:
            heads = _walk(payload.tobytes(), count)
        found.append(heads + start)
    lengths, bodies = read_varints(data, np.concatenate(found))
    if bool((lengths < _MIN_BODY_BYTES).any()):
        raise CorruptRecordError("a record's length is less than the least")
    return bodies, bodies + lengths


def _stride(payload: Bytes, count: int) -> Ints | None:
    """Where records of equal length begin, run by run; None if the lengths change too often for that.

    A run goes on for as long as the same length stands at equal distances.
    """
    heads = np.empty(count, dtype=np.int64)
    size = len(payload)
    done = pos = runs = 0
    while done < count:
        runs += 1
        if runs * _MIN_RUN > done + _MIN_RUN * _FREE_RUNS:
            return None
        length, body = read_varint(payload[pos : pos + _VARINT_BYTES].tobytes(), 0)
        step = body + length
        if length < _MIN_BODY_BYTES or pos + step > size:
            return None
        places = np.arange(pos, pos + step * min(count - done, (size - pos) // step), step)
        same = payload[places] == payload[pos]
        for further in range(1, body):
            same &= payload[places + further] == payload[pos + further]
        run = len(places) if bool(same.all()) else int(np.argmin(same))
        heads[done : done + run] = places[:run]
        done += run
        pos += run * step
    return heads if pos == size else None


def _walk(payload: bytes, count: int) -> Ints:
    """Where each record of a batch begins; CorruptRecordError unless they fill it. The caller looks at signs."""
    heads: list[int] = []
    append = heads.append
    pos = 0
    try:
        for _ in range(count):
            append(pos)
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
    if pos != len(payload):
        raise CorruptRecordError("bytes follow the last record of a batch, or are missing")
    return np.array(heads, dtype=np.int64)
