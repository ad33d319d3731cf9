"""Avro's values, read and written by fastavro.

Logical types are left aside: a value is what its bytes say, as it is for Java's JsonEncoder, and a date that Python
does not have is no fault.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import fastavro

# The same reader in Python, which counts how deep it is; that in C ends the process when its stack does.
from fastavro import _read_py

from ottla.schemas.errors import SchemaError, ValueMismatchError, first_line
from ottla.schemas.json_text import schema_json, value_json

if TYPE_CHECKING:
    from ottla.client.schema_registry import SchemaText

_PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_EMPTY: Final = "null"


class AvroCodec:
    """Implements Codec."""

    kind = "AVRO"

    def __init__(self, documents: list[Any]) -> None:
        self.parsed = parsed(documents)
        root = documents[-1]
        self._name = root.get("name", "") if isinstance(root, dict) else ""
        if self._name and "." not in self._name and root.get("namespace"):
            self._name = f"{root['namespace']}.{self._name}"
        try:
            is_recursive = _Walk().look(documents)
        except (KeyError, TypeError, AttributeError, RecursionError) as error:
            raise SchemaError(f"the Avro schema cannot be used: {error!r}") from None
        self._read: Callable[..., Any] = _read_py.schemaless_reader if is_recursive else fastavro.schemaless_reader

    def check(self, body: bytes) -> None:
        self._value(body)

    def tree(self, body: bytes) -> Any:
        return _shown(self._value(body))

    def to_json(self, body: bytes) -> str:
        value = self._value(body, return_named_type=True)
        out = io.StringIO()
        try:
            fastavro.json_writer(out, self.parsed, [value])
        except Exception as error:  # noqa: BLE001 - it gives no promise
            raise ValueMismatchError(f"it cannot be written as JSON: {first_line(error)}") from None
        return out.getvalue()

    def from_json(self, text: str) -> bytes:
        value_json(text)
        out = io.BytesIO()
        try:
            (value,) = fastavro.json_reader(io.StringIO(text), self.parsed)
            fastavro.schemaless_writer(out, self.parsed, value)
        except Exception as error:  # noqa: BLE001 - it gives no promise
            raise ValueMismatchError(f"it does not fit the Avro schema: {first_line(error)}") from None
        return out.getvalue()

    def record_name(self, body: bytes) -> str:
        return str(self._name)

    def _value(self, body: bytes, **options: bool) -> Any:
        stream = io.BytesIO(body)
        try:
            value = self._read(stream, self.parsed, None, **options)
        except Exception as error:  # noqa: BLE001 - bytes that are no Avro may make it stumble over anything
            raise ValueMismatchError(f"it is not Avro of this schema: {first_line(error)}") from None
        if rest := len(body) - stream.tell():
            raise ValueMismatchError(f"{rest} bytes follow the Avro value")
        return value


def codec(schema: SchemaText, message: str | None = None) -> AvroCodec:
    """Make a schema ready; its references are other schemas' named types. Raises SchemaError."""
    texts = (*schema.references.values(), schema.text)
    return AvroCodec([_plain(schema_json(text)) for text in texts])


def parsed(documents: list[Any]) -> Any:
    """The last of some schemas as fastavro takes it; those before define types that it names. Raises SchemaError."""
    named: dict[str, Any] = {}
    try:
        for document in documents:
            found = fastavro.parse_schema(document, named_schemas=named)
    except Exception as error:  # noqa: BLE001 - whatever it stumbles over, it is the schema's fault
        raise SchemaError(f"the Avro schema cannot be used: {first_line(error)}") from None
    return found


def _plain(schema: Any) -> Any:
    """A schema without its logical types."""
    if isinstance(schema, list):
        return [_plain(branch) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: part for name, part in schema.items() if name != "logicalType"}
    for name in ("type", "items", "values"):
        if name in kept:
            kept[name] = _plain(kept[name])
    if isinstance(kept.get("fields"), list):
        kept["fields"] = [_plain(field) for field in kept["fields"]]
    return kept


def _shown(value: Any) -> Any:
    """A value as JSON can express it: bytes are their hexadecimal digits."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _shown(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_shown(part) for part in value]
    return value


class _Walk:
    """Finds what a few bytes could make endless. A type within itself is read by the reader that counts."""

    def __init__(self) -> None:
        self._is_empty: dict[str, bool] = {}
        self._is_recursive = False

    def look(self, documents: list[Any]) -> bool:
        """Whether a type contains itself. Raises SchemaError for an array of what takes no bytes."""
        for document in documents:
            self._empty(document, (), "")
        return self._is_recursive

    def _empty(self, schema: Any, within: tuple[str, ...], space: str) -> bool:
        """Whether a schema's values may take no bytes."""
        if isinstance(schema, list):
            for one in schema:
                self._empty(one, within, space)
            return False  # the branch takes a byte
        if isinstance(schema, str):
            return self._named_empty(schema, within, space)
        kind = schema["type"]
        if kind in ("array", "map"):
            is_empty = self._empty(schema["items" if kind == "array" else "values"], within, space)
            if is_empty and kind == "array":
                raise SchemaError("an Avro array of what takes no bytes might be without end")
            return False
        if kind in ("record", "error", "fixed", "enum"):
            return self._declared_empty(kind, schema, within, space)
        return self._empty(kind, within, space)

    def _named_empty(self, name: str, within: tuple[str, ...], space: str) -> bool:
        if name in _PRIMITIVES:
            return name == _EMPTY
        full = name if "." in name or not space else f"{space}.{name}"
        full = full if full in self._is_empty or full in within else name
        if full in within:
            self._is_recursive = True
        return self._is_empty.get(full, False)

    def _declared_empty(self, kind: str, schema: Any, within: tuple[str, ...], space: str) -> bool:
        space = schema.get("namespace", space)
        name = schema["name"] if "." in schema["name"] or not space else f"{space}.{schema['name']}"
        is_empty = kind == "fixed" and not schema["size"]
        if kind in ("record", "error"):
            inside = [
                self._empty(field["type"], (*within, name), name.rpartition(".")[0]) for field in schema["fields"]
            ]
            is_empty = all(inside)
        self._is_empty[name] = is_empty
        return is_empty
