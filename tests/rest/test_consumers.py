"""Consumers that are made, subscribed, read and ended by HTTP."""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from ottla.rest import consumer_requests
from ottla.rest.http import consumers
from ottla.testing.broker import Broker
from tests.rest.conftest import V2, Rest

JSON_RECORDS = {"accept": "application/vnd.kafka.json.v2+json"}
SOON_S = 300
LONG_WAIT_MS = 2 * SOON_S * 1_000


class Consumer:
    """A consumer by HTTP."""

    def __init__(self, rest: Rest, group: str, **settings: object) -> None:
        settings = {"format": "json", "auto.offset.reset": "earliest"} | settings
        self.form = settings["format"]
        self.client = rest.client
        status, made = self.ask("POST", f"{rest.url}/consumers/{group}", settings)
        assert status == 200, made
        self.uri = made["base_uri"]
        self.name = made["instance_id"]
        rest.consumers.append(self.uri)

    def ask(self, method: str, path: str, body: object = None, accept: str | None = None) -> tuple[int, Any]:
        url = path if path.startswith("http") else f"{self.uri}{path}"
        headers = {"content-type": V2} | ({} if accept is None else {"accept": accept})
        data = None if body is None else json.dumps(body).encode()
        answer = self.client.request(method, url, content=data, headers=headers)
        return answer.status_code, answer.json() if answer.content else None

    def records(self, query: str = "timeout=100") -> list[Any]:
        accept = f"application/vnd.kafka.{self.form}.v2+json"
        status, found = self.ask("GET", f"/records?{query}", accept=accept)
        assert status == 200, found
        return list(found)

    def read(self, count: int) -> list[Any]:
        """Records until there are so many."""
        found: list[Any] = []

        def is_read() -> bool:
            found.extend(self.records())
            return len(found) >= count

        until(is_read)
        return found

    def assignment(self) -> list[Any]:
        return list(self.ask("GET", "/assignments")[1]["partitions"])


def until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def part(index: int, topic: str = "orders", **more: object) -> dict[str, object]:
    return {"topic": topic, "partition": index, **more}


def test_a_subscribed_consumer_reads_and_commits(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", {"id": 1}, {"id": 2}, key='"k"')
    consumer = Consumer(rest, "g", **{"auto.commit.enable": "false"})
    assert consumer.ask("POST", "/subscription", {"topics": ["orders"]}) == (204, None)
    assert consumer.ask("GET", "/subscription") == (200, {"topics": ["orders"]})
    assert consumer.read(2) == [
        part(0, key="k", value={"id": 1}, offset=0),
        part(0, key="k", value={"id": 2}, offset=1),
    ]
    asked = {"partitions": [part(0)]}
    assert consumer.ask("GET", "/offsets", asked) == (200, {"offsets": []})
    assert consumer.ask("POST", "/offsets") == (200, [])
    committed = {"offsets": [part(0, offset=2, metadata="")]}
    assert consumer.ask("GET", "/offsets", asked) == (200, committed)
    assert broker.groups()["g"].lag == {("orders", 0): 0}
    assert consumer.ask("DELETE", "") == (204, None)
    assert consumer.ask("GET", "/records")[1]["error_code"] == 40403
    broker.wait_for_group("g", members=0)
    broker.produce("orders", {"id": 3})
    again = Consumer(rest, "g")
    again.ask("POST", "/subscription", {"topics": ["orders"]})
    assert [it["value"] for it in again.read(1)] == [{"id": 3}]


def test_what_was_read_is_committed_with_the_next_read_and_at_the_end(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", 1, 2, 3)
    consumer = Consumer(rest, "g")
    consumer.ask("POST", "/subscription", {"topics": ["orders"]})
    assert len(consumer.read(3)) == 3
    asked = {"partitions": [part(0)]}
    assert consumer.ask("GET", "/offsets", asked)[1] == {"offsets": []}  # it may not have reached the client
    assert consumer.records() == []
    assert consumer.ask("GET", "/offsets", asked)[1]["offsets"][0]["offset"] == 3
    broker.produce("orders", 4)
    assert len(consumer.read(1)) == 1
    assert consumer.ask("DELETE", "") == (204, None)
    assert broker.groups()["g"].offsets == {("orders", 0): 4}


def test_partitions_that_are_assigned_are_sought(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=2)
    broker.produce("orders", 1, 2, 3, partition=1)
    consumer = Consumer(rest, "g")
    assert consumer.ask("POST", "/assignments", {"partitions": [part(1)]}) == (204, None)
    assert consumer.assignment() == [part(1)]
    assert consumer.ask("POST", "/positions", {"offsets": [part(1, offset=1)]}) == (204, None)
    assert [it["value"] for it in consumer.read(2)] == [2, 3]
    assert consumer.ask("POST", "/positions/beginning", {"partitions": [part(1)]}) == (204, None)
    assert [it["value"] for it in consumer.read(3)] == [1, 2, 3]
    assert consumer.ask("POST", "/positions/end", {"partitions": [part(1)]}) == (204, None)
    assert consumer.records() == []
    # As in Confluent's, it names the record that was read.
    assert consumer.ask("POST", "/offsets", {"offsets": [part(1, offset=0)]}) == (200, [])
    asked = {"partitions": [part(1), part(0)]}
    assert consumer.ask("GET", "/offsets", asked)[1] == {"offsets": [part(1, offset=1, metadata="")]}
    assert consumer.ask("POST", "/positions", {"offsets": [part(0, offset=0)]})[1]["error_code"] == 40903
    assert consumer.ask("POST", "/subscription", {"topics": ["orders"]})[1]["error_code"] == 40903


def test_two_consumers_share_the_partitions_and_lose_nothing(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=4)
    for index in range(4):
        broker.produce("orders", *range(10), partition=index)
    first = Consumer(rest, "g")
    first.ask("POST", "/subscription", {"topics": ["orders"]})
    seen = {(it["partition"], it["offset"]) for it in first.read(40)}
    second = Consumer(rest, "g")
    second.ask("POST", "/subscription", {"topics": ["orders"]})

    def are_shared() -> bool:
        for consumer in (first, second):
            assert consumer.records("timeout=20") == []  # what was read is committed before it is given away
        return len(first.assignment()) == len(second.assignment()) == 2

    until(are_shared)
    for index in range(4):
        broker.produce("orders", 11, partition=index)
    found = first.read(2) + second.read(2)
    assert sorted((it["partition"], it["offset"]) for it in found) == [(index, 10) for index in range(4)]
    assert len(seen) == 40
    first.ask("DELETE", "")
    until(lambda: second.records("timeout=20") == [] and len(second.assignment()) == 4)


def test_a_read_waits_for_the_next_record_and_for_no_longer(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    consumer = Consumer(rest, "g")
    consumer.ask("POST", "/assignments", {"partitions": [part(0)]})
    assert consumer.records("timeout=1") == []
    broker.produce("orders", 1)
    assert [it["value"] for it in consumer.records("timeout=30000")] == [1]


def test_an_answer_is_bounded(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", *["x" * 1000] * 20)
    consumer = Consumer(rest, "g", format="binary")
    consumer.ask("POST", "/assignments", {"partitions": [part(0)]})
    assert len(consumer.records("max_bytes=5000&timeout=20000")) == 5
    assert len(consumer.records("max_bytes=1&timeout=20000")) == 1
    assert len(consumer.read(14)) == 14


def test_values_are_shown_in_the_consumers_format(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", b"\x00\xff", None, key=b"k")
    consumer = Consumer(rest, "g", format="binary")
    consumer.ask("POST", "/assignments", {"partitions": [part(0)]})
    first, second = consumer.read(2)
    assert (first["key"], first["value"]) == ("aw==", base64.b64encode(b"\x00\xff").decode())
    assert second["value"] is None
    assert consumer.ask("GET", "/records", accept="application/vnd.kafka.json.v2+json")[1]["error_code"] == 40601


def test_what_is_in_another_format_is_told_and_may_be_left_out(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", b"no JSON", 2)
    consumer = Consumer(rest, "g")
    consumer.ask("POST", "/assignments", {"partitions": [part(0)]})
    for _ in range(2):
        status, answer = consumer.ask("GET", "/records", accept="application/vnd.kafka.json.v2+json")
        assert (status, answer["error_code"]) == (500, 50002)
        assert "orders-0 at offset 0" in answer["message"]
    consumer.ask("POST", "/positions", {"offsets": [part(0, offset=1)]})
    assert [it["value"] for it in consumer.read(1)] == [2]


def test_values_with_schemas(broker: Broker, rest: Rest) -> None:
    body = {
        "value_schema": '{"type": "record", "name": "O", "fields": [{"name": "id", "type": "long"}]}',
        "records": [{"value": {"id": 7}}],
    }
    assert rest.produce("/topics/read-avro", "avro", body)[0] == 200
    consumer = Consumer(rest, "g", format="avro")
    consumer.ask("POST", "/assignments", {"partitions": [part(0, "read-avro")]})
    assert [it["value"] for it in consumer.read(1)] == [{"id": 7}]


def test_a_new_group_begins_where_it_is_told(broker: Broker, rest: Rest) -> None:
    broker.produce("orders", 1)
    latest = Consumer(rest, "latest", **{"auto.offset.reset": "latest"})
    latest.ask("POST", "/assignments", {"partitions": [part(0)]})
    assert latest.records() == []
    none = Consumer(rest, "none", **{"auto.offset.reset": "none"})
    none.ask("POST", "/assignments", {"partitions": [part(0)]})
    status, answer = none.ask("GET", "/records", accept=V2)
    assert (status, answer["error_code"]) == (500, 50002)


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/subscription", {"topics": "orders"}, 422),
        ("POST", "/subscription", {"topics": [1]}, 422),
        ("POST", "/subscription", {"topic_pattern": ".*"}, 422),
        ("POST", "/subscription", [], 422),
        ("POST", "/assignments", {"partitions": [{"topic": "orders"}]}, 422),
        ("POST", "/assignments", {"partitions": [part(1)]}, 40402),
        ("POST", "/assignments", {"partitions": [part(0, "none")]}, 40401),
        ("POST", "/assignments", {"partitions": [part(0)] * 1001}, 422),
        ("POST", "/offsets", {"offsets": [part(0, offset=-1)]}, 422),
        ("POST", "/positions", {"offsets": [part(0, offset="1")]}, 422),
        ("POST", "/positions/end", {}, 422),
        ("GET", "/records", None, 40903),
        ("GET", "/records?timeout=soon", None, 422),
    ],
)
def test_bad_requests_are_refused(broker: Broker, rest: Rest, method: str, path: str, body: object, code: int) -> None:
    broker.create_topic("orders")
    consumer = Consumer(rest, "g")
    status, answer = consumer.ask(method, path, body)
    assert answer["error_code"] == code, answer
    assert str(code).startswith(str(status))


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"format": "xml"}, 42204),
        ({"auto.offset.reset": "middle"}, 42204),
        ({"auto.commit.enable": "maybe"}, 42204),
        ({"consumer.request.timeout.ms": "x"}, 42204),
        ({"name": ""}, 42204),
        ({"nonsense": 1}, 422),
    ],
)
def test_bad_settings_are_refused(broker: Broker, rest: Rest, settings: object, code: int) -> None:
    answer = rest.client.post("/consumers/g", json=settings, headers={"content-type": V2})
    assert answer.json()["error_code"] == code


def test_a_name_is_taken_once(broker: Broker, rest: Rest) -> None:
    consumer = Consumer(rest, "g", name="mine")
    assert consumer.name == "mine"
    answer = rest.client.post("/consumers/g", json={"name": "mine"}, headers={"content-type": V2})
    assert answer.json()["error_code"] == 40902
    consumer.ask("DELETE", "")
    assert Consumer(rest, "g", name="mine").name == "mine"


@pytest.fixture
def long_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A read may wait for ten minutes: longer than any machine takes for the rest of a test."""
    for module in (consumer_requests, consumers):
        monkeypatch.setattr(module, "MAX_WAIT_MS", LONG_WAIT_MS)


@pytest.mark.usefixtures("long_waits")
def test_a_deletion_ends_a_read_that_waits(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders")
    consumer = Consumer(rest, "g")
    consumer.ask("POST", "/assignments", {"partitions": [part(0)]})
    found: list[Any] = []
    with httpx.Client(trust_env=False, timeout=LONG_WAIT_MS) as other:
        reading = threading.Thread(
            target=lambda: found.append(
                other.get(f"{consumer.uri}/records?timeout={LONG_WAIT_MS}", headers=JSON_RECORDS).json()
            )
        )
        reading.start()
        broker.requests.wait_for("Fetch", topic="orders")
        assert consumer.ask("DELETE", "") == (204, None)
        reading.join(SOON_S)
        assert not reading.is_alive()
    assert found == [[]]


@pytest.mark.usefixtures("long_waits")
def test_a_read_that_waits_does_not_hold_up_the_group(broker: Broker, rest: Rest) -> None:
    broker.create_topic("orders", partitions=2)
    first = Consumer(rest, "g")
    first.ask("POST", "/subscription", {"topics": ["orders"]})
    until(lambda: len(first.assignment()) == 2)
    found: list[Any] = []
    with httpx.Client(trust_env=False, timeout=LONG_WAIT_MS) as other:
        reading = threading.Thread(
            target=lambda: found.append(
                other.get(f"{first.uri}/records?timeout={LONG_WAIT_MS}", headers=JSON_RECORDS).json()
            )
        )
        reading.start()
        second = Consumer(rest, "g")
        second.ask("POST", "/subscription", {"topics": ["orders"]})
        until(lambda: len(second.assignment()) == 1)
        reading.join(SOON_S)
        assert not reading.is_alive()
    assert found == [[]]
