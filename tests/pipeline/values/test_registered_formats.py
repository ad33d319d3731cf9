"""Avro, Protobuf and JSON with a JSON Schema: which columns schemas make, and what is made of values, without Spark."""

from __future__ import annotations

import io
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import StructType

from ottla.pipeline.values.avro_values import AvroFormat
from ottla.pipeline.values.formats import BARE, Compiled, Format
from ottla.pipeline.values.json_schema_values import JsonSchemaFormat
from ottla.pipeline.values.protobuf_values import ProtobufFormat
from ottla.pipeline.values.registered import _BatchDecoder
from ottla.pipeline.values.schemas import SchemaText, UnsupportedSchemaError
from ottla.schemas.protobuf import pool_of

ADDRESS = {"type": "record", "name": "Address", "namespace": "shop", "fields": [{"name": "city", "type": "string"}]}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "to", "type": ["null", "Address"]},
        {"name": "from", "type": {"type": "array", "items": "shop.Address"}},
        {"name": "counts", "type": {"type": "map", "values": "int"}},
    ],
}

PROTO = """
syntax = "proto3";
package shop;
import "shop/address.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum State { NEW = 0; PAID = 1; }

message Order {
  int64 id = 1;
  uint64 big = 2;
  State state = 3;
  Address to = 4;
  repeated Address from = 5;
  map<string, int32> counts = 6;
  google.protobuf.Timestamp at = 7;
  google.protobuf.StringValue note = 8;
  optional int32 rank = 9;
  bytes raw = 10;
}

message Refund {
  message Line { string text = 1; }
  int64 order = 1;
}
"""
PROTO_ADDRESS = 'syntax = "proto3"; package shop; message Address { string city = 1; }'

JSON_ADDRESS = {"type": "object", "properties": {"city": {"type": "string"}}}
JSON_ORDER = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "required": ["id"],
    "properties": {
        "id": {"type": "integer"},
        "price": {"type": ["number", "null"]},
        "to": {"oneOf": [{"type": "null"}, {"$ref": "address.json"}]},
        "from": {"type": "array", "items": {"$ref": "#/definitions/place"}},
        "counts": {"type": "object", "additionalProperties": {"type": "integer"}},
        "anything": {},
    },
    "definitions": {"place": {"$ref": "address.json"}},
}

ORDER_COLUMNS = "struct<id:bigint,to:struct<city:string>,from:array<struct<city:string>>,counts:map<string,int>>"


def avro(**changes: Any) -> SchemaText:
    return SchemaText("AVRO", json.dumps(ORDER | changes), {"shop.Address": json.dumps(ADDRESS)})


def proto(text: str = PROTO) -> SchemaText:
    return SchemaText("PROTOBUF", text, {"shop/address.proto": PROTO_ADDRESS})


def json_schema(**changes: Any) -> SchemaText:
    return SchemaText("JSON", json.dumps(JSON_ORDER | changes), {"address.json": json.dumps(JSON_ADDRESS)})


def framed(schema_id: int, value: bytes, indexes: bytes = b"") -> bytes:
    return b"\x00" + schema_id.to_bytes(4, "big") + indexes + value


def decoded(kind: Format, compiled: dict[bytes, Compiled], columns: StructType, *values: bytes | None) -> list[Any]:
    """Rows, or the reasons why there is none, as executors find them."""
    decoder = pickle.loads(pickle.dumps(_BatchDecoder(kind, compiled, {}, columns, BARE not in compiled)))
    (batch,) = decoder(iter([pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})]))
    return [row["reason"] or row["data"] for row in batch.to_pylist()]


def test_avro_with_references() -> None:
    compiled = AvroFormat().compile(avro(), BARE)
    assert compiled.columns.simpleString() == ORDER_COLUMNS
    named: dict[str, Any] = {}
    fastavro.parse_schema(ADDRESS, named_schemas=named)
    stream = io.BytesIO()
    row = {"id": 1, "to": {"city": "Wien"}, "from": [{"city": "Graz"}], "counts": {"a": 1}}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER, named_schemas=named), row)
    value = stream.getvalue()
    found = decoded(AvroFormat(), {BARE: compiled}, compiled.columns, value, None, value[:-1], value + b"more")
    assert found[:2] == [row | {"counts": [("a", 1)]}, None]
    assert found[2].startswith("the value is not Avro of the schema file: ")
    assert found[3] == "the value is not Avro of the schema file: 4 bytes follow it"


def protobuf_message(number: int = 0) -> tuple[Compiled, Any]:
    """What the n-th message of the schema becomes, and its class."""
    compiled = ProtobufFormat().compile(
        proto(), (7).to_bytes(4, "big") + (bytes([2, number * 2]) if number else b"\x00")
    )
    reader: Any = compiled.reader
    return compiled, GetMessageClass(pool_of(reader._files).FindMessageTypeByName(reader._message))


def test_protobuf_with_imports() -> None:
    compiled, order = protobuf_message()
    assert compiled.columns.simpleString() == (
        "struct<id:bigint,big:decimal(20,0),state:string,to:struct<city:string>,from:array<struct<city:string>>,"
        "counts:map<string,int>,at:timestamp,note:string,rank:int,raw:binary>"
    )
    full = order(id=1, big=2**64 - 1, state=1, counts={"a": 1}, rank=0, raw=b"\xff")
    full.to.city = "Wien"
    getattr(full, "from").add(city="Graz")
    full.at.FromDatetime(datetime(2013, 1, 1, 5, 15, tzinfo=UTC))
    full.note.value = ""
    heads = {(7).to_bytes(4, "big") + b"\x00": compiled}
    values = [
        framed(7, full.SerializeToString(), b"\x00"),
        framed(7, order().SerializeToString(), b"\x00"),
        framed(7, b"\xff\xff", b"\x00"),
        framed(7, b"", b"\x02\x02"),
        framed(7, b""),
        b"{}",
    ]
    found = decoded(ProtobufFormat(), heads, compiled.columns, *values)
    assert found[0] == {
        "id": 1,
        "big": Decimal(2**64 - 1),
        "state": "PAID",
        "to": {"city": "Wien"},
        "from": [{"city": "Graz"}],
        "counts": [("a", 1)],
        "at": datetime(2013, 1, 1, 5, 15, tzinfo=UTC),
        "note": "",
        "rank": 0,
        "raw": b"\xff",
    }
    nothing: dict[str, Any] = {"to": None, "from": [], "counts": [], "at": None, "note": None, "rank": None, "raw": b""}
    assert found[1] == {"id": 0, "big": 0, "state": "NEW", **nothing}
    assert found[2].startswith("the value is not Protobuf of schema 7: ")
    assert found[3:] == [
        "schema 7 is not in the registry",  # its second message was not looked up
        "the value does not say which message it is",
        "the value does not begin with a zero and a schema id",
    ]


def test_which_message_of_a_protobuf_schema() -> None:
    assert protobuf_message(1)[0].columns.simpleString() == "struct<order:bigint>"
    nested = ProtobufFormat().compile(proto(), b"\x00\x00\x00\x07\x04\x02\x00")
    assert nested.columns.simpleString() == "struct<text:string>"
    assert ProtobufFormat().split(framed(7, b"rest", b"\x04\x02\x00")) == (b"\x00\x00\x00\x07\x04\x02\x00", 8)
    for wrong in (b"\x02\x08", b"\x01", b"\xff" * 9, b"\x04\x00\x02"):
        with pytest.raises(UnsupportedSchemaError, match=r"has no message|does not say which message"):
            ProtobufFormat().compile(proto(), b"\x00\x00\x00\x07" + wrong)


def test_json_with_a_schema() -> None:
    compiled = JsonSchemaFormat().compile(json_schema(), BARE)
    assert compiled.columns.simpleString() == (
        "struct<id:bigint,price:double,to:struct<city:string>,from:array<struct<city:string>>,"
        "counts:map<string,bigint>,anything:string>"
    )
    row = {"id": 1.0, "price": 3, "to": None, "from": [{"city": "Graz"}], "counts": {"a": 1}, "anything": [1]}
    heads = {(7).to_bytes(4, "big"): compiled}
    values = [
        framed(7, json.dumps(row).encode()),
        framed(7, b'{"id": "one"}'),
        framed(7, b"{}"),
        framed(7, b'{"id": NaN}'),
        framed(7, b'{"id": 1, "anything": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        framed(7, b'{"id": 99999999999999999999}'),
    ]
    found = decoded(JsonSchemaFormat(), heads, compiled.columns, *values)
    assert found[0] == {
        "id": 1,
        "price": 3.0,
        "to": None,
        "from": [{"city": "Graz"}],
        "counts": [("a", 1)],
        "anything": "[1]",
    }
    assert found[1] == 'the value is not JSON of schema 7: $.id: "one" is not of type "integer"'
    assert found[2] == 'the value is not JSON of schema 7: $: "id" is a required property'
    assert found[3] == "the value is not JSON of schema 7: it is not JSON: NaN is not a number in JSON"
    assert found[4].startswith("the value is not JSON of schema 7: it is not JSON: maximum recursion depth")
    assert found[5].startswith("the value does not fit the table's columns: ")


def doubling(levels: int) -> list[Any]:
    """A short Avro schema with two to the n-th columns."""
    records: list[Any] = [{"type": "record", "name": "R0", "fields": [{"name": "x", "type": "int"}]}]
    for n in range(1, levels):
        halves = [{"name": name, "type": f"R{n - 1}"} for name in "ab"]
        records.append({"type": "record", "name": f"R{n}", "fields": halves})
    return records


def deep_avro(levels: int) -> Any:
    kind: Any = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


HOSTILE: dict[str, tuple[Format, SchemaText, str]] = {
    "avro, no JSON": (AvroFormat(), SchemaText("AVRO", "{"), "is not JSON"),
    "avro, brackets": (AvroFormat(), SchemaText("AVRO", "[" * 100_000), "more than 100 objects and arrays"),
    "avro, deep": (AvroFormat(), avro(fields=[{"name": "a", "type": deep_avro(80)}]), "deeper than 64"),
    "avro, too wide": (
        AvroFormat(),
        SchemaText(
            "AVRO", json.dumps(doubling(40)[-1]), {f"R{n}": json.dumps(r) for n, r in enumerate(doubling(40)[:-1])}
        ),
        "more than 10,000 columns",
    ),
    "avro, of itself": (AvroFormat(), avro(fields=[{"name": "a", "type": ["null", "Order"]}]), "refers to itself"),
    "avro, nothing in it": (AvroFormat(), avro(fields=[]), "without fields"),
    "avro, no bytes": (
        AvroFormat(),
        avro(fields=[{"name": "a", "type": {"type": "fixed", "name": "F", "size": 0}}]),
        "of no bytes",
    ),
    "avro, digits": (
        AvroFormat(),
        avro(fields=[{"name": "a", "type": {"type": "bytes", "logicalType": "decimal", "precision": 99}}]),
        "decimal of 99 digits",
    ),
    "avro, a number": (AvroFormat(), avro(fields=[{"name": "a", "type": 5}]), "is not valid"),
    "avro, text": (AvroFormat(), SchemaText("AVRO", '"string"'), "not a record"),
    "protobuf, no text of it": (ProtobufFormat(), proto("message {"), "does not compile: "),
    "protobuf, unknown import": (ProtobufFormat(), proto('import "x.proto"; message A {}'), "x.proto"),
    "protobuf, out of the folder": (
        ProtobufFormat(),
        SchemaText("PROTOBUF", "", {"../../x.proto": ""}),
        "not a file name",
    ),
    "protobuf, of itself": (ProtobufFormat(), proto('syntax="proto3"; message A { A a = 1; }'), "contains itself"),
    "protobuf, nothing in it": (ProtobufFormat(), proto('syntax="proto3"; message A { }'), "has no fields"),
    "json, brackets": (JsonSchemaFormat(), SchemaText("JSON", '{"a":' * 100_000), "more than 100 objects and arrays"),
    "json, of itself": (JsonSchemaFormat(), json_schema(properties={"a": {"$ref": "#"}}), "refers to itself"),
    "json, in a circle": (
        JsonSchemaFormat(),
        json_schema(definitions={"x": {"$ref": "#/definitions/x"}}, properties={"a": {"$ref": "#/definitions/x"}}),
        "lead nowhere",
    ),
    "json, nowhere": (JsonSchemaFormat(), json_schema(properties={"a": {"$ref": "#/none"}}), "cannot be used"),
    "json, from the network": (
        JsonSchemaFormat(),
        json_schema(properties={"a": {"$ref": "http://127.0.0.1:1/x"}}),
        "cannot be used",
    ),
    "json, no object": (JsonSchemaFormat(), SchemaText("JSON", '{"type": "string"}'), "does not describe an object"),
    "json, no schema": (JsonSchemaFormat(), SchemaText("JSON", '{"type": 5}'), "cannot be used"),
}


@pytest.mark.parametrize(("kind", "schema", "sentence"), HOSTILE.values(), ids=HOSTILE.keys())
def test_schemas_that_make_no_columns_are_said_so(kind: Format, schema: SchemaText, sentence: str) -> None:
    with pytest.raises(UnsupportedSchemaError, match=sentence) as refused:
        kind.compile(schema, BARE)
    assert len(str(refused.value)) < 500


def test_nothing_is_left_behind_by_the_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    ProtobufFormat().compile(proto(), BARE)
    assert list(tmp_path.iterdir()) == []
