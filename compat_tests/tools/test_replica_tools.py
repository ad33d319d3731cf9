"""Kafka's tools for replicas, on three nodes that die meanwhile: of Ottla, or with --broker=kafka3 of Apache Kafka.

And what a producer is told that these tools cannot show.
"""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafkaCluster
from compat_tests.java.tools import Done, JavaTools
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch
from ottla.testing import Cluster

pytestmark = [pytest.mark.replicas, pytest.mark.java]

NODES = (1, 2, 3)
WAIT_S = 120.0
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "200",
    "min.insync.replicas": "1",
    "default.replication.factor": "1",
}
THROTTLE_BYTES_PER_SECOND = 1_000_000


class Nodes(Protocol):
    """Three nodes that can be killed and started one by one."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self, node_id: int) -> None: ...
    def start(self, node_id: int) -> None: ...


class KafkaNodes:
    def __init__(self, cluster: ApacheKafkaCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap

    def kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id - 1].kill()

    def start(self, node_id: int) -> None:
        self._cluster.nodes[node_id - 1].start()


class Described(NamedTuple):
    """A partition as `kafka-topics --describe` shows it."""

    leader: int | None
    replicas: list[int]
    isr: set[int]


@pytest.fixture(scope="module")
def nodes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    kind = request.config.getoption("--broker")
    if reason := java.missing():
        pytest.skip(reason)
    if kind == "ottla":
        with Cluster(3, config=SETTINGS) as cluster:
            yield cluster
    elif kind == "kafka3":
        with ApacheKafkaCluster(tmp_path_factory.mktemp("kafka3"), overrides=SETTINGS) as kafka:
            yield KafkaNodes(kafka)
    else:
        pytest.skip("it has nodes of its own")


class Operator:
    """Types commands, and reads what they print."""

    def __init__(self, nodes: Nodes, jvm: JavaTools, folder: Path) -> None:
        self.nodes = nodes
        self._jvm = jvm
        self._folder = folder

    def run(self, tool: str, *arguments: str) -> Done:
        return self._jvm.run(tool, "--bootstrap-server", self.nodes.bootstrap, *arguments)

    def ok(self, tool: str, *arguments: str) -> str:
        done = self.run(tool, *arguments)
        assert done.code == 0, f"{tool} {arguments}: {done.out}{done.err}"
        return done.out

    def create(self, topic: str, assignment: str, *configs: str) -> None:
        settings = [word for config in configs for word in ("--config", config)]
        self.ok("TopicCommand", "--create", "--topic", topic, "--replica-assignment", assignment, *settings)

    def produce(self, topic: str, records: int, size_bytes: int = 1000) -> None:
        counts = ("--num-records", str(records), "--record-size", str(size_bytes), "--throughput", "-1")
        self.ok("ProducerPerformance", "--topic", topic, *counts)

    def partition(self, topic: str, index: int = 0) -> Described:
        text = self.ok("TopicCommand", "--describe", "--topic", topic)
        found = re.search(rf"Partition: {index}\s+Leader: (\S+)\s+Replicas: (\S+)\s+Isr: *([\d,]*)", text)
        assert found, text
        leader = None if found[1] == "none" else int(found[1])
        return Described(leader, [*map(int, found[2].split(","))], {*map(int, filter(None, found[3].split(",")))})

    def listed(self, choice: str, topic: str) -> bool:
        """Whether a topic's partition is among those that a choice of `kafka-topics --describe` shows."""
        return f"Topic: {topic}\t" in self.ok("TopicCommand", "--describe", choice)

    def until(self, is_so: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_so():
            assert time.monotonic() < deadline, f"not within {WAIT_S:g} s: {what}"

    def reassign(self, action: str, topic: str, *replicas: list[int], more: tuple[str, ...] = ()) -> str:
        partitions = [{"topic": topic, "partition": index, "replicas": it} for index, it in enumerate(replicas)]
        file = self._folder / f"{topic}.json"
        file.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return self.ok("reassign.ReassignPartitionsCommand", action, "--reassignment-json-file", str(file), *more)

    def throttles(self, topic: str) -> str:
        """All throttles that are set, of the topic and of the brokers."""
        text = self.ok("ConfigCommand", "--describe", "--topic", topic)
        text += self.ok("ConfigCommand", "--describe", "--entity-type", "brokers")
        return "\n".join(re.findall(r"\S*throttled\S+", text))


@pytest.fixture
def operator(nodes: Nodes, jvm: JavaTools, tmp_path: Path) -> Operator:
    return Operator(nodes, jvm, tmp_path)


def test_partitions_move_under_a_throttle_which_is_removed_when_they_have(operator: Operator, tmp_path: Path) -> None:
    operator.create("moved", "1:2,2:1")
    operator.produce("moved", 4000)
    named = tmp_path / "topics.json"
    named.write_text(json.dumps({"version": 1, "topics": [{"topic": "moved"}]}))
    proposed = operator.ok(
        *("reassign.ReassignPartitionsCommand", "--generate", "--broker-list", "2,3"),
        *("--topics-to-move-json-file", str(named)),
    )
    assert "Proposed partition reassignment configuration" in proposed
    targets: tuple[list[int], list[int]] = ([2, 3], [3, 2])
    throttle = ("--throttle", str(THROTTLE_BYTES_PER_SECOND))
    began_at = time.monotonic()
    started = operator.reassign("--execute", "moved", *targets, more=throttle)
    assert "Successfully started partition reassignments for moved-0,moved-1" in started
    throttles = operator.throttles("moved")
    assert f"leader.replication.throttled.rate={THROTTLE_BYTES_PER_SECOND}" in throttles
    assert f"follower.replication.throttled.rate={THROTTLE_BYTES_PER_SECOND}" in throttles
    assert "leader.replication.throttled.replicas=" in throttles
    operator.until(
        lambda: "in progress" not in operator.reassign("--verify", "moved", *targets, more=("--preserve-throttles",)),
        "the move has ended",
    )
    # Two replicas of 2 MB, both to node 3, which takes 1 MB a second (and the first second's at once).
    assert time.monotonic() - began_at > 1.5
    assert operator.throttles("moved") == throttles
    verified = operator.reassign("--verify", "moved", *targets)
    assert "Reassignment of partition moved-1 is completed." in verified
    assert "Clearing broker-level throttles on brokers 1,2,3" in verified
    assert "Clearing topic-level throttles on topic moved" in verified
    assert operator.throttles("moved") == ""
    for index, target in enumerate(targets):
        described = operator.partition("moved", index)
        assert (described.replicas, described.isr) == (target, set(target))
    assert "No partition reassignments found." in operator.ok("reassign.ReassignPartitionsCommand", "--list")
    offsets = operator.ok("GetOffsetShell", "--topic", "moved")
    assert sum(int(line.rpartition(":")[2]) for line in offsets.split()) == 4000


def test_a_move_to_a_node_that_is_gone_is_cancelled(operator: Operator) -> None:
    operator.create("cancelled", "1")
    operator.nodes.kill(3)
    try:
        operator.reassign("--execute", "cancelled", [1, 3])
        found = operator.ok("reassign.ReassignPartitionsCommand", "--list")
        assert "cancelled-0: replicas: 1,3. adding: 3." in found
        assert "still in progress" in operator.reassign("--verify", "cancelled", [1, 3])
        assert operator.partition("cancelled").isr == {1}
        # The tool would ask node 3 to forget its throttles.
        cancelled = operator.reassign("--cancel", "cancelled", [1, 3], more=("--preserve-throttles",))
        assert "Successfully cancelled partition reassignment for: cancelled-0" in cancelled
        assert operator.partition("cancelled") == Described(1, [1], {1})
    finally:
        operator.nodes.start(3)


def elect(operator: Operator, kind: str, topic: str) -> str:
    arguments = ("--election-type", kind, "--topic", topic, "--partition", "0")
    done = operator.run("LeaderElectionCommand", *arguments)
    return done.out + done.err


def test_the_preferred_leader_is_elected(operator: Operator) -> None:
    operator.create("preferred", "1:2:3")
    operator.nodes.kill(1)
    try:
        operator.until(lambda: operator.partition("preferred").leader in (2, 3), "another leads")
        assert "PREFERRED_LEADER_NOT_AVAILABLE" in (refused := elect(operator, "preferred", "preferred")) or (
            "preferred leader was not available" in refused
        )
    finally:
        operator.nodes.start(1)
    operator.until(lambda: operator.partition("preferred").isr == {1, 2, 3}, "all are in sync")
    assert operator.partition("preferred").leader != 1
    assert "Successfully completed leader election (PREFERRED)" in elect(operator, "preferred", "preferred")
    assert operator.partition("preferred").leader == 1
    assert "Valid replica already elected for partitions preferred-0" in elect(operator, "preferred", "preferred")


def test_a_replica_that_is_not_in_sync_leads_only_by_an_unclean_election(operator: Operator) -> None:
    operator.create("unclean", "1:2")
    operator.produce("unclean", 10)
    operator.nodes.kill(2)
    try:
        operator.until(lambda: operator.partition("unclean").isr == {1}, "node 2 has left")
        operator.produce("unclean", 10)
        operator.nodes.kill(1)
        operator.nodes.start(2)
        operator.until(lambda: operator.partition("unclean").leader is None, "nobody leads")
        assert operator.listed("--unavailable-partitions", "unclean")
        assert "Successfully completed leader election (UNCLEAN)" in elect(operator, "unclean", "unclean")
        assert operator.partition("unclean").leader == 2
        assert operator.ok("GetOffsetShell", "--topic", "unclean") == "unclean:0:10\n"
    finally:
        operator.nodes.start(1)
    operator.until(lambda: operator.partition("unclean").isr == {1, 2}, "node 1 has cut its log and follows")
    assert operator.ok("GetOffsetShell", "--topic", "unclean") == "unclean:0:10\n"


class Idempotent:
    """Sends batches of one record into partition 0 of a topic, with whatever sequence it is told to."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic

    def send(self, sequence: int) -> tuple[str, int]:
        """The error's name and the offset that are answered."""
        batch = build_batch([Record(value=b"%d" % sequence)], producer_id=7, producer_epoch=0, base_sequence=sequence)
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        with Client(parse_addresses(self._bootstrap), 20) as client:
            topic = client.topic(self._topic)
            asked = TopicProduceData(name=self._topic, topic_id=topic.topic_id, partition_data=[data])
            leader = client.broker(topic.partitions[0].leader_id)
            answer = leader.call(ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[asked]))
        (told,) = answer.responses[0].partition_responses
        return ErrorCode.of(told.error_code).name, told.base_offset


def test_an_idempotent_producer_skips_a_sequence_if_enough_are_in_sync_only_after_a_batch(operator: Operator) -> None:
    """The batch before was refused, without a look at its sequence: what comes behind it is out of order."""
    operator.create("sequences", "1:2", "min.insync.replicas=2")
    producer = Idempotent(operator.nodes.bootstrap, "sequences")
    assert producer.send(0) == ("NONE", 0)
    operator.nodes.kill(2)
    try:
        operator.until(lambda: operator.partition("sequences").isr == {1}, "node 2 has left")
        assert producer.send(1) == ("NOT_ENOUGH_REPLICAS", -1)
        # Also what was written, and is only sent again because its acknowledgement was lost.
        assert producer.send(0) == ("NOT_ENOUGH_REPLICAS", -1)
    finally:
        operator.nodes.start(2)
    operator.until(lambda: operator.partition("sequences").isr == {1, 2}, "node 2 is in sync")
    assert producer.send(2) == ("OUT_OF_ORDER_SEQUENCE_NUMBER", -1)
    assert producer.send(0) == ("NONE", 0)
    assert [producer.send(sequence) for sequence in (1, 2, 1)] == [("NONE", 1), ("NONE", 2), ("NONE", 1)]


CHOICES = (
    "--under-replicated-partitions",
    "--at-min-isr-partitions",
    "--under-min-isr-partitions",
    "--unavailable-partitions",
)


def test_describe_chooses_partitions_by_their_replicas(operator: Operator) -> None:
    operator.create("watched", "2:3", "min.insync.replicas=1")
    operator.create("strict", "2:3", "min.insync.replicas=2")

    def chosen(topic: str) -> list[bool]:
        return [operator.listed(choice, topic) for choice in CHOICES]

    assert chosen("watched") == [False, False, False, False]
    assert chosen("strict") == [False, True, False, False]
    operator.nodes.kill(2)
    try:
        operator.until(lambda: operator.partition("strict").isr == {3}, "node 2 has left")
        assert chosen("watched") == [True, True, False, False]
        assert chosen("strict") == [True, False, True, False]
    finally:
        operator.nodes.start(2)
    operator.until(lambda: operator.partition("strict").isr == {2, 3}, "node 2 is back")
    operator.until(lambda: operator.partition("watched").isr == {2, 3}, "node 2 is back")
    assert chosen("watched") == [False, False, False, False]
    assert chosen("strict") == [False, True, False, False]


def test_replica_verification_finds_no_difference(operator: Operator) -> None:
    operator.create("verified", "1:2:3")
    operator.produce("verified", 200)
    tool = "org.apache.kafka.tools.ReplicaVerificationTool"
    process = subprocess.Popen(
        java.java(tool, "--broker-list", operator.nodes.bootstrap, "--topics-include", "verified",
                  "--report-interval-ms", "1000"),
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(r"max lag is (\d+) for partition (\S+) at offset (\d+) among (\d+) partitions", line):
                assert (found[1], found[2], found[4]) == ("0", "verified-0", "1"), line
                if found[3] == "200":
                    break
        else:
            pytest.fail(f"the tool ended with {process.wait()}")
    finally:
        process.kill()
        process.communicate()
