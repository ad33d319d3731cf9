"""Values of Avro: bare by a schema file, or with the five bytes that Confluent's serializers put before them.

Those are a zero and the id, four bytes big-endian, of the schema that the value was written by. The driver looks the
ids of a batch up in the registry; the executors only decode.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipeline.values.avro_types import UnsupportedSchemaError, record_type
from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.evolution import evolve
from ottla.pipeline.values.registry import Registry

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AvroDecoder"]

HEADER_SIZE_BYTES: Final = 5
MAGIC: Final = 0
BARE: Final = -1
"""The schema id of values without the five bytes."""


class AvroDecoder:
    """Decodes each value by the schema it was written by, into the columns that all of them have together.

    With a registry values carry the five bytes; with a schema alone they are bare. Values of schemas that the registry
    lacks, or that do not fit the columns, are dead letters.
    """

    def __init__(
        self,
        schema: StructType | None,
        *,
        registry: Registry | None,
        file_schema: Any = None,
        evolves: bool = True,
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        self._registry = registry
        self._evolves = evolves
        self._reserved = reserved
        self._writers: dict[int, str] = {}
        self._problems: dict[int, str] = {}
        self.schema = schema
        if file_schema is not None:
            self.schema = evolve(schema or StructType(), record_type(file_schema), reserved).schema
            if registry is None:
                self._writers[BARE] = json.dumps(file_schema)

    @property
    def learns(self) -> bool:
        return self._registry is not None

    def learn(self, rows: DataFrame) -> bool:
        if self._registry is None:
            return False
        before = self.schema
        for schema_id in self._new_ids(rows):
            self._learn_id(self._registry, schema_id)
        return self.schema != before

    def _new_ids(self, rows: DataFrame) -> list[int]:
        framed = rows.where((F.length("value") >= HEADER_SIZE_BYTES) & (F.substring("value", 1, 1) == F.lit(b"\x00")))
        ids = framed.select(F.conv(F.hex(F.substring("value", 2, 4)), 16, 10).cast("long").alias("id")).distinct()
        found = sorted(row.id for row in ids.collect())
        # Unknown ids are asked for again: a schema may be registered late.
        return [schema_id for schema_id in found if schema_id not in self._writers]

    def _learn_id(self, registry: Registry, schema_id: int) -> None:
        writer = registry.schema(schema_id)
        if writer is None:
            self._problems[schema_id] = f"schema {schema_id} is not in the registry"
            return
        try:
            columns = record_type(writer)
        except UnsupportedSchemaError as error:
            self._problems[schema_id] = f"schema {schema_id}: {error}"
            return
        self._problems.pop(schema_id, None)
        self._writers[schema_id] = json.dumps(writer)
        if self._evolves or self.schema is None:
            evolution = evolve(self.schema or StructType(), columns, self._reserved)
            self.schema = evolution.schema
            for name in (*evolution.refused, *evolution.refused_within):
                self._problems[schema_id] = f"schema {schema_id}: field {name!r} cannot become a column"
                self._writers.pop(schema_id, None)

    def decode(self, rows: DataFrame) -> DataFrame:
        schema = self.schema or StructType()
        if not schema.fields:
            schema = StructType([StructField("value", StringType())])
        decoded = StructType([*rows.schema.fields, StructField(DATA, schema), StructField(REASON, StringType())])
        return rows.mapInArrow(
            _BatchDecoder(self._writers, self._problems, schema, self._registry is not None), decoded
        )


class _BatchDecoder:
    """Runs on the executors, on Arrow batches."""

    def __init__(self, writers: dict[int, str], problems: dict[int, str], schema: StructType, framed: bool) -> None:
        self._writer_texts = dict(writers)
        self._problems = dict(problems)
        self._schema_json = schema.json()
        self._is_framed = framed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import fastavro
        import pyarrow as pa
        from pyspark.sql.pandas.types import to_arrow_type

        schema = StructType.fromJson(json.loads(self._schema_json))
        kind = to_arrow_type(schema, timezone="UTC")
        names = [field.name for field in schema.fields]
        writers = {key: fastavro.parse_schema(json.loads(text)) for key, text in self._writer_texts.items()}
        for batch in batches:
            values = batch.column(batch.schema.get_field_index("value")).to_pylist()
            found = [self._decoded(value, writers) for value in values]
            documents = [None if row is None else {name: row.get(name) for name in names} for row, _ in found]
            reasons = [reason for _, reason in found]
            data = _as_arrow(pa, documents, reasons, kind)
            columns = [*batch.columns, data, pa.array(reasons, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, DATA, REASON])

    def _decoded(self, value: bytes | None, writers: dict[int, Any]) -> tuple[dict[str, Any] | None, str | None]:
        import fastavro

        if value is None:
            return None, None
        schema_id, start = BARE, 0
        if self._is_framed:
            if len(value) < HEADER_SIZE_BYTES or value[0] != MAGIC:
                return None, "the value does not begin with a zero and a schema id"
            schema_id, start = int.from_bytes(value[1:HEADER_SIZE_BYTES], "big"), HEADER_SIZE_BYTES
        if schema_id not in writers:
            return None, self._problems.get(schema_id, f"schema {schema_id} is not in the registry")
        stream = io.BytesIO(value)
        stream.seek(start)
        try:
            row: Any = fastavro.schemaless_reader(stream, writers[schema_id], None)
        except Exception as error:  # noqa: BLE001 - whatever a reader of foreign bytes may raise
            return None, f"the value is not Avro of schema {schema_id}: {error or type(error).__name__}"
        if left := len(value) - stream.tell():
            return None, f"{left} bytes follow the value of schema {schema_id}"
        return row, None


def _as_arrow(pa: Any, documents: list[dict[str, Any] | None], reasons: list[str | None], kind: Any) -> Any:
    """The documents as a column; one that does not fit becomes null, and its reason says why."""
    texts = [_uuids_as_text(document) for document in documents]
    try:
        return pa.array(texts, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for index, document in enumerate(texts):
            try:
                pa.array([document], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                texts[index] = None
                reasons[index] = f"the value does not fit the table's columns: {error}"
        return pa.array(texts, kind)


def _uuids_as_text(document: dict[str, Any] | None) -> dict[str, Any] | None:
    from uuid import UUID

    if document is None or not any(isinstance(value, UUID) for value in document.values()):
        return document
    return {name: str(value) if isinstance(value, UUID) else value for name, value in document.items()}
