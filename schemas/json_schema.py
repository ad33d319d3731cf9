"""JSON that has a JSON Schema, checked by jsonschema-rs: nothing is fetched, and patterns take linear time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jsonschema_rs

from ottla.schemas.errors import SchemaError, ValueMismatchError, first_line
from ottla.schemas.json_text import schema_json, value_json

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText


class JsonSchemaCodec:
    """Implements Codec."""

    kind = "JSON"

    def __init__(self, document: Any, others: Mapping[str, Any]) -> None:
        self._validator = validator(document, others)
        self._title = document.get("title") if isinstance(document, dict) else None

    def check(self, body: bytes) -> None:
        self.tree(body)

    def tree(self, body: bytes) -> Any:
        value = value_json(body)
        try:
            found = next(iter(self._validator.iter_errors(value)), None)
        except (ValueError, RecursionError) as error:
            raise ValueMismatchError(f"it cannot be compared with the schema: {first_line(error)}") from None
        if found is not None:
            place = "".join(f"[{it}]" if isinstance(it, int) else f".{it}" for it in found.instance_path)
            raise ValueMismatchError(f"${place}: {found.message}")
        return value

    def to_json(self, body: bytes) -> str:
        return json.dumps(self.tree(body), ensure_ascii=False, separators=(",", ":"))

    def from_json(self, text: str) -> bytes:
        return json.dumps(self.tree(text.encode()), ensure_ascii=False, separators=(",", ":")).encode()

    def record_name(self, body: bytes) -> str:
        return self._title if isinstance(self._title, str) else ""


def codec(schema: SchemaText, message: str | None = None) -> JsonSchemaCodec:
    """Make a schema ready; its references are other schemas, by the names that `$ref` has for them. SchemaError."""
    others = {name: schema_json(text) for name, text in schema.references.items()}
    return JsonSchemaCodec(schema_json(schema.text), others)


def validator(document: Any, others: Mapping[str, Any]) -> Any:
    """The validator of values, by the draft that the schema names, or 2020-12. Raises SchemaError."""
    try:
        registry = jsonschema_rs.Registry(list(others.items())) if others else None
        return jsonschema_rs.validator_for(
            document, registry=registry, offline=True, pattern_options=jsonschema_rs.RegexOptions()
        )
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaError(f"the JSON Schema cannot be used: {first_line(error)}") from None
