"""Values that name their schemas, decoded by Spark: which schemas are looked up, and what becomes of each value."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from compat_tests.spark import registry
from compat_tests.spark.registry import SchemaRegistry
from compat_tests.spark.tables.test_schema_tables import ADDRESS, ORDER, WIDER, framed
from ottla.client.schema_registry import RegistryLogin
from ottla.pipeline.values.avro_values import AvroFormat
from ottla.pipeline.values.decoder import DATA, REASON
from ottla.pipeline.values.json_schema_values import JsonSchemaFormat
from ottla.pipeline.values.protobuf_values import ProtobufFormat
from ottla.pipeline.values.registered import RegisteredDecoder
from ottla.pipeline.values.registry import open_schemas

RECORD = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}
OBJECT = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {}}}


@pytest.fixture
def schemas() -> Iterator[SchemaRegistry]:
    with registry.running() as running:
        running.authorization = "Bearer t0ken"
        yield running


def test_each_value_by_the_schema_that_it_names(spark: SparkSession, schemas: SchemaRegistry) -> None:
    schemas.register("address", ADDRESS, "PROTOBUF")
    for text in (ORDER, WIDER):
        schemas.register("orders", text, "PROTOBUF", [("address.proto", "address", 1)])
    avro = schemas.register("records", RECORD)
    jsons = schemas.register("objects", OBJECT, "JSON")
    values = {
        # By hand: id = 7, to.city = "Wien", counts = {"a": 1}; Order is the second message of its file.
        "proto": framed(2, b"\x08\x07\x12\x06\x0a\x04Wien\x1a\x05\x0a\x01a\x10\x01", b"\x02\x02"),
        "wider": framed(3, b"\x08\x08\x22\x02hi", b"\x02\x02"),
        "broken": framed(2, b"\xff", b"\x02\x02"),
        "avro": framed(avro, b"\x12"),
        "json": framed(jsons, json.dumps({"id": 5, "name": [2]}).encode()),
        "violation": framed(jsons, b"{}"),
        "unknown": framed(99, b"\x00"),
        "foreign": b"{}",
        "none": None,
    }
    rows = spark.createDataFrame(
        [(name, None if value is None else bytearray(value)) for name, value in values.items()],
        "k STRING, value BINARY",
    ).persist()
    found = {}
    for kind in (ProtobufFormat(), AvroFormat(), JsonSchemaFormat()):
        decoder = RegisteredDecoder(kind, None, schemas=open_schemas(schemas.url, RegistryLogin(token="t0ken")))
        assert decoder.learn(rows)
        assert not decoder.learn(rows)
        found[kind.name] = {
            row.k: row[REASON] or (row[DATA] and row[DATA].asDict(recursive=True))
            for row in decoder.decode(rows).collect()
        }
    rows.unpersist()

    proto = found["Protobuf"]
    assert proto["proto"] == {"id": 7, "to": {"city": "Wien"}, "counts": {"a": 1}, "note": None}
    assert proto["wider"] == {"id": 8, "to": None, "counts": {}, "note": "hi"}
    assert proto["broken"].startswith("the value is not Protobuf of schema 2: ")
    assert proto["avro"] == f"schema {avro} is AVRO, not Protobuf"
    assert proto["unknown"] == "schema 99 is not in the registry"
    assert proto["foreign"] == "the value does not begin with a zero and a schema id"
    assert proto["none"] is None
    assert found["Avro"]["avro"] == {"id": 9}
    assert found["Avro"]["proto"] == "schema 2 is PROTOBUF, not Avro"
    assert found["JSON"]["json"] == {"id": 5, "name": "[2]"}
    assert found["JSON"]["violation"] == f'the value is not JSON of schema {jsons}: it: "id" is a required property'
