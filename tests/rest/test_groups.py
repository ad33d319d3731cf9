"""Consumer groups, their lag and the settings of topics, by version 3."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest
from ottla.kproto.messages.share.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.testing.broker import Broker
from tests.rest.conftest import Rest


@pytest.fixture
def cluster(rest: Rest) -> str:
    return str(rest.get("/v3/clusters")[1]["data"][0]["cluster_id"])


@contextmanager
def member(broker: Broker, group: str, protocol: str) -> Iterator[Consumer]:
    """The only member of a group: it has every partition of `orders`, and has committed offset 1 of partition 0."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    deadline = time.monotonic() + 60
    while len(consumer.assignment()) < 2:
        assert time.monotonic() < deadline
        consumer.poll(0.1)
    consumer.commit(offsets=[TopicPartition("orders", 0, 1)], asynchronous=False)
    try:
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_and_its_lag(broker: Broker, rest: Rest, cluster: str, protocol: str) -> None:
    broker.create_topic("orders", partitions=2)
    for number in range(4):
        broker.produce("orders", str(number).encode(), partition=0)
    root = f"/v3/clusters/{cluster}/consumer-groups"
    name = "all/the readers"
    with member(broker, name, protocol):
        status, listed = rest.get(root)
        assert (status, listed["kind"], len(listed["data"])) == (200, "KafkaConsumerGroupList", 1)
        status, group = rest.get(f"{root}/all%2Fthe%20readers")
        assert (status, group) == (200, listed["data"][0])
        assert (group["consumer_group_id"], group["state"], group["is_simple"]) == (name, "STABLE", False)
        assert group["partition_assignor"] == ("range" if protocol == "classic" else "uniform")
        assert group["metadata"]["resource_name"] == f"crn:///kafka={cluster}/consumer-group={name}"

        # Links lead on whatever is in a name: librdkafka's ids of members are base64, with a slash in some.
        path = group["metadata"]["self"]
        (reader,) = rest.get(group["consumers"]["related"])[1]["data"]
        consumer_id = reader["consumer_id"]
        assert (reader["client_id"], reader["instance_id"]) == ("reader", None)
        assert rest.get(reader["metadata"]["self"]) == (200, reader)
        _, assigned = rest.get(reader["assignments"]["related"])
        assert [(it["topic_name"], it["partition_id"]) for it in assigned["data"]] == [("orders", 0), ("orders", 1)]

        (lag,) = rest.get(f"{path}/lags")[1]["data"]
        assert (lag["current_offset"], lag["log_end_offset"], lag["lag"]) == (1, 4, 3)
        assert (lag["topic_name"], lag["partition_id"], lag["consumer_id"]) == ("orders", 0, consumer_id)
        assert rest.get(lag["metadata"]["self"]) == (200, lag)
        assert rest.get(f"{path}/lags/orders/1")[0] == 404
        _, summary = rest.get(group["lag_summary"]["related"])
        assert (summary["total_lag"], summary["max_lag"], summary["max_lag_client_id"]) == (3, 3, "reader")
        assert summary["max_lag_partition"]["related"].endswith(f"/v3/clusters/{cluster}/topics/orders/partitions/0")


def test_a_group_that_nobody_is_in(broker: Broker, rest: Rest, cluster: str) -> None:
    """It has only committed offsets, one of a topic that is gone since."""
    for name in ("orders", "gone"):
        broker.create_topic(name)
        broker.produce(name, b"x")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "simple"})
    consumer.commit(offsets=[TopicPartition(name, 0, 0) for name in ("orders", "gone")], asynchronous=False)
    consumer.close()
    root = f"/v3/clusters/{cluster}/consumer-groups/simple"
    _, group = rest.get(root)
    assert (group["state"], group["is_simple"], group["partition_assignor"]) == ("EMPTY", True, "")
    assert rest.get(f"{root}/consumers")[1]["data"] == []
    assert [it["lag"] for it in rest.get(f"{root}/lags")[1]["data"]] == [1, 1]
    broker.delete_topic("gone")
    (left,) = rest.get(f"{root}/lags")[1]["data"]
    assert (left["topic_name"], left["consumer_id"], left["client_id"]) == ("orders", "", "")


@pytest.mark.parametrize(
    "path", ["consumer-groups/nobody", "consumer-groups/nobody/lags", "consumer-groups/nobody/consumers/x"]
)
def test_what_is_not_there(rest: Rest, cluster: str, path: str) -> None:
    assert rest.get(f"/v3/clusters/{cluster}/{path}") == (404, {"error_code": 404, "message": "HTTP 404 Not Found"})
    assert rest.get(f"/v3/clusters/another/{path}")[0] == 404


def test_groups_of_other_kinds_are_left_out(broker: Broker, rest: Rest, cluster: str) -> None:
    broker.create_topic("orders")
    host, _, port = broker.bootstrap.rpartition(":")
    join = ShareGroupHeartbeatRequest(
        group_id="shared", member_id=str(uuid4()), member_epoch=0, subscribed_topic_names=["orders"]
    )
    with closing(BrokerConnection(host, int(port), 30.0)) as connection:
        assert connection.call(join).error_code == 0
        assert [it.group_id for it in connection.call(ListGroupsRequest()).groups] == ["shared"]
        assert rest.get(f"/v3/clusters/{cluster}/consumer-groups")[1]["data"] == []
        assert rest.get(f"/v3/clusters/{cluster}/consumer-groups/shared")[0] == 404


def test_settings_of_a_topic(broker: Broker, rest: Rest, cluster: str) -> None:
    broker.create_topic("orders", configs={"retention.ms": "1000"})
    path = f"/v3/clusters/{cluster}/topics/orders/configs"
    status, listed = rest.get(path)
    assert (status, listed["kind"]) == (200, "KafkaTopicConfigList")
    names = [it["name"] for it in listed["data"]]
    assert names == sorted(names)
    assert {"cleanup.policy", "retention.ms"} <= set(names)
    _, own = rest.get(f"{path}/retention.ms")
    assert own in listed["data"]
    assert (own["value"], own["source"], own["is_default"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", False)
    assert own["synonyms"][0] == {"name": "retention.ms", "value": "1000", "source": "DYNAMIC_TOPIC_CONFIG"}
    _, default = rest.get(f"{path}/cleanup.policy")
    assert (default["value"], default["source"], default["is_default"]) == ("delete", "DEFAULT_CONFIG", True)
    assert rest.get(f"{path}/no.such.setting")[0] == 404
    assert rest.get(f"/v3/clusters/{cluster}/topics/no-such-topic/configs")[0] == 404
