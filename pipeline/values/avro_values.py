"""Values in Avro."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from pyspark.sql import Column
from pyspark.sql.types import DataType

from ottla.pipeline.values.avro_types import named_types, record_type
from ottla.pipeline.values.formats import HEADER_SIZE_BYTES, Compiled, Read, id_column, id_of
from ottla.pipeline.values.schemas import SchemaText, UnsupportedSchemaError, parsed_json

__all__ = ["AvroFormat"]


class AvroFormat:
    """Implements Format. References are other schemas' named types."""

    name = "Avro"

    def head(self) -> Column:
        return id_column()

    def split(self, value: bytes) -> tuple[bytes, int]:
        return id_of(value), HEADER_SIZE_BYTES

    def compile(self, schema: SchemaText, head: bytes) -> Compiled:
        documents = [parsed_json(text, "Avro") for text in (*schema.references.values(), schema.text)]
        named: dict[str, DataType] = {}
        for document in documents[:-1]:
            named_types(document, named)
        columns = record_type(documents[-1], named)
        reader = _AvroReader(documents)
        try:
            reader.open()
        except Exception as error:
            raise UnsupportedSchemaError(f"The Avro schema cannot be used: {str(error)[:300]}.") from error
        return Compiled(columns, reader)


class _AvroReader:
    def __init__(self, documents: Sequence[Any]) -> None:
        self._documents = documents

    def open(self) -> Read:
        import fastavro

        from ottla.schemas.avro import parsed as parsed_schema

        parsed = parsed_schema(list(self._documents))

        def read(value: bytes) -> dict[str, Any] | None:
            stream = io.BytesIO(value)
            row: Any = fastavro.schemaless_reader(stream, parsed, None)
            if left := len(value) - stream.tell():
                raise ValueError(f"{left} bytes follow it")
            return row  # type: ignore[no-any-return]

        return read
