"""Values of all three formats: what fits, what does not, and what is meant to do harm."""

from __future__ import annotations

import io
import json
import struct
from typing import Any

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("jsonschema_rs")
pytest.importorskip("grpc_tools")

import fastavro
from hypothesis import given
from hypothesis import strategies as st

from ottla.client.schema_registry import SchemaText
from ottla.schemas.codec import Codec, codec_of
from ottla.schemas.errors import SchemaError, ValueMismatchError
from ottla.schemas.framing import framed, joined_indexes, schema_id, split_indexes

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [{"name": "left", "type": ["null", "Tree"]}, {"name": "right", "type": ["null", "Tree"]}],
}
PROTO = 'syntax = "proto3"; package shop; message A { string x = 1; } message B { message C { int64 n = 1; } C c = 1; }'


def avro(schema: Any, **references: Any) -> Codec:
    return codec_of(SchemaText("AVRO", json.dumps(schema), {name: json.dumps(it) for name, it in references.items()}))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


CODECS = [
    avro(ORDER),
    avro(TREE),
    codec_of(SchemaText("JSON", '{"type": "object"}')),
    codec_of(SchemaText("PROTOBUF", PROTO)),
]


def test_avro_as_confluents_console_tools_print_and_read_it() -> None:
    codec = avro(ORDER)
    # Bytes are characters of ISO 8859-1 and unions name their branch, as Java's JsonEncoder has it; times are numbers.
    text = '{"id": 7, "note": {"string": "café"}, "hash": "\\u0001\\u00ff", "at": 253402300800000}'
    body = codec.from_json(text)
    assert json.loads(codec.to_json(body)) == json.loads(text)
    assert codec.tree(body) == {"id": 7, "note": "café", "hash": "01ff", "at": 253402300800000}
    assert codec.record_name(body) == "shop.Order"
    codec.check(body)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "it is not JSON"),
        ('{"id": 1}', "it does not fit the Avro schema"),
        ('{"id": NaN, "note": null, "hash": "ab", "at": 1}', "NaN is not a number"),
        ('{"id": "x", "note": null, "hash": "ab", "at": 1}', "it does not fit the Avro schema"),
        ("[" * 100_000, "it is not JSON"),
    ],
)
def test_json_that_is_no_value_of_an_avro_schema(text: str, reason: str) -> None:
    with pytest.raises(ValueMismatchError, match=reason):
        avro(ORDER).from_json(text)


def test_avro_bytes_that_end_early_or_go_on() -> None:
    codec, body = avro(ORDER), avro(ORDER).from_json('{"id": 1, "note": null, "hash": "ab", "at": 1}')
    for wrong in (body[:-1], b"", body + b"\0", b"\xff" * 30):
        with pytest.raises(ValueMismatchError):
            codec.check(wrong)


def test_avro_references_define_types_that_a_schema_names() -> None:
    line = {"type": "record", "name": "Line", "fields": [{"name": "order", "type": "shop.Order"}]}
    body = avro(ORDER).from_json('{"id": 1, "note": null, "hash": "ab", "at": 1}')
    assert avro(line, **{"shop.Order": ORDER}).tree(body)["order"]["id"] == 1


def test_avro_types_that_contain_themselves_are_read_and_bounded() -> None:
    codec = avro(TREE)
    assert codec.tree(written(TREE, {"left": {"left": None, "right": None}, "right": None})) == {
        "left": {"left": None, "right": None},
        "right": None,
    }
    # A byte for each level: read by recursive code in C this ends the process.
    for depth in (5_000, 500_000):
        with pytest.raises(ValueMismatchError, match="it is not Avro of this schema: maximum recursion depth"):
            codec.check(b"\x02" * depth + b"\0" * (depth + 2))


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "items": "null"},
        {"type": "array", "items": {"type": "fixed", "name": "F", "size": 0}},
        {"type": "array", "items": {"type": "record", "name": "E", "fields": []}},
    ],
)
def test_avro_arrays_of_what_takes_no_bytes_are_refused(schema: Any) -> None:
    with pytest.raises(SchemaError, match="might be without end"):
        avro(schema)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_schemas_that_cannot_be_used(kind: str) -> None:
    for text in ("{", "[" * 5_000, '{"type": "nonsense"}', '{"a":' * 101 + "1" + "}" * 101):
        with pytest.raises(SchemaError):
            codec_of(SchemaText(kind, text))


def test_json_schema() -> None:
    address = {"$id": "address.json", "type": "object", "required": ["city"]}
    schema = {"title": "Order", "properties": {"to": {"$ref": "address.json"}, "n": {"minimum": 1}}}
    codec = codec_of(SchemaText("JSON", json.dumps(schema), {"address.json": json.dumps(address)}))
    assert codec.to_json(codec.from_json('{"n": 1, "to": {"city": "Tōkyō"}}')) == '{"n":1,"to":{"city":"Tōkyō"}}'
    assert codec.record_name(b"{}") == "Order"
    with pytest.raises(ValueMismatchError, match=r'^\$\.to: "city" is a required property$'):
        codec.check(b'{"to": {}}')
    with pytest.raises(ValueMismatchError, match="it is not JSON"):
        codec.check(b"\xff")


def test_protobuf_messages_by_their_place() -> None:
    schema = SchemaText("PROTOBUF", PROTO)
    first, inner = codec_of(schema), codec_of(schema, message="shop.B.C")
    assert first.from_json('{"x": "y"}') == b"\x00\x0a\x01y"
    body = inner.from_json('{"n": "5"}')
    assert body == b"\x04\x02\x00\x08\x05"
    # Which message it is stands in the value.
    assert first.to_json(body) == '{"n": "5"}'
    assert first.record_name(body) == "shop.B.C"
    assert first.to_json(b"\0") == '{"x": ""}'
    for wrong in (b"", b"\x02", b"\x02\x08", b"\x00\x0a\x09y", b"\xff" * 20, struct.pack(">b", -1)):
        with pytest.raises(ValueMismatchError):
            first.check(wrong)
    with pytest.raises(SchemaError, match=r"has no message shop\.D"):
        codec_of(schema, message="shop.D")


def test_protobuf_imports() -> None:
    text = 'syntax = "proto3"; import "a.proto"; message O { A a = 1; }'
    other = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp t = 1; }'
    )
    codec = codec_of(SchemaText("PROTOBUF", text, {"a.proto": other}))
    assert codec.tree(codec.from_json('{"a": {"t": "2024-01-01T00:00:00Z"}}')) == {"a": {"t": "2024-01-01T00:00:00Z"}}
    for name in ("../a.proto", "/a.proto", ""):
        with pytest.raises(SchemaError, match="is not a file name"):
            codec_of(SchemaText("PROTOBUF", text, {name: other}))


def test_framing() -> None:
    assert schema_id(framed(7, b"x")) == 7
    assert schema_id(b"\0\0\0\0") is None
    assert schema_id(b"\1\0\0\0\1") is None
    for indexes in ((0,), (3,), (1, 0), (70, 200, 9)):
        assert split_indexes(joined_indexes(indexes) + b"!") == (indexes, len(joined_indexes(indexes)))


@given(st.binary(max_size=300))
def test_whatever_bytes_there_are_a_value_fits_or_not(data: bytes) -> None:
    for codec in CODECS:
        try:
            codec.to_json(data)
        except ValueMismatchError:
            continue
        assert json.dumps(codec.tree(data))


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["record", "array", "map", "type"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["type", "name", "fields", "items", "values", "symbols", "size"]), inner, max_size=5
        )
    ),
    max_leaves=12,
)


@given(json_values, st.binary(max_size=60))
def test_a_schema_that_is_nonsense_is_refused(schema: object, data: bytes) -> None:
    for kind in ("AVRO", "JSON"):
        try:
            value = codec_of(SchemaText(kind, json.dumps(schema))).tree(data)
        except (SchemaError, ValueMismatchError):
            continue
        assert json.dumps(value)
