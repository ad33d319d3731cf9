"""What the executors do for an Iceberg table: they write data files, and tell the driver of them.

Each of these is called with one task's Arrow batches. What it yields are pickled descriptions of files, which are in no
snapshot until the driver commits them: a task that is run twice, or whose end nobody hears of, leaves files behind and
no rows.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.io import FileIO
    from pyiceberg.table.metadata import TableMetadata

__all__ = ["BUFFER_SIZE_BYTES", "FILE_COLUMN", "KeyReader", "Rewriter", "Writer"]

BUFFER_SIZE_BYTES: Final = 128 * 1024 * 1024
"""How much a task gathers, as Arrow, before it writes a file."""

FILE_COLUMN: Final = "file"


class Writer:
    """Writes rows, in the columns of `schema`, into new data files."""

    def __init__(self, metadata: TableMetadata, io: FileIO, schema: pa.Schema) -> None:
        self._metadata = metadata
        self._io = io
        self._schema = schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (_cast(batch, self._schema) for batch in batches)
        for file in _written(self._metadata, self._io, rows):
            yield _as_batch([file])


class KeyReader:
    """Reads from data files, each a row of its number and its pickled scan, the keys of their rows."""

    def __init__(self, metadata: TableMetadata, io: FileIO, key: str, kind: pa.DataType) -> None:
        self._metadata = metadata
        self._io = io
        self._key = key
        self._kind = kind

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        for batch in batches:
            for row in batch.to_pylist():
                for rows in _read(self._metadata, self._io, pickle.loads(row["scans"]), self._key):
                    keys = rows.column(0).cast(self._kind)
                    numbers = pa.array([row["number"]] * len(keys), pa.int32())
                    yield pa.RecordBatch.from_arrays([numbers, keys], ["number", "held"])


class Rewriter:
    """Rewrites data files without those whose key is among `keys`, where there are any.

    Each input row has the pickled scans of the files that become one, and the keys.
    """

    def __init__(self, metadata: TableMetadata, io: FileIO, key: str | None = None) -> None:
        self._metadata = metadata
        self._io = io
        self._key = key

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for index, scans in enumerate(batch.column("scans").to_pylist()):
                rows = _read(self._metadata, self._io, pickle.loads(scans))
                if self._key is not None:
                    rows = self._without(rows, batch.column("keys")[index].values)
                for file in _written(self._metadata, self._io, rows):
                    yield _as_batch([file])

    def _without(self, rows: Iterable[pa.RecordBatch], keys: pa.Array) -> Iterator[pa.RecordBatch]:
        import pyarrow.compute as pc

        for batch in rows:
            column = batch.column(self._key)
            yield batch.filter(pc.invert(pc.is_in(column, value_set=keys.cast(column.type))))


def _read(metadata: TableMetadata, io: FileIO, scans: list[Any], *columns: str) -> Iterator[pa.RecordBatch]:
    """The rows of files as the table's current schema has them, without those that were deleted."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    schema = metadata.schema()
    projected = schema.select(*columns) if columns else schema
    for scan in scans:
        yield from ArrowScan(metadata, io, projected, AlwaysTrue()).to_record_batches([scan])


def _written(metadata: TableMetadata, io: FileIO, rows: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """The data files that the rows went into, pickled."""
    gathered: list[pa.RecordBatch] = []
    size_bytes = 0
    for batch in rows:
        if len(batch):
            gathered.append(batch)
            size_bytes += batch.nbytes
        if size_bytes >= BUFFER_SIZE_BYTES:
            yield from _flushed(metadata, io, gathered)
            gathered, size_bytes = [], 0
    if gathered:
        yield from _flushed(metadata, io, gathered)


def _flushed(metadata: TableMetadata, io: FileIO, batches: list[pa.RecordBatch]) -> Iterator[bytes]:
    import pyarrow as pa
    from pyiceberg.io.pyarrow import _dataframe_to_data_files

    rows = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="permissive")
    for file in _dataframe_to_data_files(metadata, rows, io):
        yield pickle.dumps(file)


def _cast(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Spark's Arrow types depend on its settings, as time zones and large texts do; the table's do not."""
    import pyarrow as pa

    columns = [batch.column(field.name).cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _as_batch(files: list[bytes]) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([pa.array(files, pa.binary())], [FILE_COLUMN])
