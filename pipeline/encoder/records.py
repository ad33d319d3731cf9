"""Rows of Arrow columns to the bytes of records, without a Python object per record.

numpy makes the small numbers that stand before keys and values; Arrow joins them with these. What comes out is what
`ottla.kproto.records` makes record by record: the tests hold that.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.encoder.varints import Ints, varint_sizes, varints
from ottla.pipeline.errors import RowError

__all__ = ["Columns", "binary", "content", "encode", "encode_headers", "lengths"]

# What a record takes at most beside its key, its value and its headers.
_OVERHEAD_BYTES: Final = 36
_NO_HEADERS: Final = b"\x00"


class Columns(NamedTuple):
    """Records as columns: keys and values, and headers as `encode_headers` makes them (None: nobody has any)."""

    key: Any
    value: Any
    headers: Any | None = None

    @property
    def row_count(self) -> int:
        return len(self.value)

    def slice(self, start: int, count: int) -> Columns:
        return Columns(*(None if column is None else column.slice(start, count) for column in self))

    def take(self, rows: Ints) -> Columns:
        return Columns(*(None if column is None else column.take(pa.array(rows)) for column in self))

    def most_bytes(self) -> Ints:
        """What each record takes at most within a batch."""
        found = np.maximum(lengths(self.key), 0) + np.maximum(lengths(self.value), 0) + _OVERHEAD_BYTES
        return found if self.headers is None else found + lengths(self.headers)


def encode(columns: Columns, first: int) -> memoryview:
    """The records' bytes. The first is the batch's record number `first`; all have the batch's own timestamp."""
    count = columns.row_count
    nothing = np.zeros(count, dtype=np.int64)
    numbers = np.arange(first, first + count, dtype=np.int64)
    key_bytes, value_bytes = lengths(columns.key), lengths(columns.value)
    body_bytes = 2 + varint_sizes(numbers)  # attributes, and no difference in time
    for size_bytes in (key_bytes, value_bytes):
        body_bytes += varint_sizes(size_bytes) + np.maximum(size_bytes, 0)
    if columns.headers is None:
        headers: Any = pa.scalar(_NO_HEADERS, pa.binary())
        body_bytes += len(_NO_HEADERS)
    else:
        headers = columns.headers
        body_bytes += lengths(headers)
    joined = _joined(
        varints(body_bytes, nothing, nothing, numbers, key_bytes),
        columns.key,
        varints(value_bytes),
        columns.value,
        headers,
    )
    return content(joined)


def encode_headers(column: Any) -> Any:
    """The bytes that follow a record's value, out of a column of lists of (key, value). RowError without a key."""
    entries = column.flatten()
    names, values = (binary(entries.field(index)) for index in (0, 1))
    if names.null_count:
        raise RowError("A header has no key: give it one, or leave the header out.")
    encoded = _joined(varints(lengths(names)), names, varints(lengths(values)), values)
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    offsets = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=offsets[1:])
    lists = pa.ListArray.from_arrays(pa.array(offsets), encoded)
    return _joined(varints(counts), pc.binary_join(lists, b""))


def binary(column: Any) -> Any:
    """A column of text or bytes as bytes."""
    return column if column.type == pa.binary() else column.cast(pa.binary())


def lengths(column: Any) -> Ints:
    """How long each entry is; -1 for none."""
    found: Ints = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


def content(column: Any) -> memoryview:
    """All entries of a binary array, one behind the other."""
    _, offsets, data = column.buffers()
    if data is None:
        return memoryview(b"")
    bounds = np.frombuffer(offsets, dtype=np.int32)
    return memoryview(data)[bounds[column.offset] : bounds[column.offset + len(column)]]


def _joined(*columns: Any) -> Any:
    return pc.binary_join_element_wise(*columns, b"", null_handling="replace", null_replacement=b"")
