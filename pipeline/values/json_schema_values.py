"""JSON that has a JSON Schema: each value is checked against its own."""

from __future__ import annotations

import json
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
        import jsonschema_rs

        registry = jsonschema_rs.Registry(list(self._others.items())) if self._others else None
        # Offline: nothing is fetched because a schema says so. And matching a pattern takes time linear in the text.
        validator = jsonschema_rs.validator_for(
            self._document, registry=registry, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
        shape = shape_of(object_type(Documents(self._document, self._others)))

        def read(value: bytes) -> dict[str, Any] | None:
            try:
                found = json.loads(value, parse_constant=_refuse)
            except RecursionError:
                raise ValueError("it is nested too deeply") from None
            if (error := next(iter(validator.iter_errors(found)), None)) is not None:
                where = "/".join(map(str, error.instance_path))
                raise ValueError(f"{where or 'it'}: {error.message}")
            return shape(found)  # type: ignore[no-any-return]

        return read


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
