"""Avro values in tables, by a schema registry and by a schema file."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import fastavro
import pytest
from pyspark.sql import SparkSession

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.spark import registry
from compat_tests.spark.registry import SchemaRegistry
from compat_tests.spark.tables.jobs import Tables, send
from ottla.pipeline.values.registry import RegistryError

FIRST = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}
SECOND = FIRST | {"fields": [*FIRST["fields"], {"name": "customer", "type": ["null", "int"], "default": None}]}
BREAKING = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "string"}]}
AT = datetime(2013, 1, 1, 5, 15, tzinfo=UTC)


def order(number: int, **more: object) -> dict[str, object]:

    return {"id": number, "price": Decimal("12.50"), "at": AT, "state": "PAID", "tags": ["a", "b"], "note": None} | more


@pytest.fixture
def schemas() -> Iterator[SchemaRegistry]:
    with registry.running() as running:
        yield running


@pytest.fixture
def tables(spark: SparkSession, broker: BrokerProcess, tmp_path: Path) -> Tables:
    return Tables(spark, broker.bootstrap, tmp_path, "ottla")


def test_values_of_a_registry_evolve(tables: Tables, reference: Confluent, topic: str, schemas: SchemaRegistry) -> None:
    table = {"topic": topic, "decode": "avro", "registry": schemas.url}
    first = schemas.register(f"{topic}-value", FIRST)
    send(reference, topic, [schemas.encode(first, order(n)) for n in range(20)])
    (report,) = tables.sync(table)
    assert (report["rows"], report["dead"]) == (20, 0)
    row = tables.table(topic).where("id = 7").collect()[0]
    assert (str(row.price), row.state, row.tags, row.note) == ("12.50", "PAID", ["a", "b"], None)
    assert tables.table(topic).where("at = timestamp'2013-01-01 05:15:00'").count() == 20

    second = schemas.register(f"{topic}-value", SECOND)
    breaking = schemas.register(f"{topic}-value", BREAKING)
    send(
        reference,
        topic,
        [
            schemas.encode(second, order(20, customer=5)),
            schemas.encode(first, order(21)),
            schemas.encode(breaking, {"id": "twenty-two"}),
            b"\x00\x00\x00\x00\x63rest",
            b"{}",
            schemas.encode(first, order(25))[:-3],
            schemas.encode(first, order(26)) + b"more",
        ],
    )
    (report,) = tables.sync(table)
    assert (report["rows"], report["dead"]) == (2, 5)
    assert {row.id: row.customer for row in tables.table(topic).where("id > 18").collect()} == {
        19: None,
        20: 5,
        21: None,
    }
    reasons = [row.reason for row in tables.dead(topic).orderBy("offset").collect()]
    assert reasons[0].startswith("the value does not fit the table's columns: ")
    assert reasons[1] == "schema 99 is not in the registry"
    assert reasons[2] == "the value does not begin with a zero and a schema id"
    assert reasons[3].startswith("the value is not Avro of schema 1: ")
    assert reasons[4] == "the value is not Avro of schema 1: 4 bytes follow it"


def test_bare_values_of_a_schema_file(tables: Tables, reference: Confluent, topic: str) -> None:
    schema_file = tables.folder / "order.avsc"
    schema_file.write_text(json.dumps(FIRST))

    def bare(row: dict[str, object]) -> bytes:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, FIRST, row)
        return stream.getvalue()

    send(reference, topic, [bare(order(n)) for n in range(5)])
    table = {"topic": topic, "decode": "avro", "schema_file": str(schema_file), "format": "parquet"}
    (report,) = tables.sync(table)
    assert report["rows"] == 5
    assert sorted(row.id for row in tables.table(topic, "parquet").collect()) == [0, 1, 2, 3, 4]


def test_a_registry_that_cannot_help(tables: Tables, topic: str, schemas: SchemaRegistry) -> None:
    with pytest.raises(RegistryError, match=f"has no subject '{topic}-value': register the topic's schema there"):
        tables.sync({"topic": topic, "decode": "avro", "registry": schemas.url})
    with pytest.raises(RegistryError, match=r"127\.0\.0\.1:1 does not answer .*: check registry"):
        tables.sync({"topic": topic, "decode": "avro", "registry": "http://127.0.0.1:1"})
