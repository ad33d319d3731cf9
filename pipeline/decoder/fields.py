"""What every record of a group of batches contains: numbers as columns, and where keys, values and headers lie."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.kproto.records import CorruptRecordError
from ottla.pipeline.decoder.batches import Payloads
from ottla.pipeline.decoder.varints import Bytes, Ints, read_varints
from ottla.pipeline.decoder.walk import find_records

__all__ = ["Fields", "Headers", "Slices", "read_fields", "read_headers"]

_LOG_APPEND_TIME = 0x08


class Slices(NamedTuple):
    """Pieces of the data, in ascending order; a negative length is a null."""

    starts: Ints
    lengths: Ints

    def select(self, rows: Ints) -> Slices:
        return Slices(self.starts[rows], self.lengths[rows])


class Fields(NamedTuple):
    """One entry per record, in the order of the bytes. `header_starts` is where the headers begin, after the count."""

    offsets: Ints
    timestamps_ms: Ints
    timestamp_types: Ints
    keys: Slices
    values: Slices
    header_counts: Ints
    header_starts: Ints
    ends: Ints

    def select(self, wanted: NDArray[np.bool_]) -> Fields:
        """The records that are wanted."""
        rows = np.flatnonzero(wanted)
        return Fields(
            self.offsets[rows],
            self.timestamps_ms[rows],
            self.timestamp_types[rows],
            self.keys.select(rows),
            self.values.select(rows),
            self.header_counts[rows],
            self.header_starts[rows],
            self.ends[rows],
        )


class Headers(NamedTuple):
    """The headers of all records, one after the other."""

    keys: Slices
    values: Slices


def read_fields(payloads: Payloads) -> Fields:
    """Read everything but the headers; CorruptRecordError for whatever is malformed."""
    data, starts, ends, headers = payloads
    counts = headers["record_count"].astype(np.int64)
    try:
        bodies, tails = find_records(data, starts, ends, counts)
        timestamps, pos = read_varints(data, bodies + 1, is_long=True)
        offsets, pos = read_varints(data, pos)
        keys, pos = _slices(data, pos)
        values, pos = _slices(data, pos)
        header_counts, pos = read_varints(data, pos)
    except IndexError:
        raise CorruptRecordError("a record ends beyond its batch") from None
    _check(header_counts, pos, tails)
    with np.errstate(over="ignore"):
        offsets += np.repeat(headers["base_offset"].astype(np.int64), counts)
        timestamps += np.repeat(headers["base_timestamp_ms"].astype(np.int64), counts)
    appended = np.repeat(headers["attributes"] & _LOG_APPEND_TIME != 0, counts)
    if bool(appended.any()):
        timestamps = np.where(appended, np.repeat(headers["max_timestamp_ms"].astype(np.int64), counts), timestamps)
    return Fields(offsets, timestamps, appended.astype(np.int64), keys, values, header_counts, pos, tails)


def _check(header_counts: Ints, pos: Ints, tails: Ints) -> None:
    with_headers = header_counts != 0
    if bool((pos[~with_headers] != tails[~with_headers]).any()):
        raise CorruptRecordError("a record does not end where its length says")
    # A header takes at least two bytes: a lying count must not start a long loop.
    if bool(((header_counts < 0) | (header_counts * 2 > tails - pos)).any()):
        raise CorruptRecordError("a record has more headers than fit in it")


def read_headers(data: Bytes, fields: Fields) -> Headers:
    """Read every record's headers, with a step of numpy for each place in their lists; CorruptRecordError as above.

    Whether keys are UTF-8 is found out where they become text.
    """
    counts = fields.header_counts
    total = int(counts.sum())
    columns = np.empty((4, total), dtype=np.int64)
    order = np.argsort(-counts, kind="stable")
    places = (np.cumsum(counts) - counts)[order]
    positions, tails, falling = fields.header_starts[order], fields.ends[order], -counts[order]
    try:
        for step in range(int(counts.max(initial=0))):
            active = int(np.searchsorted(falling, -step, side="left"))
            keys, pos = _slices(data, positions[:active])
            values, pos = _slices(data, pos)
            if bool(((keys.lengths < 0) | (pos > tails[:active])).any()):
                raise CorruptRecordError("a record header does not fit in its record")
            columns[:, places[:active] + step] = (*keys, *values)
            positions[:active] = pos
    except IndexError:
        raise CorruptRecordError("a record header ends beyond its batch") from None
    if bool((positions != tails)[counts[order] > 0].any()):
        raise CorruptRecordError("a record does not end where its length says")
    return Headers(Slices(columns[0], columns[1]), Slices(columns[2], columns[3]))


def _slices(data: Bytes, pos: Ints) -> tuple[Slices, Ints]:
    """Byte strings that begin with their length at `pos`, and the position after them."""
    lengths, starts = read_varints(data, pos)
    return Slices(starts, lengths), starts + np.maximum(lengths, 0)
