"""The rules of the three types, case by case, and what holds for all schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from avro.schema import parse as apache_parse
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.registry import formats
from ottla.registry.compatibility import levels
from ottla.registry.formats import AVRO, JSON, KINDS, PROTOBUF, Parsed


def parse(kind: str, schema: object) -> Parsed:
    return formats.parse(kind, schema if isinstance(schema, str) else json.dumps(schema), {})


def errors(kind: str, old: object, new: object) -> list[str]:
    """The types of the errors when what was written with `old` is read with `new`."""
    found = formats.messages(kind, parse(kind, new), parse(kind, old), is_reader_new=True)
    return [text.split("'" if kind == AVRO else '"')[1] for text in found]


def obj(properties: dict[str, Any], *required: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)} | more


S, INT, N = {"type": "string"}, {"type": "integer"}, {"type": "number"}
CLOSED: dict[str, Any] = {"additionalProperties": False}

# The old schema, the new one, and why the new one cannot read what the old one wrote.
JSON_CASES: list[tuple[Any, Any, list[str]]] = [
    ({}, S, ["TYPE_CHANGED"]),
    (S, {}, []),
    (S, True, []),
    (False, S, []),
    (S, False, ["TYPE_CHANGED"]),
    (S, INT, ["TYPE_CHANGED"]),
    (INT, N, []),
    (N, INT, ["TYPE_NARROWED"]),
    (S, {"type": ["string", "null"]}, []),
    ({"type": ["string", "null"]}, S, ["TYPE_CHANGED"]),
    ({"type": ["string", "null"]}, {"type": ["string"]}, ["TYPE_CHANGED"]),
    (S, {"oneOf": [S, {"type": "null"}]}, []),
    (S, {"allOf": [S]}, []),
    ({"oneOf": [S]}, S, []),
    ({"oneOf": [S, INT]}, {"oneOf": [S, INT, {"type": "null"}]}, []),
    ({"oneOf": [S, INT]}, {"oneOf": [INT, S]}, []),
    ({"oneOf": [S, INT]}, {"oneOf": [S]}, ["SUM_TYPE_NARROWED"]),
    ({"oneOf": [S, INT]}, {"oneOf": [S, {"type": "null"}]}, ["COMBINED_TYPE_SUBSCHEMAS_CHANGED"]),
    ({"oneOf": [S, INT]}, {"anyOf": [S, INT]}, []),
    ({"anyOf": [S, INT]}, {"oneOf": [S, INT]}, ["COMBINED_TYPE_CHANGED"]),
    ({"allOf": [S]}, {"allOf": [S, {"maxLength": 3}]}, ["PRODUCT_TYPE_EXTENDED"]),
    ({"allOf": [S, {"maxLength": 3}]}, {"allOf": [S]}, []),
    ({"enum": [1, 2]}, {"enum": [1, 2, 3]}, []),
    ({"enum": [1, 2]}, {"enum": [1]}, ["ENUM_ARRAY_NARROWED"]),
    ({"enum": [1, 2]}, {"enum": [1, 3]}, ["ENUM_ARRAY_CHANGED"]),
    ({"const": 1}, {"enum": [1, 3]}, []),
    ({"not": S}, {"not": {"type": "string", "maxLength": 3}}, []),
    ({"not": {"type": "string", "maxLength": 3}}, {"not": S}, ["NOT_TYPE_EXTENDED"]),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 4}, []),
    ({"type": "string", "maxLength": 3}, {"type": "string", "maxLength": 2}, ["MAX_LENGTH_DECREASED"]),
    (S, {"type": "string", "maxLength": 2}, ["MAX_LENGTH_ADDED"]),
    ({"type": "string", "maxLength": 2}, S, []),
    ({"type": "string", "minLength": 2}, {"type": "string", "minLength": 3}, ["MIN_LENGTH_INCREASED"]),
    (S, {"type": "string", "pattern": "a"}, ["PATTERN_ADDED"]),
    ({"type": "string", "pattern": "b"}, {"type": "string", "pattern": "a"}, ["PATTERN_CHANGED"]),
    ({"type": "number", "maximum": 3}, {"type": "number", "maximum": 2}, ["MAXIMUM_DECREASED"]),
    ({"type": "number", "exclusiveMinimum": 1}, {"type": "number", "exclusiveMinimum": 0}, []),
    ({"type": "number", "multipleOf": 4}, {"type": "number", "multipleOf": 2}, []),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 4}, ["MULTIPLE_OF_EXPANDED"]),
    ({"type": "number", "multipleOf": 2}, {"type": "number", "multipleOf": 3}, ["MULTIPLE_OF_CHANGED"]),
    (N, {"type": "number", "multipleOf": 3}, ["MULTIPLE_OF_ADDED"]),
    (obj({"a": S}), obj({"a": S, "b": INT}), ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (obj({"a": S}), obj({"a": S, "b": {}}), []),
    (obj({"a": S, "b": INT}), obj({"a": S}), []),
    (obj({"a": S}, **CLOSED), obj({"a": S, "b": INT}, **CLOSED), []),
    (obj({"a": S}, **CLOSED), obj({"b": INT}, **CLOSED), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    (
        obj({"a": S}, **CLOSED),
        obj({"a": S, "b": INT}, "b", **CLOSED),
        ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"],
    ),
    (obj({"a": S}, **CLOSED), obj({"a": S, "b": {"type": "integer", "default": 0}}, "b", **CLOSED), []),
    (obj({"a": S}), obj({"a": S}, "a"), ["REQUIRED_ATTRIBUTE_ADDED"]),
    (obj({"a": S}, "a"), obj({"a": S}), []),
    (obj({"a": S}), obj({"a": S}, **CLOSED), ["ADDITIONAL_PROPERTIES_REMOVED"]),
    (obj({"a": S}, **CLOSED), obj({"a": S}), []),
    (obj({"a": S}), obj({"a": S}, additionalProperties=INT), ["ADDITIONAL_PROPERTIES_NARROWED"]),
    (obj({"a": S}, additionalProperties=INT), obj({"a": S, "b": INT}, additionalProperties=INT), []),
    (
        obj({"a": S}, additionalProperties=INT),
        obj({"a": S, "b": S}, additionalProperties=INT),
        ["TYPE_CHANGED", "PROPERTY_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL"],
    ),
    (obj({"b": INT}, patternProperties={"^b": INT}, **CLOSED), obj({}, patternProperties={"^b": INT}, **CLOSED), []),
    (obj({}), obj({}, dependencies={"a": ["b"]}), ["DEPENDENCY_ARRAY_ADDED"]),
    (obj({}, dependencies={"a": ["b", "c"]}), obj({}, dependencies={"a": ["b"]}), []),
    (obj({}, dependencies={"a": ["b"]}), obj({}, dependentRequired={"a": ["b"]}), []),
    ({"type": "array", "items": S}, {"type": "array", "items": INT}, ["TYPE_CHANGED"]),
    ({"type": "array"}, {"type": "array", "items": INT}, ["ADDITIONAL_ITEMS_NARROWED"]),
    ({"type": "array", "items": [S]}, {"type": "array", "items": [S, INT]}, ["ITEM_ADDED_TO_OPEN_CONTENT_MODEL"]),
    (
        {"type": "array", "items": [S], "additionalItems": False},
        {"type": "array", "items": [S, INT], "additionalItems": False},
        [],
    ),
    (
        {"type": "array", "prefixItems": [S, INT], "items": False},
        {"type": "array", "prefixItems": [S], "items": False},
        ["ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL"],
    ),
    ({"type": "array"}, {"type": "array", "uniqueItems": True}, ["UNIQUE_ITEMS_ADDED"]),
    ({"type": "array", "maxItems": 3}, {"type": "array", "maxItems": 2}, ["MAX_ITEMS_DECREASED"]),
    (S | {"title": "a", "description": "b"}, S | {"title": "c"}, []),
]


@pytest.mark.parametrize(("old", "new", "wanted"), JSON_CASES)
def test_json_schema(old: object, new: object, wanted: list[str]) -> None:
    assert errors(JSON, old, new) == wanted
    assert errors(JSON, old, old) == []
    assert errors(JSON, new, new) == []


def proto(body: str, syntax: str = "proto3") -> str:
    return f'syntax = "{syntax}"; package p; {body}'


PROTO_CASES = [
    ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }", []),
    ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", []),
    ("message A { int32 a = 1; }", "message A { int32 renamed = 1; }", []),
    ("message A { int32 a = 1; }", "message A { int64 a = 1; }", []),
    ("message A { int32 a = 1; }", "message A { sint32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { string a = 1; }", "message A { bytes a = 1; }", []),
    ("message A { string a = 1; }", "message A { int32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { fixed32 a = 1; }", "message A { sfixed32 a = 1; }", []),
    ("message A { E a = 1; } enum E { X = 0; }", "message A { int32 a = 1; }", []),
    ("message A { B a = 1; } message B {}", "message A { int32 a = 1; } message B {}", ["FIELD_KIND_CHANGED"]),
    (
        "message A { B a = 1; } message B {} message C {}",
        "message A { C a = 1; } message B {} message C {}",
        ["FIELD_NAMED_TYPE_CHANGED"],
    ),
    ("message A {} message B {}", "message A {}", ["MESSAGE_REMOVED"]),
    ("message A { message B {} }", "message A { }", ["MESSAGE_REMOVED"]),
    ("message A {}", "message A {} message B {}", []),
    ("message A { int32 a = 1; }", "message A { repeated int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
    ("message A { string a = 1; }", "message A { repeated string a = 1; }", []),
    ("message A { map<string, int32> a = 1; }", "message A { map<string, int64> a = 1; }", []),
    (
        "message A { map<string, int32> a = 1; }",
        "message A { map<string, B> a = 1; } message B {}",
        ["FIELD_KIND_CHANGED"],
    ),
    ("message A { map<string, int32> a = 1; }", "message A { string a = 1; }", ["FIELD_KIND_CHANGED"]),
    (
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        "message A { oneof o { int32 a = 1; } }",
        ["ONEOF_FIELD_REMOVED"],
    ),
    ("message A { oneof o { int32 a = 1; } }", "message A { oneof o { int32 a = 1; int32 b = 2; } }", []),
    ("message A { int32 a = 1; }", "message A { oneof o { int32 a = 1; } }", []),
    (
        "message A { int32 a = 1; int32 b = 2; }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    (
        "message A { oneof o { int32 a = 1; } int32 b = 2; }",
        "message A { oneof o { int32 a = 1; int32 b = 2; } }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    ("message A { enum E { X = 0; Y = 1; } }", "message A { enum E { X = 0; } }", []),
]


@pytest.mark.parametrize(("old", "new", "wanted"), PROTO_CASES)
def test_protobuf(old: str, new: str, wanted: list[str]) -> None:
    assert errors(PROTOBUF, proto(old), proto(new)) == wanted
    assert errors(PROTOBUF, proto(new), proto(new)) == []


def test_required_fields_of_proto2() -> None:
    without, with_it = proto("message A {}", "proto2"), proto("message A { required int32 a = 1; }", "proto2")
    assert errors(PROTOBUF, without, with_it) == ["REQUIRED_FIELD_ADDED"]
    assert errors(PROTOBUF, with_it, without) == ["REQUIRED_FIELD_REMOVED"]


# Avro: random schemas, with Apache's own checker for Python as the oracle.

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@st.composite
def avro_schemas(draw: st.DrawFn) -> Any:
    counter = iter(range(1_000))

    def fixed() -> Any:
        return {
            "type": "fixed",
            "name": f"F{next(counter) % 3}{draw(st.integers(0, 99))}",
            "size": draw(st.integers(1, 2)),
        }

    def named(depth: int) -> Any:
        kind = draw(st.sampled_from(("enum", "record", "fixed") if depth else ("enum", "fixed")))
        if kind == "fixed":
            return fixed()
        name = f"N{draw(st.integers(0, 1))}_{next(counter)}"
        if kind == "enum":
            symbols = draw(st.lists(st.sampled_from("ABC"), min_size=1, unique=True))
            return {"type": "enum", "name": name, "symbols": symbols}
        return {"type": "record", "name": name, "fields": fields(depth - 1)}

    def fields(depth: int) -> Any:
        names = draw(st.lists(st.sampled_from("abcd"), max_size=4, unique=True))
        found = []
        for name in names:
            kind = draw(st.sampled_from(PRIMITIVES)) if draw(st.booleans()) else anything(depth)
            has_default = kind == "int" and draw(st.booleans())
            found.append({"name": name, "type": kind} | ({"default": 0} if has_default else {}))
        return found

    def anything(depth: int) -> Any:
        kind = draw(st.sampled_from(("primitive", "array", "map", "union", "named") if depth else ("primitive",)))
        if kind == "primitive":
            return draw(st.sampled_from(PRIMITIVES))
        if kind == "array":
            return {"type": "array", "items": anything(depth - 1)}
        if kind == "map":
            return {"type": "map", "values": anything(depth - 1)}
        if kind == "union":
            return draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=4, unique=True))
        return named(depth)

    return {"type": "record", "name": "R", "fields": fields(3)}


@settings(deadline=None, max_examples=150)
@given(avro_schemas(), avro_schemas())
def test_avro_decides_as_apache_does(one: Any, other: Any) -> None:
    for old, new in ((one, other), (one, one)):
        checker: Any = ReaderWriterCompatibilityChecker()  # type: ignore[no-untyped-call]
        apache = checker.get_compatibility(apache_parse(json.dumps(new)), apache_parse(json.dumps(old)))
        assert (errors(AVRO, old, new) == []) == (apache.compatibility is SchemaCompatibilityType.compatible)


@settings(deadline=None, max_examples=50)
@given(avro_schemas())
def test_avro_texts_are_stable(schema: Any) -> None:
    first = parse(AVRO, schema)
    assert parse(AVRO, first.canonical).canonical == first.canonical
    assert parse(AVRO, first.normalized()).normalized() == first.normalized()


json_schemas = st.recursive(
    st.sampled_from(
        [{}, S, INT, N, {"type": "null"}, {"enum": [1, "a"]}, {"type": "string", "maxLength": 3}, True, False]
    ),
    lambda inner: st.one_of(
        st.builds(
            lambda properties, is_closed, required: obj(
                properties, *(required & set(properties)), **(CLOSED if is_closed else {})
            ),
            st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            st.booleans(),
            st.sets(st.sampled_from("abc")),
        ),
        st.builds(lambda items: {"type": "array", "items": items}, inner),
        st.builds(
            lambda name, parts: {name: parts},
            st.sampled_from(["oneOf", "anyOf", "allOf"]),
            st.lists(inner, min_size=1, max_size=3),
        ),
    ),
    max_leaves=8,
)

proto_types = st.sampled_from(["int32", "int64", "sint32", "string", "bytes", "bool", "double", "A", "repeated int32"])
proto_schemas = st.dictionaries(st.integers(1, 5), proto_types, max_size=5).map(
    lambda fields: proto(
        " ".join(["message A {", *(f"{kind} f{number} = {number};" for number, kind in fields.items()), "}"])
    )
)

SCHEMAS = {AVRO: avro_schemas(), JSON: json_schemas, PROTOBUF: proto_schemas}


@settings(deadline=None, max_examples=60)
@given(st.data(), st.sampled_from(KINDS))
def test_what_holds_for_all_schemas(data: st.DataObject, kind: str) -> None:
    one, other = (parse(kind, data.draw(SCHEMAS[kind])) for _ in range(2))
    earlier = [levels.Earlier(1, kind, one.canonical, lambda: one)]

    def is_compatible(new: Parsed, level: str) -> bool:
        return levels.messages(kind, new, earlier, level) == []

    for level in levels.LEVELS:
        assert is_compatible(one, level), "a schema is compatible with itself"
    both = is_compatible(other, "BACKWARD") and is_compatible(other, "FORWARD")
    assert is_compatible(other, "FULL") == both
    backwards = levels.messages(kind, one, [levels.Earlier(1, kind, other.canonical, lambda: other)], "BACKWARD")
    assert (backwards == []) == is_compatible(other, "FORWARD")
    assert is_compatible(other, "NONE")
