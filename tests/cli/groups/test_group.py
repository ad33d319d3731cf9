"""`ottla group`."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import Consumer, ShareConsumer

PROTOCOLS = ("classic", "consumer")


@contextmanager
def consuming(broker: Any, topic: str, protocol: str, group: str = "g") -> Iterator[Consumer]:
    """A member of the group that has its partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.address,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    deadline = time.monotonic() + 120
    while not consumer.assignment():
        assert time.monotonic() < deadline, "no assignment"
        consumer.poll(0.05)
    yield consumer
    consumer.close()


def groups(broker: Any, *filters: str) -> dict[str, Any]:
    listed = json.loads(broker.run("group", "list", "--json", *filters).stdout)
    return {group.pop("group"): group for group in listed}


def described(broker: Any, group: str = "g") -> dict[str, Any]:
    (found,) = json.loads(broker.run("group", "describe", group, "--json").stdout)
    assert isinstance(found, dict)
    return found


def offsets(broker: Any, group: str = "g") -> list[Any]:
    return [row["offset"] for row in described(broker, group)["offsets"]]


def produce(broker: Any, topic: str, partition: int, count: int) -> None:
    text = "".join(f"{n}\n" for n in range(count)).encode()
    broker.run("produce", topic, "-p", str(partition), stdin=text)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_with_a_member(broker: Any, protocol: str) -> None:
    broker.run("topic", "create", "flights", "-p", "2")
    produce(broker, "flights", 0, 5)
    with consuming(broker, "flights", protocol) as consumer:
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
        consumer.commit(message=message, asynchronous=False)
        found = described(broker)
        assert (found["type"], found["state"], found["coordinator"]) == (protocol, "Stable", 1)
        (member,) = found["members"]
        assert member["client"] == "reader"
        assert member["assignment"] == [{"topic": "flights", "partition": n} for n in (0, 1)]
        assert [(row["offset"], row["end_offset"], row["lag"], row["member"]) for row in found["offsets"]] == [
            (1, 5, 4, member["member"]),
            (None, 0, None, member["member"]),
        ]
        assert groups(broker) == {"g": {"type": protocol, "state": "Stable", "protocol": "consumer"}}
        table = broker.run("group", "describe", "g").stdout.decode()
        assert "lag 4" in table
        assert "flights:0,1" in table

        for action in (["seek", "g", "--to", "latest"], ["delete", "g"]):
            refused = broker.run("group", *action, check=False)
            assert refused.returncode == 1
            assert b"has members" in refused.stderr or b"has a member" in refused.stderr
            assert b"stop its consumers first" in refused.stderr
    assert groups(broker, "--lag")["g"]["lag"] == 4
    assert broker.run("group", "list", "--lag").stdout.decode().splitlines()[1].split()[-1] == "4"
    assert described(broker)["state"] == "Empty"
    broker.run("group", "seek", "g", "--to", "latest")
    assert offsets(broker) == [5]
    broker.run("group", "delete", "g")
    assert groups(broker) == {}


def test_seek_to_each_kind_of_place(broker: Any) -> None:
    broker.run("topic", "create", "t", "-p", "2")
    produce(broker, "t", 0, 4)
    produce(broker, "t", 1, 6)
    for where, expected in {
        "latest": [4, 6],
        "earliest": [0, 0],
        "3": [3, 3],
        "5": [4, 5],
        "-1": [3, 5],
        "-5": [0, 1],
        "s@0": [0, 0],
        "2020-01-01T00:00:00Z": [0, 0],
        "2999-01-01T00:00:00+01:00": [4, 6],
    }.items():
        broker.run("group", "seek", "g", "t", f"--to={where}")
        assert offsets(broker) == expected, where

    moved = json.loads(broker.run("group", "seek", "g", "t:1", "--to", "2", "--json").stdout)
    assert moved == [{"topic": "t", "partition": 1, "from": 6, "to": 2}]
    assert offsets(broker) == [4, 2]
    dry = broker.run("group", "seek", "g", "--to", "earliest", "--dry-run").stdout.decode().splitlines()
    assert [line.split() for line in dry] == [
        ["TOPIC", "PARTITION", "FROM", "TO"],
        ["t", "0", "4", "0"],
        ["t", "1", "2", "0"],
    ]
    assert offsets(broker) == [4, 2]


def test_list_filters(broker: Any) -> None:
    broker.run("topic", "create", "t")
    broker.run("group", "seek", "g", "t", "--to", "earliest")
    assert groups(broker) == {"g": {"type": "classic", "state": "Empty", "protocol": ""}}
    assert groups(broker, "--state", "stable") == {}
    assert groups(broker, "--type", "consumer") == {}
    assert groups(broker, "--state", "empty", "--type", "classic").keys() == {"g"}
    table = broker.run("group", "list").stdout.decode().splitlines()
    assert [line.split() for line in table] == [["GROUP", "TYPE", "STATE", "PROTOCOL"], ["g", "classic", "Empty", "-"]]


def test_failures_say_what_to_do(broker: Any) -> None:
    broker.run("topic", "create", "t")
    for arguments, words in [
        (["describe", "none"], "ottla group list"),
        (["delete", "none"], "there is no group 'none'"),
        (["seek", "none", "--to", "latest"], "name the topics"),
        (["seek", "g", "none", "--to", "latest"], "ottla topic create none"),
        (["seek", "g", "t:0,x", "--to", "latest"], "write topic or topic:0,1"),
        (["seek", "g", "t:7", "--to", "latest"], "has partitions 0 to 0"),
        (["seek", "g", "t", "--to", "yesterday"], "write beginning"),
    ]:
        done = broker.run("group", *arguments, check=False)
        assert done.returncode == 1, arguments
        assert done.stderr.startswith(b"ottla group: ")
        assert words in done.stderr.decode(), arguments
    broker.run("group", "delete", "none", "--if-exists")


def test_a_share_group(broker: Any) -> None:
    broker.run("topic", "create", "flights", "-p", "2")
    broker.run("config", "set", "group", "shared", "share.auto.offset.reset=earliest")
    produce(broker, "flights", 0, 5)
    consumer = ShareConsumer({"bootstrap.servers": broker.address, "group.id": "shared", "client.id": "reader"})
    consumer.subscribe(["flights"])
    deadline = time.monotonic() + 120
    taken = 0
    while taken < 5:
        assert time.monotonic() < deadline, "nothing was delivered"
        taken += len(list(consumer.poll(0.2)))
    consumer.commit_sync(10)
    assert groups(broker, "--type", "share") == {"shared": {"type": "share", "state": "Stable", "protocol": "share"}}
    found = described(broker, "shared")
    assert (found["type"], found["assignor"], [member["client"] for member in found["members"]]) == (
        "share",
        "simple",
        ["reader"],
    )
    (member,) = [member["member"] for member in found["members"]]
    rows = {row["partition"]: row for row in found["offsets"]}
    assert (rows[0]["lag"], rows[0]["end_offset"], rows[0]["member"]) == (0, 5, member)
    assert b"Stable" in broker.run("group", "describe", "shared").stdout
    consumer.close()
    broker.run("group", "delete", "shared")
    assert groups(broker, "--type", "share") == {}
