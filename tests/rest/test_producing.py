"""Records that are appended by HTTP."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from ottla.testing.broker import Broker
from tests.rest.conftest import Rest


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def cluster_of(rest: Rest) -> str:
    return str(rest.get("/v3/clusters")[1]["data"][0]["cluster_id"])


def test_binary_records(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=2)
    records = [
        {"key": b64(b"k"), "value": b64(b"\x00v"), "partition": 1},
        {"value": b64(b"w"), "partition": 1},
        {"key": b64(b"k"), "value": None, "partition": 1},
    ]
    status, answer = rest.produce("/topics/orders", "binary", {"records": records})
    assert status == 200
    assert answer == {
        "offsets": [{"partition": 1, "offset": it, "error_code": None, "error": None} for it in range(3)],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    found = [(record.key, record.value) for record in broker.records("orders", partition=1)]
    assert found == [(b"k", b"\x00v"), (None, b"w"), (b"k", None)]


def test_json_records_are_written_without_spaces(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    value = {"name": "Žluťoučký", "n": [1, 12345678901234567890, 1.5, None, True]}
    records = [{"key": "k", "value": value}]
    assert rest.produce("/topics/orders/partitions/0", "json", {"records": records})[0] == 200
    (record,) = broker.records("orders")
    assert record.key == b'"k"'
    assert record.value == json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def test_the_key_decides_as_for_javas_producer(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=5)
    keys = [f"key-{number}".encode() for number in range(20)]
    for key in keys:
        broker.produce("orders", "by Java's partitioner", key=key)
    by_java = {record.key: record.partition for record in broker.records("orders")}
    records = [{"key": b64(key), "value": b64(b"x")} for key in keys]
    answer = rest.produce("/topics/orders", "binary", {"records": records})[1]
    assert [it["partition"] for it in answer["offsets"]] == [by_java[key] for key in keys]


def test_a_topic_is_created_where_the_broker_does_so(broker: Broker, rest: Rest) -> None:
    status, answer = rest.produce("/topics/new", "json", {"records": [{"value": 1}]})
    assert (status, answer["offsets"][0]["offset"]) == (200, 0)
    assert [record.value for record in broker.records("new")] == [b"1"]


def test_avro_by_text_and_by_id(broker: Broker, rest: Rest) -> None:
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    body = {"value_schema": json.dumps(schema), "records": [{"value": {"id": 7}}]}
    status, answer = rest.produce("/topics/orders-avro", "avro", body)
    assert status == 200, answer
    schema_id = answer["value_schema_id"]
    again = {"value_schema_id": schema_id, "records": [{"value": {"id": 8}}]}
    assert rest.produce("/topics/orders-avro", "avro", again)[1]["value_schema_id"] == schema_id
    header = b"\x00" + schema_id.to_bytes(4, "big")
    assert [record.value for record in broker.records("orders-avro")] == [header + b"\x0e", header + b"\x10"]


@pytest.mark.parametrize(
    ("form", "schema", "value"),
    [
        ("jsonschema", '{"type": "object", "required": ["id"]}', {"id": 7}),
        ("protobuf", 'syntax = "proto3"; message Order { int64 id = 1; }', {"id": "7"}),
    ],
)
def test_the_other_formats_with_schemas(broker: Broker, rest: Rest, form: str, schema: str, value: object) -> None:
    body = {"value_schema": schema, "records": [{"value": value}]}
    status, answer = rest.produce(f"/topics/orders-{form}", form, body)
    assert status == 200, answer
    (record,) = broker.records(f"orders-{form}")
    header = b"\x00" + answer["value_schema_id"].to_bytes(4, "big")
    assert record.value == header + (b'{"id":7}' if form == "jsonschema" else b"\x00\x08\x07")


@pytest.mark.parametrize(
    ("form", "body", "status", "code"),
    [
        ("binary", b"{", 400, 400),
        ("binary", b"\xff", 400, 400),
        ("binary", b"[" * 200, 400, 400),
        ("binary", b'{"records": [{"value": NaN}]}', 400, 400),
        ("binary", [], 422, 422),
        ("binary", {}, 422, 422),
        ("binary", {"records": []}, 422, 422),
        ("binary", {"records": {}}, 422, 422),
        ("binary", {"records": [1]}, 422, 422),
        ("binary", {"records": [{"value": "YQ=="}] * 10_001}, 422, 422),
        ("binary", {"records": [{"valeu": "YQ=="}]}, 422, 422),
        ("binary", {"recrods": [{"value": "YQ=="}]}, 422, 422),
        ("binary", {"records": [{"value": "YQ==", "partition": -1}]}, 422, 422),
        ("binary", {"records": [{"value": "YQ==", "partition": "0"}]}, 422, 422),
        ("binary", {"records": [{"value": "YQ==", "partition": 1}]}, 404, 40402),
        ("binary", {"records": [{"value": "no base64"}]}, 422, 42203),
        ("binary", {"records": [{"value": 1}]}, 422, 42203),
        ("json", b'{"records": [{"value": 1e999}]}', 422, 42203),
        ("json", b'{"records": [{"value": "\\ud800"}]}', 422, 42203),
        ("avro", {"records": [{"value": 1}]}, 422, 42202),
        ("avro", {"records": [{"key": 1, "value": 1}], "value_schema": '"long"'}, 422, 42201),
        ("avro", {"records": [{"value": "x"}], "value_schema": '"long"'}, 422, 42203),
        ("avro", {"records": [{"value": 1}], "value_schema": "nonsense"}, 422, 42205),
        ("avro", {"records": [{"value": 1}], "value_schema_id": 999}, 404, 40403),
        ("avro", {"records": [{"value": 1}], "value_schema_id": "1"}, 422, 422),
        ("nonsense", {"records": [{"value": "YQ=="}]}, 415, 415),
    ],
)
def test_bad_input_is_refused_and_nothing_is_appended(
    broker: Broker, rest: Rest, form: str, body: object, status: int, code: int
) -> None:
    broker.create_topic("orders")
    got, answer = rest.produce("/topics/orders", form, body)
    assert (got, answer["error_code"]) == (status, code), answer
    assert len(answer["message"]) > 5
    assert broker.records("orders") == []


def test_a_large_request_is_divided_into_batches(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", configs={"max.message.bytes": 100_000})
    value = b64(b"x" * 10_000)
    status, answer = rest.produce("/topics/orders", "binary", {"records": [{"value": value}] * 150})
    assert status == 200
    assert [it["offset"] for it in answer["offsets"]] == list(range(150))


def test_a_record_that_is_too_large_is_refused_by_itself(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", configs={"max.message.bytes": 1_000})
    records = [{"value": b64(b"x" * size)} for size in (10, 5_000, 20)]
    status, answer = rest.produce("/topics/orders", "binary", {"records": records})
    assert status == 200
    assert [it["error_code"] for it in answer["offsets"]] == [None, 50002, None]
    assert "MESSAGE_TOO_LARGE" in answer["offsets"][1]["error"]
    assert [len(record.value or b"") for record in broker.records("orders")] == [10, 20]


def test_a_body_may_not_be_endless(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    assert rest.produce("/topics/orders", "binary", b" " * (8 * 1024 * 1024 + 1))[0] == 413


def test_version_3_reports_each_record(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=2)
    cluster = cluster_of(rest)
    status, reports = rest.stream(
        cluster,
        "orders",
        {
            "partition_id": 1,
            "headers": [{"name": "h", "value": b64(b"1")}, {"name": "n", "value": None}],
            "key": {"type": "BINARY", "data": b64(b"k")},
            "value": {"type": "JSON", "data": {"id": 7}},
            "timestamp": "2026-01-31T12:00:00.5Z",
        },
        {"partition_id": 1, "value": {"type": "STRING", "data": "text"}},
        {"partition_id": 5, "value": {"type": "STRING", "data": "nowhere"}},
        {"partition_id": 1, "value": None},
    )
    assert status == 200
    assert reports[0] == {
        "error_code": 200,
        "cluster_id": cluster,
        "topic_name": "orders",
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2026-01-31T12:00:00.500Z",
        "key": {"type": "BINARY", "size": 1},
        "value": {"type": "JSON", "size": 8},
    }
    assert [it["error_code"] for it in reports] == [200, 200, 40402, 200]
    first, second, third = broker.records("orders", partition=1)
    assert (first.key, first.value, first.headers) == (b"k", b'{"id":7}', (("h", b"1"), ("n", None)))
    assert (second.value, third.value) == (b"text", None)


def test_version_3_answers_while_records_still_come(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    path = f"/v3/clusters/{cluster_of(rest)}/topics/orders/records"

    def body() -> Iterator[bytes]:
        yield b'{"value": {"type": "STRING", "da'
        yield b'ta": "one"}}'
        broker.wait_for("orders", 1)  # what has come is appended before the request ends
        yield b'{"value": {"type": "STRING", "data": "two"}}'

    answer = rest.client.post(path, content=body(), headers={"content-type": "application/json"})
    assert [json.loads(line)["offset"] for line in answer.text.splitlines()] == [0, 1]


@pytest.mark.parametrize(
    ("bad", "code"),
    [
        (b"[]", 400),
        (b'{"value": ', 400),
        (b'{"value": ' + b"[" * 200, 400),
        (b'{"value": {"type": "NONSENSE", "data": 1}}', 400),
        (b'{"value": {"type": "BINARY", "data": "no base64"}}', 42203),
        (b'{"value": 1}', 400),
        (b'{"valeu": null}', 400),
        (b'{"timestamp": "yesterday"}', 400),
        (b'{"timestamp": "2026-01-31T12:00:00"}', 400),
        (b'{"headers": [{"name": 1}]}', 400),
        (b'{"partition_id": "1"}', 400),
        (b'{"value": nonsense}', 400),
    ],
)
def test_version_3_reports_what_is_wrong_and_keeps_what_came_before(
    broker: Broker, rest: Rest, bad: bytes, code: int
) -> None:
    broker.create_topic("orders")
    status, reports = rest.stream(cluster_of(rest), "orders", b'{"value": {"type": "STRING", "data": "good"}}', bad)
    assert status == 200
    assert [it["error_code"] for it in reports] == [200, code]
    assert [record.value for record in broker.records("orders")] == [b"good"]


def test_version_3_refuses_before_the_stream_begins(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    assert rest.stream("other", "orders", b"{}")[0] == 404
    path = f"/v3/clusters/{cluster_of(rest)}/topics/orders/records"
    assert rest.client.post(path, content=b"{}", headers={"content-type": "text/plain"}).status_code == 415


def test_version_3_follows_its_topic_while_records_come(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    path = f"/v3/clusters/{cluster_of(rest)}/topics/orders/records"

    def body() -> Iterator[bytes]:
        yield b'{"value": {"type": "STRING", "data": "one"}}'
        broker.wait_for("orders", 1)
        broker.delete_topic("orders")
        broker.create_topic("orders", partitions=3)
        yield b'{"partition_id": 2, "value": {"type": "STRING", "data": "two"}}'
        broker.wait_for("orders", 1)
        broker.delete_topic("orders")
        yield b'{"value": {"type": "STRING", "data": "three"}}'

    answer = rest.client.post(path, content=body(), headers={"content-type": "application/json"})
    assert [json.loads(line)["error_code"] for line in answer.text.splitlines()] == [200, 200, 40401]
