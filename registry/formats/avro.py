"""Avro: parses by the specification and by what Java's `Schema.Parser` accepts, and writes as Java's `Schema.toString`
does, which is what Confluent's registry stores.

No library for Python keeps all of that: fastavro accepts a union with a type twice, fields of the same name and names
that are none, and answers some invalid schemas with KeyError; none writes Java's order of attributes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from ottla.registry.formats import InvalidSchemaError
from ottla.registry.formats.avro_text import canonical_text, normalized_text
from ottla.registry.formats.avro_types import NAMED, PRIMITIVES, Field, Type
from ottla.registry.formats.json_text import dumps, loads

_NAME: Final = re.compile(r"[^\W\d]\w*")
_ORDERS: Final = ("ascending", "descending", "ignore")
_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)

_OF_TYPE: Final = frozenset(
    {"type", "name", "namespace", "doc", "aliases", "fields", "symbols", "default", "size", "items", "values"}
)
_OF_FIELD: Final = frozenset({"name", "type", "doc", "default", "order", "aliases"})


class AvroSchema:
    """A parsed schema."""

    def __init__(self, root: Type, referenced: frozenset[str]) -> None:
        self.root = root
        self._referenced = referenced
        self.canonical = canonical_text(root, referenced)

    def normalized(self) -> str:
        return normalized_text(self.root, self._referenced)

    def formatted(self, form: str) -> str:
        """`resolved` has the referenced types in the place of their names."""
        return canonical_text(self.root, frozenset()) if form == "resolved" else self.canonical


def parse(text: str, references: Mapping[str, str]) -> AvroSchema:
    """Parse a schema whose references define types that it names. Raises InvalidSchemaError."""
    parser = _Parser()
    for other in references.values():
        parser.parse(loads(other), None)
    referenced = frozenset(parser.named)
    return AvroSchema(parser.parse(loads(text), None), referenced)


class _Parser:
    def __init__(self) -> None:
        self.named: dict[str, Type] = {}

    def parse(self, schema: Any, namespace: str | None) -> Type:
        if isinstance(schema, str):
            return self._by_name(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        if not isinstance(schema, dict):
            raise InvalidSchemaError(f"{_shown(schema)} is no type")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.parse(kind, namespace)
        if not isinstance(kind, str):
            raise InvalidSchemaError(f"no type: {_shown(schema)}")
        if kind in NAMED:
            return self._named(kind, schema, namespace)
        if kind in ("array", "map"):
            return self._collection(kind, schema, namespace)
        if kind not in PRIMITIVES:
            return self._by_name(kind, namespace)
        type_ = Type(kind)
        type_.props = _props(schema, _OF_TYPE - {"default", "name", "doc", "aliases"})
        return type_

    def _by_name(self, name: str, namespace: str | None) -> Type:
        if name in PRIMITIVES:
            return Type(name)
        if "." not in name and namespace:
            found = self.named.get(f"{namespace}.{name}") or self.named.get(name)
        else:
            found = self.named.get(name)
        if found is None:
            raise InvalidSchemaError(f"{_shown(name)} is not a defined name")
        return found

    def _union(self, branches: list[Any], namespace: str | None) -> Type:
        union = Type("union")
        seen: set[str] = set()
        for branch in branches:
            parsed = self.parse(branch, namespace)
            if parsed.kind == "union":
                raise InvalidSchemaError("a union is directly inside a union")
            if parsed.label in seen:
                raise InvalidSchemaError(f"{parsed.label} is in a union twice")
            seen.add(parsed.label)
            union.branches.append(parsed)
        return union

    def _collection(self, kind: str, schema: Mapping[str, Any], namespace: str | None) -> Type:
        attribute = "items" if kind == "array" else "values"
        if attribute not in schema:
            raise InvalidSchemaError(f"{_shown(schema)} has no {attribute}")
        type_ = Type(kind)
        type_.inner = self.parse(schema[attribute], namespace)
        type_.props = _props(schema, _OF_TYPE - {"default", "name", "doc", "aliases"})
        return type_

    def _named(self, kind: str, schema: Mapping[str, Any], namespace: str | None) -> Type:
        name = _full_name(schema.get("name"), schema.get("namespace"), namespace)
        type_ = Type(kind, name)
        type_.doc = schema["doc"] if isinstance(schema.get("doc"), str) else None
        type_.aliases = _aliases(schema, type_.namespace)
        type_.props = _props(schema, _OF_TYPE)
        if name in self.named:
            raise InvalidSchemaError(f"{_shown(name)} is defined twice")
        if type_.simple_name in PRIMITIVES:
            raise InvalidSchemaError(f"{_shown(name)} is the name of a primitive type")
        self.named[name] = type_
        if kind == "enum":
            _read_enum(type_, schema)
        elif kind == "fixed":
            size = schema.get("size")
            if type(size) is not int or not 0 <= size < 2**31:
                raise InvalidSchemaError(f"the size of {name} is no whole number")
            type_.size = size
        else:
            self._read_fields(type_, schema)
        return type_

    def _read_fields(self, record: Type, schema: Mapping[str, Any]) -> None:
        fields = schema.get("fields")
        if not isinstance(fields, list):
            raise InvalidSchemaError(f"the record {record.name} has no fields")
        names: set[str] = set()
        for given in fields:
            if not isinstance(given, dict):
                raise InvalidSchemaError(f"a field of {record.name} is {_shown(given)}, and no object")
            name = given.get("name")
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise InvalidSchemaError(f"{_shown(name)} is no name of a field in {record.name}")
            if name in names:
                raise InvalidSchemaError(f"the field {name} is in {record.name} twice")
            names.add(name)
            if "type" not in given:
                raise InvalidSchemaError(f"the field {name} of {record.name} has no type")
            record.fields.append(self._field(name, given, record))
        # Only after all types are known: a default may be of one that is defined later.
        for field in record.fields:
            if field.has_default and not _fits(field.default, field.type):
                what = f"the default of {record.name}.{field.name}, {_shown(field.default)},"
                raise InvalidSchemaError(f"{what} is no {field.type.label}")

    def _field(self, name: str, given: Mapping[str, Any], record: Type) -> Field:
        field = Field(name, self.parse(given["type"], record.namespace))
        if "default" in given:
            field.default = given["default"]
        if isinstance(given.get("doc"), str):
            field.doc = given["doc"]
        order = given.get("order")
        if order is not None:
            if not isinstance(order, str) or order.lower() not in _ORDERS:
                raise InvalidSchemaError(f"{_shown(order)} is no order of the field {record.name}.{name}")
            field.order = None if order.lower() == "ascending" else order.lower()
        aliases = given.get("aliases", [])
        if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
            raise InvalidSchemaError(f"the aliases of {record.name}.{name} are no list of names")
        field.aliases = aliases
        field.props = _props(given, _OF_FIELD)
        return field


def _read_enum(enum: Type, schema: Mapping[str, Any]) -> None:
    symbols = schema.get("symbols")
    if not isinstance(symbols, list):
        raise InvalidSchemaError(f"the enum {enum.name} has no symbols")
    for symbol in symbols:
        if not isinstance(symbol, str) or not _NAME.fullmatch(symbol):
            raise InvalidSchemaError(f"{_shown(symbol)} is no symbol in {enum.name}")
    if len(set(symbols)) < len(symbols):
        raise InvalidSchemaError(f"a symbol is in {enum.name} twice")
    enum.symbols = symbols
    default = schema.get("default")
    if default is not None:
        if default not in symbols:
            raise InvalidSchemaError(f"the default of {enum.name}, {_shown(default)}, is none of its symbols")
        enum.default = default


def _full_name(name: Any, namespace: Any, around: str | None) -> str:
    if not isinstance(name, str):
        raise InvalidSchemaError("a named type has no name")
    full: str = name
    if "." not in name:
        given = namespace if isinstance(namespace, str) else around
        full = f"{given}.{name}" if given else name
    full = full.removeprefix(".")
    if not all(_NAME.fullmatch(part) for part in full.split(".")):
        raise InvalidSchemaError(f"{_shown(name)} is no name")
    return full


def _aliases(schema: Mapping[str, Any], namespace: str | None) -> list[str]:
    aliases = schema.get("aliases", [])
    if not isinstance(aliases, list) or not all(isinstance(alias, str) for alias in aliases):
        raise InvalidSchemaError("aliases are no list of names")
    return [alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in aliases]


def _props(schema: Mapping[str, Any], reserved: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name not in reserved}


def _fits(value: Any, type_: Type) -> bool:
    """Whether a JSON value may be the default of a type."""
    kind = type_.kind
    if kind == "union":
        return any(_fits(value, branch) for branch in type_.branches)
    if kind == "null":
        return value is None
    if kind == "boolean":
        return isinstance(value, bool)
    if kind in ("int", "long"):
        return type(value) is int and value in (_INT if kind == "int" else _LONG)
    if kind in ("float", "double"):
        return type(value) in (int, float)
    if kind in ("string", "bytes", "fixed"):
        return isinstance(value, str)
    if kind == "enum":
        return value in type_.symbols
    if kind == "array":
        assert type_.inner is not None
        return isinstance(value, list) and all(_fits(item, type_.inner) for item in value)
    if kind == "map":
        inner = type_.inner
        assert inner is not None
        return isinstance(value, dict) and all(_fits(item, inner) for item in value.values())
    return isinstance(value, dict) and all(
        _fits(value[field.name], field.type) if field.name in value else field.has_default for field in type_.fields
    )


def _shown(value: Any) -> str:
    text = dumps(value)
    return text if len(text) <= 100 else f"{text[:100]}…"
