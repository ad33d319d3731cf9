"""A partition's record batches as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ottla.kproto.records import DEFAULT_LIMIT_BYTES, RecordError
from ottla.pipeline.decoder.batches import Payloads, read_batches
from ottla.pipeline.decoder.fields import Slices, read_fields, read_headers
from ottla.pipeline.decoder.schema import arrow_schema, header_type
from ottla.pipeline.decoder.varints import Ints
from ottla.pipeline.errors import DecodingError

__all__ = ["RecordDecoder"]

_MICROSECONDS: Final = 1000
_MAX_TIMESTAMP_MS: Final = (1 << 63) // _MICROSECONDS - 1


class RecordDecoder:
    """Turns the record batches of one partition into Arrow batches with the connector's columns.

    `columns` are the names of those that are wanted; without it they are all there. The bytes of the others are not
    copied. Control records never appear. Undecodable bytes are DecodingError, which names the partition; `limit_bytes`
    bounds what a compressed batch may inflate to.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        include_headers: bool = False,
        columns: Collection[str] | None = None,
        check_crcs: bool = True,
        limit_bytes: int = DEFAULT_LIMIT_BYTES,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self._name = topic.encode()
        self._check_crcs = check_crcs
        self._limit_bytes = limit_bytes
        self._schema = arrow_schema(include_headers=include_headers, columns=columns)
        self._names = pa.array([], pa.string())

    def decode(
        self, records: memoryview, start_offset: int, end_offset: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Any]:
        """Yield the rows in [`start_offset`, `end_offset`) of a buffer of whole batches.

        `aborted` names the transactions whose records are left out, by producer id and first offset.
        """
        try:
            batches = read_batches(records)
            last_offsets = batches.last_offsets
            batches = batches.select((last_offsets >= start_offset) & (batches.headers["base_offset"] < end_offset))
            if self._check_crcs:
                batches.verify_crcs()
            batches = batches.without_aborted(aborted).without_control()
            for payloads in batches.payloads(self._limit_bytes):
                rows = self._rows(payloads, start_offset, end_offset)
                if rows.num_rows:
                    yield rows
        except RecordError as error:
            raise DecodingError(
                f"Partition {self.topic}-{self.partition} cannot be decoded between offsets {start_offset} and "
                f"{end_offset}: {error}. Read around it with startingOffsets and endingOffsets."
            ) from error

    def _rows(self, payloads: Payloads, start_offset: int, end_offset: int) -> Any:
        fields = read_fields(payloads)
        headers = read_headers(payloads.data, fields) if bool(fields.header_counts.any()) else None
        wanted = (fields.offsets >= start_offset) & (fields.offsets < end_offset)
        everything = bool(wanted.all())
        counts = fields.header_counts
        if not everything:
            fields = fields.select(wanted)
        buffer = pa.py_buffer(payloads.data)

        def listed() -> Any:
            if headers is None:
                return pa.nulls(len(fields.offsets), header_type())
            lists = _header_lists(buffer, counts, headers.keys, headers.values)
            return lists if everything else lists.filter(pa.array(wanted))

        count = len(fields.offsets)
        columns: dict[str, Callable[[], Any]] = {
            "key": lambda: _gather(buffer, fields.keys),
            "value": lambda: _gather(buffer, fields.values),
            "topic": lambda: self._topics(count),
            "partition": lambda: pa.array(np.full(count, self.partition, dtype=np.int32)),
            "offset": lambda: pa.array(fields.offsets),
            "timestamp": lambda: _timestamps(fields.timestamps_ms),
            "timestampType": lambda: pa.array(fields.timestamp_types.astype(np.int32)),
            "headers": listed,
        }
        return pa.RecordBatch.from_arrays([columns[name]() for name in self._schema.names], schema=self._schema)

    def _topics(self, count: int) -> Any:
        """The topic's name `count` times; a longer column than was needed before is made once."""
        if count > len(self._names):
            size = len(self._name)
            ends = pa.py_buffer(np.arange(0, (count + 1) * size, size, dtype=np.int32))
            self._names = pa.Array.from_buffers(pa.string(), count, [None, ends, pa.py_buffer(self._name * count)])
        return self._names[:count]


def _timestamps(timestamps_ms: Ints) -> Any:
    micros = np.clip(timestamps_ms, -_MAX_TIMESTAMP_MS, _MAX_TIMESTAMP_MS) * _MICROSECONDS
    return pa.Array.from_buffers(pa.timestamp("us", tz="UTC"), len(micros), [None, pa.py_buffer(micros)])


def _gather(buffer: Any, slices: Slices) -> Any:
    """Copy the slices out of the buffer, as Arrow's binary column.

    Read as one column, the buffer holds a value, what lies between it and the next one, the next value and so on:
    every second entry is taken.
    """
    starts, lengths = slices
    count = len(starts)
    if not count:
        return pa.array([], pa.binary())
    nulls = lengths < 0
    if bool(nulls.all()):
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count, dtype=np.int32)
    bounds[0::2] = starts
    bounds[1::2] = starts + np.maximum(lengths, 0)
    pieces = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), buffer])
    places = np.arange(0, 2 * count, 2, dtype=np.int32)
    return pieces.take(pa.array(places, mask=nulls if bool(nulls.any()) else None))


def _texts(buffer: Any, slices: Slices) -> Any:
    """Keys of headers as text. What is not UTF-8 becomes U+FFFD, as Kafka's own consumer shows it (`Utils.utf8`)."""
    keys = _gather(buffer, slices)
    try:
        return keys.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([key.decode(errors="replace") for key in keys.to_pylist()], pa.string())


def _header_lists(buffer: Any, counts: Ints, keys: Slices, values: Slices) -> Any:
    """A list of headers for each record, null for those without, as the connector has it."""
    kind = header_type()
    entries = pa.StructArray.from_arrays([_texts(buffer, keys), _gather(buffer, values)], fields=list(kind.value_type))
    bounds = np.zeros(len(counts) + 1, dtype=np.int32)
    np.cumsum(counts, out=bounds[1:])
    return pa.ListArray.from_arrays(pa.array(bounds), entries, type=kind, mask=pa.array(counts == 0))
