"""What a read_committed reader has to be told beside the records."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.kproto.records import HEADER_SIZE_BYTES, LENGTH_PREFIX_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.replica.fetch import FetchResult
    from ottla.storage.memory.iobuf import IOBuf

# Base offset, batch length and last offset delta of a batch header (ottla.kproto.records.header).
_BATCH_EXTENT: Final = struct.Struct(">qi11xi")


def aborted_transactions(result: FetchResult) -> Sequence[tuple[int, int]]:
    """The (producer id, first offset) of the aborted transactions among the records, by first offset."""
    records = result.records
    if records is None or not records.size_bytes or result.plan is None:
        return []
    aborted = result.plan.aborted_transactions(result.last_stable_offset)
    if not aborted:
        return []
    end_offset = _end_offset(records, result.last_stable_offset)
    return [(each.producer_id, each.first_offset) for each in aborted if each.first_offset < end_offset]


def _end_offset(records: IOBuf, upper_bound: int) -> int:
    """The offset after the last batch, or the bound if the chain cuts a header in two: only more is named then."""
    end_offset = 0
    pos = 0
    for view in records:
        while pos < len(view):
            if pos + HEADER_SIZE_BYTES > len(view):
                return upper_bound
            base_offset, length, last_offset_delta = _BATCH_EXTENT.unpack_from(view, pos)
            end_offset = base_offset + last_offset_delta + 1
            pos += length + LENGTH_PREFIX_BYTES
        pos -= len(view)
    return min(end_offset, upper_bound)
