"""The columns that a sink takes, and their rows sent: those of Spark's Kafka connector, by the same names."""

from __future__ import annotations

import zlib
from itertools import count
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from ottla.client.offsets import TopicPartition
from ottla.pipeline.client.producer import Producer
from ottla.pipeline.encoder import Columns, Ints, binary, content, encode_headers, lengths, partitions_for_keys
from ottla.pipeline.errors import OptionError, RowError

__all__ = ["RowSender", "Shape", "shape_of"]

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType(), True), StructField("value", BinaryType(), True)]), True
)
_TYPES: Final[dict[str, tuple[DataType, ...]]] = {
    "topic": (StringType(),),
    "key": (StringType(), BinaryType()),
    "value": (StringType(), BinaryType()),
    "headers": (_HEADERS,),
    "partition": (IntegerType(),),
}
# As many rows without a key go to one partition before the next has its turn: fewer would make many small batches.
_TURN_ROWS: Final = 100
_NO_PARTITION: Final = -1


class Shape(NamedTuple):
    """Which of the columns the rows have. Without a `topic` each row names its own."""

    columns: frozenset[str]
    topic: str | None


def shape_of(schema: StructType, topic: str | None) -> Shape:
    """Check the columns as Spark's connector does, and say the same of them; others are passed over."""
    found: dict[str, DataType] = {}
    for field in schema.fields:
        found.setdefault(field.name, field.dataType)
    if topic is None and "topic" not in found:
        raise OptionError(
            "topic option required when no 'topic' attribute is present. Use the topic option for setting a topic."
        )
    if "value" not in found:
        raise OptionError("Required attribute 'value' not found")
    held = [name for name in _TYPES if name in found and not (name == "topic" and topic is not None)]
    for name in held:
        given = found[name].simpleString()
        wanted = [kind.simpleString() for kind in _TYPES[name]]
        if given not in wanted:
            raise OptionError(f"{name} attribute unsupported type {given}. {name} must be a(n) {' or '.join(wanted)}")
    return Shape(frozenset(held), topic)


class RowSender:
    """Sends Arrow batches of such rows; `rows` and `checksum` say what it was, whatever batches it came in.

    Rows that may go to any partition begin with number `first_turn`, so that not all tasks begin with the same.
    """

    def __init__(self, producer: Producer, shape: Shape, first_turn: int) -> None:
        self.rows = 0
        self._producer = producer
        self._shape = shape
        self._turns = count(first_turn)
        self._checksums: dict[str, int] = {}

    @property
    def checksum(self) -> int:
        """Of all rows, in their order."""
        text = ",".join(f"{name}:{value}" for name, value in sorted(self._checksums.items()))
        return zlib.crc32(text.encode())

    def send(self, batch: Any) -> None:
        """Send the rows; RowError for one that cannot be a record."""
        if not batch.num_rows:
            return
        held = self._shape.columns
        nothing = pa.nulls(batch.num_rows, pa.binary())
        headers = encode_headers(batch.column("headers")) if "headers" in held else None
        columns = Columns(
            binary(batch.column("key")) if "key" in held else nothing, binary(batch.column("value")), headers
        )
        given = _numbers(batch.column("partition")) if "partition" in held else None
        self._note(columns, given)
        self.rows += batch.num_rows
        if self._shape.topic is not None:
            self._send(self._shape.topic, columns, given)
            return
        topics = pc.dictionary_encode(batch.column("topic"))
        self._checksum("topic", binary(batch.column("topic")))
        if topics.null_count:
            raise RowError("null topic present in the data. Use the topic option for setting a default topic.")
        codes = topics.indices.to_numpy()
        for code, topic in enumerate(topics.dictionary.to_pylist()):
            rows = np.flatnonzero(codes == code)
            self._send(topic, columns.take(rows), None if given is None else given[rows])

    def _send(self, topic: str, columns: Columns, given: Ints | None) -> None:
        """Send rows of one topic: each to its own partition, else to that of its key, else in turns."""
        partitions = self._producer.partition_count(topic)
        chosen = partitions_for_keys(columns.key, partitions)
        if given is not None:
            chosen = np.where(given == _NO_PARTITION, chosen, given)
        free = np.flatnonzero(chosen == _NO_PARTITION)
        if free.size:
            chosen[free] = self._in_turn(free.size, partitions)
        order = np.argsort(chosen, kind="stable")
        in_order = chosen[order]
        if not np.array_equal(in_order, chosen):
            columns = columns.take(order)
        starts = np.flatnonzero(np.diff(in_order, prepend=in_order[0] - 1))
        for start, end in zip(starts, [*starts[1:], len(in_order)], strict=True):
            part = TopicPartition(topic, int(in_order[start]))
            self._producer.append(part, columns.slice(int(start), int(end - start)))

    def _in_turn(self, rows: int, partitions: int) -> Ints:
        """The partitions of rows that may go anywhere."""
        turn = max(_TURN_ROWS, -(-rows // partitions))
        turns = [next(self._turns) % partitions for _ in range(-(-rows // turn))]
        return np.repeat(np.array(turns, dtype=np.int64), turn)[:rows]

    def _note(self, columns: Columns, given: Ints | None) -> None:
        for name, column in zip(Columns._fields, columns, strict=True):
            if column is not None:
                self._checksum(name, column)
        if given is not None:
            self._checksums["partition"] = zlib.crc32(given.tobytes(), self._checksums.get("partition", 0))

    def _checksum(self, name: str, column: Any) -> None:
        for kind, data in ((name, content(column)), (f"{name} lengths", lengths(column).data)):
            self._checksums[kind] = zlib.crc32(data, self._checksums.get(kind, 0))


def _numbers(column: Any) -> Ints:
    """The partitions that rows name; -1 for none."""
    if column.null_count < len(column) and (pc.min(column).as_py() < 0):
        raise RowError(f"Invalid partition: {pc.min(column).as_py()}. A partition number is 0 or more, or null.")
    found: Ints = pc.fill_null(column, _NO_PARTITION).to_numpy().astype(np.int64)
    return found
