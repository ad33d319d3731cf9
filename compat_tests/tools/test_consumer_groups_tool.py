"""kafka-consumer-groups, every verb, on groups of both protocols; and Kafka's formatters of __consumer_offsets.

What is expected is what the tool of Apache Kafka 4.3 prints for Apache Kafka (`--broker=both`), less what differs from
run to run: member ids, ports and how columns are padded.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.confluent import Confluent
from compat_tests.java.tools import Done, JavaTools
from ottla.coordinator.partitioning import coordinator_partition

pytestmark = pytest.mark.java

PROTOCOLS = ("classic", "consumer")
OFFSETS_PARTITIONS = 4
IN_USE = "inactive, but the current state is Stable."
SUBSCRIBED = "Deleting offsets of a topic is forbidden while the consumer group is actively subscribed to it."

Tool = Callable[..., Done]


@pytest.fixture
def tool(broker: BrokerProcess, jvm: JavaTools) -> Tool:
    """Runs kafka-consumer-groups."""

    def run(*arguments: str) -> Done:
        return jvm.run("consumer.group.ConsumerGroupCommand", "--bootstrap-server", broker.bootstrap, *arguments)

    return run


@pytest.fixture
def group() -> str:
    return f"tool-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def filled(broker: BrokerProcess, new_topic: Callable[..., str]) -> str:
    """A topic of two partitions with five records each."""
    topic = new_topic(partitions=2)
    _fill(broker, topic)
    return topic


def _fill(broker: BrokerProcess, topic: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(10):
        producer.produce(topic, b"value", partition=number % 2)
    assert producer.flush(30) == 0


@contextmanager
def member(broker: BrokerProcess, group: str, topic: str, protocol: str) -> Iterator[None]:
    """A group with one member that has read one record of each partition and committed that."""
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
    consumer.subscribe([topic])
    seen: dict[int | None, Message] = {}
    deadline = time.monotonic() + 120
    while len(seen) < 2:
        assert time.monotonic() < deadline
        message = consumer.poll(0.1)
        if message is not None and message.error() is None and message.offset() == 0:
            seen[message.partition()] = message
    for message in seen.values():
        consumer.commit(message=message, asynchronous=False)
    yield
    consumer.close()


@pytest.fixture
def left(broker: BrokerProcess, group: str, filled: str) -> str:
    """A group whose only member has left its offsets behind."""
    with member(broker, group, filled, "consumer"):
        pass
    return group


def rows(done: Done, *columns: int) -> list[list[str]]:
    """Some columns of the table below its head, sorted: the tool goes through partitions in no order of its own."""
    assert done.code == 0, done
    head = next(number for number, line in enumerate(done.lines) if line[0] in ("GROUP", "TOPIC"))
    return sorted([line[column] for column in columns] for line in done.lines[head + 1 :])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_in_use(broker: BrokerProcess, tool: Tool, group: str, filled: str, protocol: str) -> None:
    with member(broker, group, filled, protocol):
        _check_lists(tool, group, protocol)
        _check_descriptions(tool, group, filled, protocol)
        _check_refusals(tool, group, filled)
    assert (
        tool("--describe", "--group", group, "--members").err == f"\nConsumer group '{group}' has no active members.\n"
    )


def _check_lists(tool: Tool, group: str, protocol: str) -> None:
    kind = protocol.capitalize()
    assert group in tool("--list").out.splitlines()
    assert [group, "Stable"] in tool("--list", "--state").lines
    assert [group, "Stable"] in tool("--list", "--state", "Stable,Empty").lines
    assert [group, "Stable"] not in tool("--list", "--state", "Empty").lines
    assert [group, kind] in tool("--list", "--type").lines
    assert [group, kind, "Stable"] in tool("--list", "--type", protocol, "--state").lines
    other = "consumer" if protocol == "classic" else "classic"
    assert group not in tool("--list", "--type", other).out


def _check_descriptions(tool: Tool, group: str, topic: str, protocol: str) -> None:
    described = tool("--describe", "--group", group)
    offsets = [[group, topic, str(index), "1", "5", "4"] for index in (0, 1)]
    assert rows(described, *range(6)) == offsets
    assert rows(described, 7, 8) == [["/127.0.0.1", "reader"]] * 2
    assert (
        rows(tool("--describe", "--group", group, "--offsets", "--verbose"), 3, 4, 5, 6) == [["0", "1", "5", "4"]] * 2
    )
    (member_id,) = {row[0] for row in rows(described, 6)}

    members = tool("--describe", "--group", group, "--members")
    assert rows(members, 1, 2, 3, 4) == [[member_id, "/127.0.0.1", "reader", "2"]]
    assigned = f"{topic}:0,1"
    (verbose,) = rows(tool("--describe", "--group", group, "--members", "--verbose"), 5, 6, 7, 8)
    if protocol == "classic":
        assert verbose == ["-", assigned, "-", "-"]
    else:
        epoch = verbose[0]
        assert verbose == [epoch, assigned, epoch, assigned]

    strategy = "range" if protocol == "classic" else "uniform"
    assert rows(tool("--describe", "--group", group, "--state"), 2, 3, 4, 5) == [["(1)", strategy, "Stable", "1"]]
    ((epoch, target_epoch),) = rows(tool("--describe", "--group", group, "--state", "--verbose"), 5, 6)
    assert (epoch, target_epoch) == ("-", "-") if protocol == "classic" else epoch == target_epoch


def test_all_groups_are_described(own_broker: BrokerProcess, jvm: JavaTools) -> None:
    """On a broker of its own: the tool gives up at a group whose assignment it cannot read, as other tests make."""
    topic = "described"
    Confluent(own_broker.bootstrap).create_topic(topic, partitions=2)
    _fill(own_broker, topic)
    with member(own_broker, "classic", topic, "classic"), member(own_broker, "modern", topic, "consumer"):
        described = jvm.run(
            "consumer.group.ConsumerGroupCommand",
            "--bootstrap-server",
            own_broker.bootstrap,
            "--describe",
            "--all-groups",
        )
    words = [word for line in described.lines for word in line]
    assert (words.count("classic"), words.count("modern")) == (2, 2), described


def _check_refusals(tool: Tool, group: str, topic: str) -> None:
    assert IN_USE in tool("--reset-offsets", "--group", group, "--topic", topic, "--to-earliest", "--execute").out
    assert "The group is not empty." in tool("--delete", "--group", group).out
    assert SUBSCRIBED in tool("--delete-offsets", "--group", group, "--topic", topic).out
    nothing = tool("--delete-offsets", "--group", group, "--topic", "no-such-topic").out
    assert "This server does not host this topic-partition." in nothing


RESETS = [
    (["--to-latest"], ["5", "5"]),
    (["--shift-by", "-2"], ["3", "3"]),
    (["--to-offset", "2"], ["2", "2"]),
    (["--to-offset", "99"], ["5", "5"]),
    (["--to-earliest"], ["0", "0"]),
    (["--to-current"], ["0", "0"]),
    (["--to-datetime", "2099-01-01T00:00:00.000"], ["5", "5"]),
    (["--by-duration", "PT1H"], ["0", "0"]),
]


def test_reset_offsets(tool: Tool, left: str, filled: str, tmp_path: Path) -> None:
    for how, expected in RESETS:
        done = tool("--reset-offsets", "--group", left, "--topic", filled, *how, "--execute")
        assert rows(done, 0, 1, 2, 3) == [[left, filled, str(n), offset] for n, offset in enumerate(expected)], how
        assert rows(tool("--describe", "--group", left), 2, 3) == [
            [str(n), offset] for n, offset in enumerate(expected)
        ]

    one = tool("--reset-offsets", "--group", left, "--topic", f"{filled}:1", "--to-latest", "--dry-run")
    assert rows(one, 1, 2, 3) == [[filled, "1", "5"]]
    plan = tool("--reset-offsets", "--group", left, "--all-topics", "--to-latest", "--dry-run", "--export").out
    assert sorted(plan.split()) == [f"{filled},0,5", f"{filled},1,5"]
    assert rows(tool("--describe", "--group", left), 3) == [["0"], ["0"]]
    file = tmp_path / "plan.csv"
    file.write_text(f"{filled},0,1\n{filled},1,4\n")
    done = tool("--reset-offsets", "--group", left, "--from-file", str(file), "--execute")
    assert rows(done, 2, 3) == [["0", "1"], ["1", "4"]]
    assert rows(tool("--describe", "--group", left), 3, 5) == [["1", "4"], ["4", "1"]]


def test_a_reset_makes_a_group(tool: Tool, group: str, filled: str) -> None:
    done = tool("--reset-offsets", "--group", group, "--topic", filled, "--to-latest", "--execute")
    assert rows(done, 3) == [["5"], ["5"]]
    assert [group, "Classic", "Empty"] in tool("--list", "--type", "--state").lines


def test_delete_offsets_then_the_group(tool: Tool, left: str, filled: str) -> None:
    done = tool("--delete-offsets", "--group", left, "--topic", f"{filled}:0")
    assert done.lines[-1] == [filled, "0", "Successful"]
    assert rows(tool("--describe", "--group", left), 2, 3) == [["1", "1"]]
    assert (
        tool("--delete", "--group", left).out == f"Deletion of requested consumer groups ('{left}') was successful.\n"
    )
    assert left not in tool("--list").out


def test_a_group_that_does_not_exist(tool: Tool, group: str) -> None:
    for detail in ([], ["--members"], ["--state"]):
        done = tool("--describe", "--group", group, *detail)
        assert done.out.endswith(f"Group {group} not found.\n"), detail
    assert "The group id does not exist." in tool("--delete", "--group", group).out
    assert "The group id does not exist." in tool("--delete-offsets", "--group", group, "--topic", "t").out


def test_expressions_are_checked_by_the_tool_itself(jvm: JavaTools) -> None:
    checked = jvm.run("consumer.group.ConsumerGroupCommand", "--validate-regex", "a.*(")
    assert "is invalid: missing closing )." in checked.out


def test_kafkas_formatters_read_the_offsets_topic(
    broker: BrokerProcess, jvm: JavaTools, group: str, filled: str
) -> None:
    with member(broker, group, filled, "classic"):
        pass

    partition = str(coordinator_partition(group, OFFSETS_PARTITIONS))

    def formatted(formatter: str) -> list[dict[str, Any]]:
        # Of one partition, so that it need not join a group within the timeout.
        done = jvm.run(
            "consumer.ConsoleConsumer", "--bootstrap-server", broker.bootstrap, "--topic", "__consumer_offsets",
            "--partition", partition, "--offset", "earliest", "--timeout-ms", "4000",
            "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
        )  # fmt: skip
        assert done.code == 0, done
        decoder, position, found = json.JSONDecoder(), 0, []
        while position < len(done.out.rstrip()):
            record, position = decoder.raw_decode(done.out, position)
            if record["key"]["data"]["group"] == group:
                found.append(record)
        return found

    commits = [(record["key"], record["value"]) for record in formatted("OffsetsMessageFormatter")]
    assert len(commits) == 2
    for key, value in commits:
        assert (key["type"], key["data"]["topic"]) == (1, filled)
        data = value["data"]
        assert value["version"] == 4
        assert {name: data[name] for name in ("offset", "leaderEpoch", "metadata")} == {
            "offset": 1,
            "leaderEpoch": 0,
            "metadata": "",
        }
        assert set(data) == {"offset", "leaderEpoch", "metadata", "commitTimestamp", "topicId"}

    last = formatted("GroupMetadataMessageFormatter")[-1]
    value = last["value"]
    assert value["version"] == 3
    data = value["data"]
    assert (data["protocolType"], data["protocol"], data["members"]) == ("consumer", None, [])
