"""The batches of a fetch's answer, a few at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

#: What one append takes, during which nothing else runs.
_MAX_PIECE_BATCHES: Final = 16
_MAX_PIECE_BYTES: Final = 1 << 18
_BATCH_PREFIX_BYTES: Final = 12


def pieces(records: memoryview) -> Iterator[memoryview]:
    """Whole batches, a few at a time: thousands of small ones in one go would hold the event loop."""
    start = end = count = 0
    while len(records) - end > _BATCH_PREFIX_BYTES:
        size_bytes = int.from_bytes(records[end + 8 : end + _BATCH_PREFIX_BYTES], "big", signed=True)
        size_bytes += _BATCH_PREFIX_BYTES
        if size_bytes <= _BATCH_PREFIX_BYTES or end + size_bytes > len(records):
            break
        end += size_bytes
        count += 1
        if count == _MAX_PIECE_BATCHES or end - start >= _MAX_PIECE_BYTES:
            yield records[start:end]
            start, count = end, 0
    if count:
        yield records[start:end]
    elif start == 0 and len(records):
        yield records  # not one whole batch: the append refuses it
