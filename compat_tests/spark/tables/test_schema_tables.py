"""Protobuf, JSON with JSON Schemas, and Avro with references in tables, by a schema registry that asks who is there."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import registry
from compat_tests.spark.registry import SchemaRegistry
from compat_tests.spark.tables.jobs import Tables, send

ADDRESS = 'syntax = "proto3"; package shop; message Address { string city = 1; }'
ORDER = """
syntax = "proto3";
import "address.proto";
message Other { int32 x = 1; }
message Order { int64 id = 1; shop.Address to = 2; map<string, int32> counts = 3; }
"""
WIDER = ORDER.replace("int64 id = 1;", "int64 id = 1; string note = 4;")


@pytest.fixture
def schemas() -> Iterator[SchemaRegistry]:
    with registry.running() as running:
        running.authorization = "Bearer t0ken"
        yield running


@pytest.fixture
def tables(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Tables:
    return Tables(spark, broker.bootstrap, tmp_path, "ottla")


def framed(schema_id: int, value: bytes, indexes: bytes = b"") -> bytes:
    return struct.pack(">bI", 0, schema_id) + indexes + value


def test_protobuf_of_a_registry_evolves(
    tables: Tables, reference: Confluent, topic: str, schemas: SchemaRegistry
) -> None:
    login = {"url": schemas.url, "bearer.auth.token": "t0ken"}
    table = {"topic": topic, "decode": "protobuf", "format": "parquet"}
    schemas.register("address", ADDRESS, "PROTOBUF")
    first = schemas.register(f"{topic}-value", ORDER, "PROTOBUF", [("address.proto", "address", 1)])
    # By hand: id = 7, to.city = "Wien", counts = {"a": 1}; it is the second message of its file.
    order = b"\x08\x07\x12\x06\x0a\x04Wien\x1a\x05\x0a\x01a\x10\x01"
    send(reference, topic, [framed(first, order, b"\x02\x02"), framed(first, b"\xff", b"\x02\x02"), b"{}"])
    (report,) = tables.sync(table, registry=login)
    assert (report["rows"], report["dead"]) == (1, 2)

    second = schemas.register(f"{topic}-value", WIDER, "PROTOBUF", [("address.proto", "address", 1)])
    send(reference, topic, [framed(second, b"\x08\x08\x22\x02hi", b"\x02\x02")])
    (report,) = tables.sync(table, registry=login)
    assert (report["rows"], report["dead"]) == (1, 0)
    rows = {row.id: row for row in tables.table(topic, "parquet").collect()}
    assert (rows[7].to.city, rows[7].counts, rows[7].note) == ("Wien", {"a": 1}, None)
    assert (rows[8].to, rows[8].counts, rows[8].note) == (None, {}, "hi")
    reasons = [row.reason for row in tables.dead(topic, "parquet").orderBy("offset").collect()]
    assert reasons[0].startswith(f"the value is not Protobuf of schema {first}: ")
    assert reasons[1] == "the value does not begin with a zero and a schema id"


def test_json_by_a_folder_of_schemas(tables: Tables, reference: Confluent, topic: str) -> None:
    folder = tables.folder / "schemas"
    folder.mkdir()
    schema = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}, "name": {}}}
    for name in (f"{topic}-value", "7"):
        (folder / f"{name}.json").write_text(json.dumps(schema))
    send(reference, topic, [framed(7, b'{"id": 1, "name": [2]}'), framed(7, b'{"name": "x"}'), framed(8, b"{}")])
    (report,) = tables.sync({"topic": topic, "decode": "json-schema", "registry": str(folder), "format": "parquet"})
    assert (report["rows"], report["dead"]) == (1, 2)
    assert [(row.id, row.name) for row in tables.table(topic, "parquet").collect()] == [(1, "[2]")]
    assert [row.reason for row in tables.dead(topic, "parquet").orderBy("offset").collect()] == [
        'the value is not JSON of schema 7: it: "id" is a required property',
        "schema 8 is not in the registry",
    ]
