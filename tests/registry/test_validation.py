"""A topic of a broker with a registry refuses records that do not fit their schemas."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import ProxyHandler, Request, build_opener

import pytest

pytest.importorskip("fastavro")

from ottla.client.client import Client
from ottla.client.schema_registry import SchemaText
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch
from ottla.schemas.codec import codec_of
from ottla.schemas.framing import framed
from ottla.testing.broker import Broker

OPENER = build_opener(ProxyHandler({}))
ORDER = {"type": "record", "name": "Order", "namespace": "shop", "fields": [{"name": "id", "type": "long"}]}
CODEC = codec_of(SchemaText("AVRO", json.dumps(ORDER)))
FITS = CODEC.from_json('{"id": 1}')


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"ottla.registry.listeners": "127.0.0.1:0"}) as broker:
        yield broker


def register(broker: Broker, subject: str, schema: Any = ORDER, kind: str = "AVRO") -> int:
    assert broker._thread is not None
    text = schema if isinstance(schema, str) else json.dumps(schema)
    data = json.dumps({"schema": text, "schemaType": kind}).encode()
    url = f"{broker._thread.ready.registry_url}/subjects/{subject}/versions"
    request = Request(url, data=data, headers={"Content-Type": "application/json"})
    with OPENER.open(request, timeout=30) as response:
        return int(json.load(response)["id"])


def sent(broker: Broker, topic: str, *values: bytes | None, key: bytes | None = None, **header: Any) -> Any:
    records = [Record(key=key, value=value, timestamp_ms=1_700_000_000_000) for value in values]
    data = PartitionProduceData(index=0, records=build_batch(records, **header))
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[])
    with Client([("127.0.0.1", broker.port)], 30, "test") as client:
        found = client.topic(topic)
        request.topic_data = [TopicProduceData(name=topic, topic_id=found.topic_id, partition_data=[data])]
        response = client.broker(found.partitions[0].leader_id).call(request)
    return response.responses[0].partition_responses[0]


def configure(broker: Broker, topic: str, validation: str) -> None:
    change = AlterableConfig(name="ottla.value.schema.validation", config_operation=0, value=validation)
    resource = AlterConfigsResource(resource_type=2, resource_name=topic, configs=[change])
    with Client([("127.0.0.1", broker.port)], 30, "test") as client:
        response = client.call(IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == ErrorCode.NONE


def reasons(answer: Any) -> dict[int, str]:
    assert answer.error_code == ErrorCode.INVALID_RECORD
    return {it.batch_index: it.batch_index_error_message for it in answer.record_errors}


def test_bytes_that_do_not_fit_are_refused_record_by_record(broker: Broker) -> None:
    broker.create_topic("a", configs={"ottla.value.schema.validation": "value"})
    number, other = register(broker, "a-value"), register(broker, "other-value", {"type": "string"})
    assert sent(broker, "a", framed(number, FITS), None).error_code == ErrorCode.NONE
    wrong = [framed(number, FITS + b"x"), framed(999, FITS), framed(other, b"\x02a"), b"plain", b""]
    answer = sent(broker, "a", framed(number, FITS), *wrong)
    assert reasons(answer) == {
        1: f"schema {number}: 1 bytes follow the Avro value",
        2: "the registry has no schema 999",
        3: f"schema {other} is not in the subject a-value",
        4: "the value does not begin with the id of a schema",
        5: "the value does not begin with the id of a schema",
    }
    assert answer.error_message.startswith("One or more records have been rejected due to 5 record errors in total")
    # Nothing of a refused batch is in the log: the next one follows the first.
    assert sent(broker, "a", framed(number, FITS)).base_offset == 2


def test_by_id_the_bytes_are_not_looked_at(broker: Broker) -> None:
    broker.create_topic("b", configs={"ottla.value.schema.validation": "id"})
    number = register(broker, "b-value")
    assert sent(broker, "b", framed(number, b"anything")).error_code == ErrorCode.NONE
    assert list(reasons(sent(broker, "b", framed(998, b"anything")))) == [0]


def test_keys_and_subjects_by_record_names(broker: Broker) -> None:
    names = {"ottla.key.schema.validation": "value", "ottla.key.subject.name.strategy": "topic-record"}
    broker.create_topic("c", configs=names)
    number = register(broker, "c-shop.Order")
    assert sent(broker, "c", b"any", key=framed(number, FITS)).error_code == ErrorCode.NONE
    elsewhere = register(broker, "c-key", {**ORDER, "name": "Key"})
    refused = reasons(sent(broker, "c", b"any", key=framed(elsewhere, FITS)))
    assert refused == {0: f"schema {elsewhere} is not in the subject c-shop.Key"}


@pytest.mark.parametrize(
    ("kind", "schema", "fits", "wrong"),
    [
        ("JSON", {"type": "object", "required": ["id"]}, b'{"id": 1}', b"{}"),
        ("PROTOBUF", 'syntax = "proto3"; message O { string s = 1; }', b"\x00\x0a\x01y", b"\x00\x0a\x09y"),
    ],
)
def test_the_other_formats(broker: Broker, kind: str, schema: Any, fits: bytes, wrong: bytes) -> None:
    topic = f"of-{kind}"
    broker.create_topic(topic, configs={"ottla.value.schema.validation": "value"})
    number = register(broker, f"{topic}-value", schema, kind)
    assert sent(broker, topic, framed(number, fits)).error_code == ErrorCode.NONE
    assert list(reasons(sent(broker, topic, framed(number, fits), framed(number, wrong)))) == [1]


def test_large_and_compressed_batches_are_validated_too(broker: Broker) -> None:
    from ottla.kproto.records import Compression

    broker.create_topic("d", configs={"ottla.value.schema.validation": "value"})
    number = register(broker, "d-value")
    values = [framed(number, FITS)] * 5_000
    assert sent(broker, "d", *values, compression=Compression.GZIP).error_code == ErrorCode.NONE
    values[4_321] = b"plain"
    assert list(reasons(sent(broker, "d", *values, compression=Compression.GZIP))) == [4_321]


def test_a_topic_that_asks_later_and_no_longer(broker: Broker) -> None:
    broker.create_topic("e")
    assert sent(broker, "e", b"plain").error_code == ErrorCode.NONE
    configure(broker, "e", "id")
    assert list(reasons(sent(broker, "e", b"plain"))) == [0]
    configure(broker, "e", "none")
    assert sent(broker, "e", b"plain").error_code == ErrorCode.NONE


def test_without_a_registry_producers_try_again() -> None:
    with Broker() as broker:
        broker.create_topic("f", configs={"ottla.value.schema.validation": "id"})
        assert sent(broker, "f", b"plain").error_code == ErrorCode.INVALID_RECORD
        answer = sent(broker, "f", framed(1, b"x"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert "has no schema registry" in answer.error_message
    with Broker(config={"ottla.schema.registry.url": "http://127.0.0.1:1"}) as broker:
        broker.create_topic("f", configs={"ottla.value.schema.validation": "id"})
        assert sent(broker, "f", framed(1, b"x")).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_records_that_do_not_fit_go_to_a_dead_letter_topic_where_their_producer_may_write() -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka")
    settings = {"ottla.value.schema.validation": "value", "ottla.schema.validation.dead.letter.topic": "bad"}
    users = {"ann": "a-secret", "bob": "b-secret", "eve": "e-secret"}
    acls = [*(f"{user} write topic:orders" for user in users), "ann write topic:bad", "eve read topic:*"]
    acls += ["ann write transactional-id:*", "eve read group:*", "ANONYMOUS write topic:subject:*"]
    with Broker(config={"ottla.registry.listeners": "127.0.0.1:0"}, users=users, acls=acls) as broker:
        broker.create_topic("orders", configs=settings)
        broker.create_topic("bad")
        number = register(broker, "orders-value")
        fits, wrong = framed(number, FITS), framed(number, FITS + b"x")

        def produce(user: str, *values: bytes, **more: Any) -> list[Any]:
            outcomes: list[Any] = []
            config = broker.client_config(user=user) | {"linger.ms": 50, "enable.idempotence": True} | more
            producer = confluent_kafka.Producer(config)
            if "transactional.id" in more:
                producer.init_transactions(30)
                producer.begin_transaction()
            for value in values:
                producer.produce("orders", value, on_delivery=lambda error, _: outcomes.append(error))
            producer.flush(30)
            if "transactional.id" in more:
                producer.abort_transaction(30)
            return outcomes

        assert produce("ann", fits, wrong, fits) == [None] * 3
        refused = produce("bob", wrong)
        assert [error.code() for error in refused] == [confluent_kafka.KafkaError.INVALID_RECORD]
        # What a transaction sent to the dead-letter topic stays there when it is aborted.
        assert produce("ann", wrong, fits, **{"transactional.id": "tx"}) == [None] * 2

        consumer = confluent_kafka.Consumer(
            broker.client_config(user="eve") | {"group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders", "bad"])
        found: list[tuple[str, int, bytes]] = []
        while len(found) < 4:
            message = consumer.poll(20)
            assert message is not None, found
            assert message.error() is None
            found.append((message.topic(), message.offset(), message.value()))
        consumer.close()
        assert sorted(found) == [("bad", 0, wrong), ("bad", 1, wrong), ("orders", 0, fits), ("orders", 2, fits)]
