"""JSON that has a JSON Schema: each value is checked against its own."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from pyspark.sql import Column

from ottla.pipeline.errors import OptionError
from ottla.pipeline.values.formats import HEADER_SIZE_BYTES, Compiled, Read, id_column, id_of
from ottla.pipeline.values.json_schema_types import Documents, object_type, shape_of
from ottla.pipeline.values.schemas import SchemaText, UnsupportedSchemaError, parsed_json

__all__ = ["JsonSchemaFormat"]


class JsonSchemaFormat:
    """Implements Format. References are other schemas, by the names that `$ref` has for them."""

    name = "JSON"

    def head(self) -> Column:
        return id_column()

    def split(self, value: bytes) -> tuple[bytes, int]:
        return id_of(value), HEADER_SIZE_BYTES

    def compile(self, schema: SchemaText, head: bytes) -> Compiled:
        if find_spec("jsonschema_rs") is None:
            raise OptionError("JSON Schemas need jsonschema-rs: install Ottla with its extra `schemas`.")
        document = parsed_json(schema.text, "JSON")
        others = {name: parsed_json(text, "JSON") for name, text in schema.references.items()}
        reader = _JsonSchemaReader(document, others)
        try:
            reader.open()
        except Exception as error:
            raise UnsupportedSchemaError(f"The JSON Schema cannot be used: {str(error)[:300]}") from error
        return Compiled(object_type(Documents(document, others)), reader)


class _JsonSchemaReader:
    def __init__(self, document: Any, others: Mapping[str, Any]) -> None:
        self._document = document
        self._others = others

    def open(self) -> Read:
        from ottla.schemas.json_schema import JsonSchemaCodec

        codec = JsonSchemaCodec(self._document, self._others)
        shape = shape_of(object_type(Documents(self._document, self._others)))

        def read(value: bytes) -> dict[str, Any] | None:
            return shape(codec.tree(value))  # type: ignore[no-any-return]

        return read
