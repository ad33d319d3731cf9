"""Clients of schema registries against that of the broker for tests: Confluent's for Python with its serializers,
KafkaJS', and franz-go's.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import DeserializingConsumer, SerializingProducer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from google.protobuf import struct_pb2, timestamp_pb2, type_pb2

from compat_tests.clients import franz_go, kafkajs
from ottla.testing.broker import Broker

GO = franz_go.PROGRAM.with_name("registry")
AVRO = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
JSON_SCHEMA = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}},
    }
)
INCOMPATIBLE = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "x", "type": "long"}]})


@pytest.fixture(scope="module")
def shared_broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    shared_broker.reset()
    return shared_broker


@pytest.fixture
def registry(broker: Broker) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        yield client


def round_trip(broker: Broker, serializer: Any, deserializer: Any, value: Any) -> Any:
    producer = SerializingProducer({"bootstrap.servers": broker.bootstrap, "value.serializer": serializer})
    producer.produce("orders", value=value)
    producer.flush(30)
    consumer = DeserializingConsumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "g",
            "auto.offset.reset": "earliest",
            "value.deserializer": deserializer,
        }
    )
    consumer.subscribe(["orders"])
    try:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        return message.value()
    finally:
        consumer.close()


def test_avro_serializers(broker: Broker, registry: SchemaRegistryClient) -> None:
    value = round_trip(broker, AvroSerializer(registry, AVRO), AvroDeserializer(registry), {"id": 7})
    assert value == {"id": 7}
    assert registry.get_subjects() == ["orders-value"]


def test_json_serializers(broker: Broker, registry: SchemaRegistryClient) -> None:
    value = round_trip(broker, JSONSerializer(JSON_SCHEMA, registry), JSONDeserializer(JSON_SCHEMA), {"id": 7})
    assert value == {"id": 7}
    assert registry.get_latest_version("orders-value").schema.schema_type == "JSON"


@pytest.mark.parametrize("skips_known", [True, False])
def test_protobuf_serializers(broker: Broker, registry: SchemaRegistryClient, *, skips_known: bool) -> None:
    kind = type_pb2.Type
    serializer = ProtobufSerializer(kind, registry, {"use.deprecated.format": False, "skip.known.types": skips_known})
    deserializer = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    value = round_trip(broker, serializer, deserializer, kind(name="n", fields=[{"name": "f", "number": 3}]))
    assert (value.name, value.fields[0].number) == ("n", 3)
    schema = registry.get_latest_version("orders-value").schema
    assert schema.schema_type == "PROTOBUF"
    assert "message Type {" in str(schema.schema_str)
    assert bool(schema.references) is not skips_known


def test_protobuf_of_messages_with_oneofs_and_maps(broker: Broker, registry: SchemaRegistryClient) -> None:
    serializer = ProtobufSerializer(struct_pb2.Struct, registry, {"use.deprecated.format": False})
    deserializer = ProtobufDeserializer(struct_pb2.Struct, {"use.deprecated.format": False})
    sent = struct_pb2.Struct()
    sent.update({"a": [1, "x", None]})
    assert round_trip(broker, serializer, deserializer, sent) == sent
    assert timestamp_pb2.DESCRIPTOR.name  # what the one above does not need


def test_the_client(registry: SchemaRegistryClient) -> None:
    schema = Schema(AVRO, "AVRO")
    schema_id = registry.register_schema("a/b:c", schema)
    assert registry.register_schema("a/b:c", schema) == schema_id
    registered = registry.lookup_schema("a/b:c", schema)
    assert (registered.schema_id, registered.version, registered.subject) == (schema_id, 1, "a/b:c")
    assert json.loads(str(registry.get_schema(schema_id).schema_str))["name"] == "Order"
    assert registry.get_latest_version("a/b:c").schema_id == schema_id
    assert registry.get_version("a/b:c", 1).guid == registered.guid
    assert json.loads(str(registry.get_schema_by_guid(str(registered.guid)).schema_str))["name"] == "Order"
    assert registry.get_versions("a/b:c") == [1]
    assert registry.get_subjects_by_schema_id(schema_id) == ["a/b:c"]
    assert registry.test_compatibility("a/b:c", Schema(INCOMPATIBLE, "AVRO")) is False
    with pytest.raises(SchemaRegistryError) as raised:
        registry.register_schema("a/b:c", Schema(INCOMPATIBLE, "AVRO"))
    assert (raised.value.http_status_code, raised.value.error_code) == (409, 409)
    registry.set_compatibility("a/b:c", "NONE")
    assert registry.get_compatibility("a/b:c") == "NONE"
    second = registry.register_schema("a/b:c", Schema(INCOMPATIBLE, "AVRO"))
    assert second == schema_id + 1
    reference = SchemaReference("Order", "a/b:c", 1)
    outer = json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "o", "type": "Order"}]})
    registry.register_schema("outer", Schema(outer, "AVRO", [reference]))
    assert registry.get_referenced_by("a/b:c", 1) == [second + 1]
    assert registry.delete_version("a/b:c", 2) == 2
    with pytest.raises(SchemaRegistryError) as raised:
        registry.get_version("nothing", 1)
    assert (raised.value.http_status_code, raised.value.error_code) == (404, 40401)
    assert registry.get_contexts() == ["."]
    assert registry.delete_subject("outer") == [1]
    assert registry.delete_subject("outer", permanent=True) == [1]


def lines(*command: str) -> list[dict[str, Any]]:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.kafkajs
@pytest.mark.skipif(not (kafkajs.FOLDER / "node_modules/@kafkajs").is_dir(), reason="it takes `make clients`")
def test_kafkajs(broker: Broker) -> None:
    found = lines("node", str(kafkajs.FOLDER / "registry.js"), broker.schema_registry_url)
    assert found == [
        {"name": "AVRO", "id": 1, "latest": 1, "value": {"id": 7}, "bytes": "00000000010e"},
        {"name": "JSON", "id": 2, "latest": 2, "value": {"id": 7}, "bytes": "0000000002" + b'{"id":7}'.hex()},
        # It does not say which message of the schema it is, as Confluent's serializers do.
        {"name": "PROTOBUF", "id": 3, "latest": 3, "value": {"id": 7}, "bytes": "00000000030807"},
        {"name": "evolved", "id": 4, "value": [{"id": 7, "note": "none"}, {"id": 8, "note": "soon"}]},
        {"name": "refused", "value": 409},
    ]


@pytest.mark.franz_go
@pytest.mark.skipif(not GO.is_file(), reason="it takes Go and `make clients`")
def test_franz_go(broker: Broker) -> None:
    found = lines(str(GO), broker.schema_registry_url)
    assert [(line["name"], line["result"]) for line in found] == [
        ("create", ["go-value", 1, 1]),
        ("create again", True),
        ("by id", '{"type":"record","name":"Order","fields":[{"name":"id","type":"long"}]}'),
        ("look up", 1),
        ("check", False),
        ("incompatible", "409"),
        ("reference", None),
        ("referenced by", 1),
        ("level", "FULL"),
        ("mode", "READONLY"),
        ("read only", "42205"),
        ("subjects", ["go-outer", "go-value"]),
        ("missing", "40401"),
        ("delete", [1]),
        ("older", 1),
        ("newer", 2),
        ("serde", [True, {"id": 7}, {"id": 8, "note": "soon"}]),
    ]
