"""Values that were written with schemas: Avro, Protobuf and JSON with a JSON Schema.

With a registry each value says which schema it was written with; the driver looks up the ids of a batch, and the
executors only decode. With a schema file alone values are bare.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it
from pyspark.sql.types import StringType, StructField, StructType

from ottla.pipeline.values.arrow_types import arrow_type
from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.evolution import evolve
from ottla.pipeline.values.fitting import Fit, UnfitError, fit_to
from ottla.pipeline.values.formats import BARE, HEADER_SIZE_BYTES, Compiled, Format, Read
from ottla.pipeline.values.schemas import Schemas, SchemaText, UnsupportedSchemaError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["RegisteredDecoder"]

MAX_NEW_SCHEMAS: Final = 200
"""How many unknown ids of a batch are looked up, those of the most values first: broken values may hold any number."""


class RegisteredDecoder:
    """Decodes each value by the schema it was written with, into the columns that all schemas have together.

    With `schemas` values begin with an id; with `file_schema` alone they are bare. Values whose schema cannot be found,
    or that do not fit the columns, become dead letters.
    """

    def __init__(
        self,
        kind: Format,
        schema: StructType | None,
        *,
        schemas: Schemas | None,
        file_schema: SchemaText | None = None,
        evolves: bool = True,
        reserved: frozenset[str] = frozenset(),
    ) -> None:
        self._format = kind
        self._schemas = schemas
        self._evolves = evolves
        self._reserved = reserved
        self._compiled: dict[bytes, Compiled] = {}
        self._problems: dict[bytes, str] = {}
        self.schema = schema
        if file_schema is not None:
            compiled = kind.compile(file_schema, BARE)
            self.schema = evolve(schema or StructType(), compiled.columns, reserved).schema
            if schemas is None:
                self._compiled[BARE] = compiled

    @property
    def learns(self) -> bool:
        return self._schemas is not None

    def learn(self, rows: DataFrame) -> bool:
        if self._schemas is None:
            return False
        before = self.schema
        for head in self._new_heads(rows):
            self._learn_head(self._schemas, head)
        return self.schema != before

    def _new_heads(self, rows: DataFrame) -> list[bytes]:
        framed = rows.where((F.length("value") >= HEADER_SIZE_BYTES) & (F.substring("value", 1, 1) == F.lit(b"\x00")))
        heads = framed.select(self._format.head().alias("head")).groupBy("head").count()
        most = heads.orderBy(F.desc("count"), "head").limit(MAX_NEW_SCHEMAS + len(self._compiled)).collect()
        # Unknown ids are asked for again: a schema may be registered late.
        return sorted({bytes(row.head) for row in most} - self._compiled.keys())

    def _learn_head(self, schemas: Schemas, head: bytes) -> None:
        schema_id = int.from_bytes(head[:4], "big")
        schema = schemas.schema(schema_id)
        if schema is None:
            self._problems[head] = f"schema {schema_id} is not in the registry"
            return
        if schema.kind != self._format.name.upper():
            self._problems[head] = f"schema {schema_id} is {schema.kind}, not {self._format.name}"
            return
        try:
            compiled = self._format.compile(schema, head)
        except UnsupportedSchemaError as error:
            self._problems[head] = f"schema {schema_id}: {error}"
            return
        self._problems.pop(head, None)
        self._compiled[head] = compiled
        if self._evolves or self.schema is None:
            evolution = evolve(self.schema or StructType(), compiled.columns, self._reserved)
            self.schema = evolution.schema
            for name in (*evolution.refused, *evolution.refused_within):
                self._problems[head] = f"schema {schema_id}: field {name!r} cannot become a column"
                self._compiled.pop(head, None)

    def decode(self, rows: DataFrame) -> DataFrame:
        schema = self.schema or StructType()
        if not schema.fields:
            schema = StructType([StructField("value", StringType())])
        decoded = StructType([*rows.schema.fields, StructField(DATA, schema), StructField(REASON, StringType())])
        decoder = _BatchDecoder(self._format, self._compiled, self._problems, schema, self._schemas is not None)
        return rows.mapInArrow(decoder, decoded)


class _Opened(NamedTuple):
    """A schema in use: what reads its values, and what makes them ready for the table's columns."""

    read: Read
    fit: Fit | None


class _BatchDecoder:
    """Runs on the executors, on Arrow batches."""

    def __init__(
        self,
        kind: Format,
        compiled: dict[bytes, Compiled],
        problems: dict[bytes, str],
        schema: StructType,
        framed: bool,
    ) -> None:
        self._format = kind
        self._compiled = dict(compiled)
        self._problems = dict(problems)
        self._schema_json = schema.json()
        self._is_framed = framed

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        schema = StructType.fromJson(json.loads(self._schema_json))
        kind = arrow_type(schema)
        opened: dict[bytes, _Opened] = {}
        for batch in batches:
            values = batch.column(batch.schema.get_field_index("value")).to_pylist()
            found = [self._decoded(value, opened, schema) for value in values]
            documents = [row for row, _ in found]
            reasons = [reason for _, reason in found]
            data = _as_arrow(pa, documents, reasons, kind)
            columns = [*batch.columns, data, pa.array(reasons, pa.string())]
            yield pa.RecordBatch.from_arrays(columns, [*batch.schema.names, DATA, REASON])

    def _decoded(
        self, value: bytes | None, opened: dict[bytes, _Opened], schema: StructType
    ) -> tuple[dict[str, Any] | None, str | None]:
        if value is None:
            return None, None
        head, start = BARE, 0
        if self._is_framed:
            try:
                head, start = self._format.split(value)
            except ValueError as error:
                return None, str(error)
        name = f"schema {int.from_bytes(head[:4], 'big')}" if head else "the schema file"
        if head not in self._compiled:
            return None, self._problems.get(head, f"{name} is not in the registry")
        try:
            if head not in opened:
                compiled = self._compiled[head]
                opened[head] = _Opened(compiled.reader.open(), fit_to(schema, compiled.columns))
            read, fit = opened[head]
            row = read(value[start:])
            return (row if fit is None or row is None else fit(row)), None
        except UnfitError as error:
            return None, f"the value does not fit the table's columns: {error}"
        except Exception as error:  # noqa: BLE001 - whatever a reader of foreign bytes may raise
            return (
                None,
                f"the value is not {self._format.name} of {name}: {str(error)[:300] or type(error).__name__}",
            )


def _as_arrow(pa: Any, documents: list[dict[str, Any] | None], reasons: list[str | None], kind: Any) -> Any:
    """The documents as a column; one that does not fit becomes null, and its reason says why."""
    try:
        return pa.array(documents, kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        for index, document in enumerate(documents):
            try:
                pa.array([document], kind)
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                documents[index] = None
                reasons[index] = f"the value does not fit the table's columns: {error}"
        return pa.array(documents, kind)
