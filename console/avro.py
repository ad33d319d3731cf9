"""Avro values in Confluent's wire format: a zero byte, the schema's id in four bytes, the value's binary encoding.

A small reader of Avro's binary encoding (specification 1.11), with limits: both schema and value come from outside, and
neither may make it read for long, nest deeply or build much.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

MAX_DEPTH: Final = 40
MAX_ITEMS: Final = 20_000
"""How many values of any kind one message may hold; a larger one is not shown as Avro."""

_MAGIC: Final = 0
_PREFIX: Final = struct.Struct(">bI")
_FLOAT: Final = struct.Struct("<f")
_DOUBLE: Final = struct.Struct("<d")

#: A schema as JSON has it: a type's name, a declaration, or a union's list.
Schema = str | Mapping[str, Any] | list[Any]


class AvroError(Exception):
    """The bytes do not match the schema, or the schema is not valid, or there is too much to show."""


def schema_id(data: bytes) -> int | None:
    """The id of the schema that a value in Confluent's wire format was written with; None for any other value."""
    if len(data) < _PREFIX.size:
        return None
    magic, number = _PREFIX.unpack_from(data)
    return int(number) if magic == _MAGIC else None


def decode(data: bytes, schema: Schema) -> Any:
    """Read a value in Confluent's wire format into what JSON can express. Raises AvroError.

    Bytes and fixed values become their hexadecimal digits, unions the value of their branch.
    """
    reader = _Reader(data, _PREFIX.size, named_types(schema))
    try:
        value = reader.read(schema, 0)
    except (IndexError, struct.error):
        raise AvroError("the value ends early") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise AvroError(f"the schema is not sound: {error!r}") from None
    if reader.position != len(data):
        raise AvroError(f"{len(data) - reader.position} bytes follow the value")
    return value


def named_types(schema: Any) -> dict[str, Any]:
    """Every record, enum and fixed of a schema, by its name with and without namespace."""
    found: dict[str, Any] = {}
    stack: list[tuple[Any, str]] = [(schema, "")]
    while stack:
        if len(found) > MAX_ITEMS or len(stack) > MAX_ITEMS:
            raise AvroError("the schema is too large")
        part, namespace = stack.pop()
        if isinstance(part, list):
            stack += [(branch, namespace) for branch in part]
        elif isinstance(part, dict):
            if isinstance(part.get("name"), str) and part.get("type") in ("record", "enum", "fixed", "error"):
                namespace = part.get("namespace") or part["name"].rpartition(".")[0] or namespace
                found[part["name"]] = found[part["name"].rpartition(".")[2]] = part
                if namespace:
                    found[f"{namespace}.{part['name'].rpartition('.')[2]}"] = part
            stack += [(part[key], namespace) for key in ("items", "values") if key in part]
            if not isinstance(part.get("type"), str):
                stack.append((part.get("type"), namespace))
            fields = part.get("fields")
            for field in fields if isinstance(fields, list) else ():
                if isinstance(field, dict):
                    stack.append((field.get("type"), namespace))
    return found


class _Reader:
    def __init__(self, data: bytes, position: int, names: Mapping[str, Any]) -> None:
        self._data = data
        self._names = names
        self._items = 0
        self.position = position

    def read(self, schema: Any, depth: int) -> Any:
        self._items += 1
        if depth > MAX_DEPTH or self._items > MAX_ITEMS:
            raise AvroError("the value is too large to be shown")
        if isinstance(schema, list):
            branch = self.read_long()
            if not 0 <= branch < len(schema):
                raise AvroError(f"a union of {len(schema)} types has no type {branch}")
            return self.read(schema[branch], depth + 1)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if not isinstance(kind, str):
            return self.read(kind, depth + 1)
        plain = _PLAIN.get(kind)
        if plain is not None:
            return plain(self)
        compound = _COMPOUND.get(kind)
        if compound is not None and isinstance(schema, dict):
            return compound(self, schema, depth + 1)
        if kind not in self._names:
            raise AvroError(f"the schema names no type {kind!r}")
        return self.read(self._names[kind], depth + 1)

    def read_null(self) -> None:
        return None

    def read_boolean(self) -> bool:
        return self._take(1) != b"\x00"

    def read_long(self) -> int:
        number = shift = 0
        while True:
            byte = self._data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise AvroError("a number takes more than ten bytes")

    def read_float(self) -> float:
        return float(_FLOAT.unpack(self._take(4))[0])

    def read_double(self) -> float:
        return float(_DOUBLE.unpack(self._take(8))[0])

    def read_bytes(self) -> str:
        return self._take(self.read_long()).hex()

    def read_string(self) -> str:
        return self._take(self.read_long()).decode("utf-8", "replace")

    def _take(self, length: int) -> bytes:
        end = self.position + length
        if length < 0 or end > len(self._data):
            raise AvroError("the value ends early")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def read_record(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        return {str(field["name"]): self.read(field["type"], depth) for field in schema["fields"]}

    def read_enum(self, schema: Mapping[str, Any], depth: int) -> str:
        index = self.read_long()
        symbols = schema["symbols"]
        if not 0 <= index < len(symbols):
            raise AvroError(f"an enum of {len(symbols)} symbols has no symbol {index}")
        return str(symbols[index])

    def read_fixed(self, schema: Mapping[str, Any], depth: int) -> str:
        return self._take(schema["size"]).hex()

    def read_array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        items: list[Any] = []
        while count := self._block():
            items += (self.read(schema["items"], depth) for _ in range(count))
        return items

    def read_map(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        items: dict[str, Any] = {}
        while count := self._block():
            for _ in range(count):
                key = self.read_string()
                items[key] = self.read(schema["values"], depth)
        return items

    def _block(self) -> int:
        """The number of items in the next block; 0 at the end."""
        count = self.read_long()
        if count < 0:
            self.read_long()  # the block's size, for readers that skip it
            count = -count
        if count > MAX_ITEMS:
            raise AvroError("the value is too large to be shown")
        return count


_PLAIN: Final[Mapping[str, Callable[[_Reader], Any]]] = {
    "null": _Reader.read_null,
    "boolean": _Reader.read_boolean,
    "int": _Reader.read_long,
    "long": _Reader.read_long,
    "float": _Reader.read_float,
    "double": _Reader.read_double,
    "bytes": _Reader.read_bytes,
    "string": _Reader.read_string,
}
_COMPOUND: Final[Mapping[str, Callable[[_Reader, Mapping[str, Any], int], Any]]] = {
    "record": _Reader.read_record,
    "error": _Reader.read_record,
    "enum": _Reader.read_enum,
    "fixed": _Reader.read_fixed,
    "array": _Reader.read_array,
    "map": _Reader.read_map,
}
