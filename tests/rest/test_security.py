"""The REST proxy of a broker with users: who is let in, what ACLs let them do, and what quotas hold back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import trio
import trio.testing
from confluent_kafka import Consumer, TopicPartition

from ottla.rest.node import NodeCaller
from ottla.server.quotas.clients import ClientQuotas
from ottla.testing.broker import Broker

USERS = {"ann": "a-secret", "bob": "b-secret", "eve": "e-secret"}
ACLS = [
    "ann describe,read,write,create topic:orders*",
    "ann read,write topic:subject:orders*",
    "bob describe topic:orders",
    "bob write topic:orders",
    "ann read group:readers",
    "bob read group:readers",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    users = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    config = {
        "ottla.rest.listeners": "127.0.0.1:0",
        "ottla.registry.listeners": "127.0.0.1:0",
        "ottla.http.security.protocol": "SASL_PLAINTEXT",
        "listener.name.http.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "listener.name.http.connection.failed.authentication.delay.ms": "0",
    }
    with Broker(config=config, users=USERS, acls=ACLS) as broker:
        broker.create_topic("orders")
        broker.create_topic("secret")
        yield broker


def ask(broker: Broker, user: str | None, method: str, path: str, body: object = None, form: str = "json") -> Any:
    assert broker._thread is not None
    auth = None if user is None else (user, USERS.get(user, "wrong"))
    headers = {"content-type": f"application/vnd.kafka.{form}.v2+json" if form else "application/json"}
    data = None if body is None else json.dumps(body).encode()
    url = f"{broker._thread.ready.rest_url}{path}"
    answer = httpx.request(method, url, content=data, headers=headers, auth=auth, trust_env=False, timeout=30)
    return answer.status_code, answer.json() if answer.content else None


def cluster_of(broker: Broker) -> str:
    return str(ask(broker, "ann", "GET", "/v3/clusters")[1]["data"][0]["cluster_id"])


def test_only_users_are_let_in(broker: Broker) -> None:
    assert ask(broker, None, "GET", "/topics") == (401, {"error_code": 40101, "message": "Unauthorized"})
    assert ask(broker, "nobody", "GET", "/topics")[0] == 401
    assert ask(broker, "eve", "GET", "/topics") == (200, [])


def test_acls_say_what_is_seen(broker: Broker) -> None:
    assert ask(broker, "bob", "GET", "/topics") == (200, ["orders"])
    path = f"/v3/clusters/{cluster_of(broker)}/topics"
    assert [it["topic_name"] for it in ask(broker, "bob", "GET", path)[1]["data"]] == ["orders"]
    assert ask(broker, "bob", "GET", f"{path}/orders")[0] == 200
    # Whether a topic exists that one may not see is not told.
    refused = 403, {"error_code": 40301, "message": "User:bob may not describe secret"}
    assert ask(broker, "bob", "GET", "/topics/secret/partitions") == refused
    assert ask(broker, "bob", "GET", f"{path}/secret") == refused
    assert ask(broker, "bob", "GET", "/topics/none/partitions")[0] == 403
    assert ask(broker, "bob", "GET", "/topics/orders")[1]["error_code"] == 40301  # it has settings


def test_acls_say_what_is_written(broker: Broker) -> None:
    body = {"records": [{"value": 1}]}
    assert ask(broker, "bob", "POST", "/topics/orders", body)[0] == 200
    assert ask(broker, "eve", "POST", "/topics/orders", body)[0] == 403
    assert ask(broker, "bob", "POST", "/topics/secret", body)[0] == 403
    assert broker.records("secret") == []
    cluster = cluster_of(broker)
    path = f"/v3/clusters/{cluster}/topics/orders/records"
    assert ask(broker, "eve", "POST", path, {}, "")[0] == 403
    assert ask(broker, "bob", "POST", path, {}, "")[1]["error_code"] == 200


def test_only_who_may_create_topics_does_so_by_writing(broker: Broker) -> None:
    body = {"records": [{"value": 1}]}
    assert ask(broker, "ann", "POST", "/topics/orders-new", body)[0] == 200
    assert ask(broker, "bob", "POST", "/topics/orders-other", body)[0] == 403
    assert "orders-other" not in broker.topics()


def test_subjects_are_protected_as_at_the_registry(broker: Broker) -> None:
    body = {"records": [{"value": 1}], "value_schema": '"long"'}
    status, answer = ask(broker, "bob", "POST", "/topics/orders", body, "avro")
    assert (status, answer["message"]) == (403, "User:bob may not write subject:orders-value")
    schema_id = ask(broker, "ann", "POST", "/topics/orders", body, "avro")[1]["value_schema_id"]
    by_id = {"records": [{"value": 1}], "value_schema_id": schema_id}
    assert ask(broker, "ann", "POST", "/topics/orders", by_id, "avro")[0] == 200
    assert ask(broker, "bob", "POST", "/topics/orders", by_id, "avro")[0] == 403


def test_a_consumer_is_its_users(broker: Broker) -> None:
    path = "/consumers/readers/instances/mine"
    assert ask(broker, "eve", "POST", "/consumers/readers", {})[0] == 403
    assert ask(broker, "ann", "POST", "/consumers/others", {})[0] == 403
    assert ask(broker, "ann", "POST", "/consumers/readers", {"name": "mine", "format": "json"})[0] == 200
    assert ask(broker, "bob", "GET", f"{path}/subscription")[1]["error_code"] == 40403
    assert ask(broker, "ann", "POST", f"{path}/subscription", {"topics": ["secret"]})[1]["error_code"] == 40301
    parts = {"partitions": [{"topic": "secret", "partition": 0}]}
    assert ask(broker, "ann", "POST", f"{path}/assignments", parts)[1]["error_code"] == 40301
    assert ask(broker, "ann", "GET", f"{path}/subscription") == (200, {"topics": []})
    bobs = "/consumers/readers/instances/bobs"
    assert ask(broker, "bob", "POST", "/consumers/readers", {"name": "bobs"})[0] == 200
    assert ask(broker, "bob", "POST", f"{bobs}/subscription", {"topics": ["orders"]})[1]["error_code"] == 40301


class Held:
    """A broker as far as its quotas are asked."""

    def __init__(self) -> None:
        self.quotas = ClientQuotas()


async def test_who_is_beyond_a_quota_is_answered_later(autojump_clock: trio.testing.MockClock) -> None:
    broker: Any = Held()
    broker.quotas.set_quotas({(("user", "ann"),): {"producer_byte_rate": 1000.0}})
    ann, bob = NodeCaller(broker, "User:ann", None), NodeCaller(broker, "User:bob", None)
    began = trio.current_time()
    await bob.has_produced(1_000_000)
    assert trio.current_time() == began
    await ann.has_produced(20_000)
    assert trio.current_time() > began + 5
    began = trio.current_time()
    await ann.has_produced(10_000_000)
    assert trio.current_time() == began + 30
    assert broker.quotas.throttles["producer_byte_rate"].count == 2


def test_the_time_of_requests_and_of_streams_counts(broker: Broker) -> None:
    path = f"/v3/clusters/{cluster_of(broker)}/topics/orders/records"
    assert broker._thread is not None
    quotas = broker._thread.ready.broker.quotas
    throttle = quotas.throttles["request_percentage"]
    before = throttle.count
    broker._call_sync(quotas.set_quotas, {(("user", "ann"),): {"request_percentage": 0.001}})
    try:
        assert ask(broker, "bob", "GET", "/topics")[0] == 200
        assert throttle.count == before
        assert ask(broker, "ann", "GET", "/topics/secret")[0] == 403
        assert throttle.count == before + 1
        record = {"value": {"type": "STRING", "data": "x"}}
        assert ask(broker, "ann", "POST", path, record, form="")[1]["error_code"] == 200
        # Once for the request, and once for its record.
        assert throttle.count == before + 3
    finally:
        broker._call_sync(quotas.set_quotas, {})


def test_acls_say_which_groups_and_settings_are_seen(broker: Broker) -> None:
    consumer = Consumer({**broker.client_config("ann"), "group.id": "readers"})
    consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
    consumer.close()
    path = f"/v3/clusters/{cluster_of(broker)}"
    assert [it["consumer_group_id"] for it in ask(broker, "bob", "GET", f"{path}/consumer-groups")[1]["data"]] == [
        "readers"
    ]
    assert ask(broker, "eve", "GET", f"{path}/consumer-groups")[1]["data"] == []
    # Whether a group exists that one may not see is not told.
    for name in ("readers", "none"):
        refused = 403, {"error_code": 40301, "message": f"User:eve may not describe group {name}"}
        assert ask(broker, "eve", "GET", f"{path}/consumer-groups/{name}/lags") == refused
    assert len(ask(broker, "bob", "GET", f"{path}/consumer-groups/readers/lags")[1]["data"]) == 1
    refused = 403, {"error_code": 40301, "message": "User:bob may not see the settings of orders"}
    assert ask(broker, "bob", "GET", f"{path}/topics/orders/configs") == refused
