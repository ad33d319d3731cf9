"""Three nodes with three replicas beside three of Apache Kafka's: gaps when a leader goes, acks=all, catching up, rest.

    python -m benchmarks.replication [--rounds 1] [--only gaps|load|catch-up|rest] [--brokers ottla,kafka] [--quick]

All settings are the defaults, but for three replicas of which two must be in sync. The brokers take turns, each on new
folders. One JSON object a line; `--quick` moves less, to see whether everything runs.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks.measuring.process_cost import cost
from compat_tests.brokers.apache_kafka import ApacheKafkaCluster
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.client.errors import UnknownTopicError
from ottla.kproto.messages.topics.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.testing import Cluster

NODES: Final = (1, 2, 3)
REPLICATED: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
DEFAULT_SESSION: Final = {"broker.session.timeout.ms": "9000", "broker.heartbeat.interval.ms": "2000"}
VALUE: Final = bytes(1024)
WAIT_SECONDS: Final = 600.0


class Nodes(Protocol):
    """Three nodes that can be ended and started one by one."""

    @property
    def bootstrap(self) -> str: ...
    def kill(self, node_id: int) -> None: ...
    def stop(self, node_id: int) -> None: ...
    def start(self, node_id: int) -> None: ...
    def pid(self, node_id: int) -> int: ...


class KafkaNodes:
    """Apache Kafka's as nodes."""

    def __init__(self, cluster: ApacheKafkaCluster) -> None:
        self._cluster = cluster
        self.bootstrap = cluster.bootstrap

    def kill(self, node_id: int) -> None:
        self._cluster.nodes[node_id - 1].kill()

    def stop(self, node_id: int) -> None:
        self._cluster.nodes[node_id - 1].stop()

    def start(self, node_id: int) -> None:
        self._cluster.nodes[node_id - 1].start()

    def pid(self, node_id: int) -> int:
        return self._cluster.nodes[node_id - 1].pid


@contextmanager
def _ottla() -> Iterator[Nodes]:
    with Cluster(3, config={**REPLICATED, **DEFAULT_SESSION}) as cluster:
        yield cluster


@contextmanager
def _kafka() -> Iterator[Nodes]:
    with tempfile.TemporaryDirectory() as folder, ApacheKafkaCluster(Path(folder), overrides=REPLICATED) as cluster:
        yield KafkaNodes(cluster)


BROKERS: Final[Mapping[str, Callable[[], Any]]] = {"ottla": _ottla, "kafka": _kafka}


class Amounts(NamedTuple):
    """How much is moved, and for how long."""

    gap_runs: int
    records: int
    catch_up_mb: int
    catch_up_partitions: int
    idle_partitions: int
    idle_seconds: float


WHOLE: Final = Amounts(3, 500_000, 5_000, 1_000, 5_000, 30.0)
QUICK: Final = Amounts(1, 20_000, 50, 20, 100, 3.0)


# Topics ---------------------------------------------------------------------------------------------------------------


def create(nodes: Nodes, name: str, partitions: int, replicas: int = 3) -> None:
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions, replicas)], operation_timeout=60).values():
        future.result()
    wait_in_sync(nodes, name, replicas)


def wait_in_sync(nodes: Nodes, name: str, replicas: int = 3) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    with Client(parse_addresses(nodes.bootstrap), 30) as client:
        while not _is_in_sync(client, name, replicas):
            assert time.monotonic() < deadline, f"{name} is not in sync"
            time.sleep(0.1)


def _is_in_sync(client: Client, name: str, replicas: int) -> bool:
    try:
        partitions = client.topic(name).partitions
    except UnknownTopicError:
        return False  # the node that was asked has not heard of it yet
    return all(len(it.isr_nodes) == replicas and it.leader_id > 0 for it in partitions)


def leader(nodes: Nodes, name: str) -> int:
    with Client(parse_addresses(nodes.bootstrap), 30) as client:
        return int(client.topic(name).partitions[0].leader_id)


# The longest gap between acknowledgements when a leader goes ----------------------------------------------------------


class Clocked:
    """A thousand records a second into one partition, and when each was acknowledged."""

    def __init__(self, nodes: Nodes, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": nodes.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0,
             "retry.backoff.ms": 20, "retry.backoff.max.ms": 100, "reconnect.backoff.max.ms": 100, "log_level": 0,
             "topic.metadata.refresh.fast.interval.ms": 50, "message.timeout.ms": 120_000}
        )  # fmt: skip
        self._topic = topic
        self._stopping = threading.Event()
        self.acknowledged_at: list[float] = []
        self.latencies_ms: list[float] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Clocked:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        left = self._producer.flush(60)
        assert not left, f"{left} records were never answered"

    def gap_ms(self) -> float:
        """The longest time without an acknowledgement."""
        times = self.acknowledged_at
        return 1000 * max(later - earlier for earlier, later in itertools.pairwise(times))

    def _run(self) -> None:
        next_at = time.perf_counter()
        while not self._stopping.is_set():
            self._producer.produce(self._topic, VALUE, partition=0, on_delivery=self._told)
            next_at += 0.001
            self._producer.poll(max(0.0, next_at - time.perf_counter()))

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.acknowledged_at.append(time.perf_counter())
        self.latencies_ms.append(1000 * (message.latency() or 0))


def gaps(nodes: Nodes, amounts: Amounts) -> dict[str, float]:
    create(nodes, "gaps", 1)
    found: dict[str, list[float]] = {"kill -9": [], "stop": []}
    for _ in range(amounts.gap_runs):
        for kind, end in (("kill -9", nodes.kill), ("stop", nodes.stop)):
            wait_in_sync(nodes, "gaps")
            led = leader(nodes, "gaps")
            with Clocked(nodes, "gaps") as load:
                time.sleep(2)
                end(led)
                seen = len(load.acknowledged_at)
                deadline = time.monotonic() + 60
                while len(load.acknowledged_at) < seen + 1000 and time.monotonic() < deadline:
                    time.sleep(0.1)
            found[kind].append(load.gap_ms())
            nodes.start(led)
    return {f"longest gap ms, {kind}": max(times) for kind, times in found.items()}


# acks=all -------------------------------------------------------------------------------------------------------------


def load(nodes: Nodes, amounts: Amounts) -> dict[str, float]:
    create(nodes, "load", 12)
    failed: list[KafkaError] = []

    def told(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failed.append(error)

    producer = Producer({"bootstrap.servers": nodes.bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 262_144,
                         "queue.buffering.max.messages": 200_000})  # fmt: skip

    def send(count: int) -> None:
        for _ in range(count):
            while True:
                try:
                    producer.produce("load", VALUE, on_delivery=told)
                    break
                except BufferError:
                    producer.poll(0.01)
            producer.poll(0)
        assert producer.flush(120) == 0

    send(amounts.records // 10)
    before = [cost(nodes.pid(node)).cpu_s for node in NODES]
    began = time.perf_counter()
    send(amounts.records)
    seconds = time.perf_counter() - began
    cpu_s = sum(cost(nodes.pid(node)).cpu_s for node in NODES) - sum(before)
    assert not failed, failed[0]
    create(nodes, "latency", 1)
    with Clocked(nodes, "latency") as clocked:
        time.sleep(10 if amounts is WHOLE else 2)
    latencies = sorted(clocked.latencies_ms[len(clocked.latencies_ms) // 5 :])
    return {
        "acks=all MB/s": amounts.records * len(VALUE) / 1e6 / seconds,
        "CPU s/GB, all nodes": cpu_s / (amounts.records * len(VALUE) / 1e9),
        "p50 ms at 1,000/s": statistics.median(latencies),
        "p99 ms at 1,000/s": latencies[int(len(latencies) * 0.99)],
    }


# A new replica --------------------------------------------------------------------------------------------------------


def catch_up(nodes: Nodes, amounts: Amounts) -> dict[str, float]:
    """Node 3 gets a replica of everything that 1 and 2 have, while the leaders serve a producer."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap})
    count = amounts.catch_up_partitions
    assignment = [[1, 2] if number % 2 else [2, 1] for number in range(count)]
    topics = [NewTopic("copied", count, replica_assignment=assignment)]
    for future in admin.create_topics(topics, operation_timeout=60).values():
        future.result()
    wait_in_sync(nodes, "copied", 2)
    producer = Producer({"bootstrap.servers": nodes.bootstrap, "linger.ms": 50, "batch.size": 262_144})
    value = bytes(10_240)
    for number in range(amounts.catch_up_mb * 1_000_000 // len(value)):
        while True:
            try:
                producer.produce("copied", value, partition=number % count)
                break
            except BufferError:
                producer.poll(0.05)
    assert producer.flush(300) == 0
    create(nodes, "served", 1)
    wanted = [ReassignablePartition(partition_index=n, replicas=[*it, 3]) for n, it in enumerate(assignment)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="copied", partitions=wanted)])
    with Clocked(nodes, "served") as served:
        time.sleep(1)
        before = len(served.latencies_ms)
        began = time.perf_counter()
        with Client(parse_addresses(nodes.bootstrap), 60) as client:
            answer = client.call_controller(request)
        assert not answer.error_code, answer
        wait_in_sync(nodes, "copied", 3)
        seconds = time.perf_counter() - began
    meanwhile = served.latencies_ms[before:]
    return {
        "catch-up MB/s": amounts.catch_up_mb / seconds,
        "p99 ms of a producer meanwhile": sorted(meanwhile)[int(len(meanwhile) * 0.99)],
    }


# At rest --------------------------------------------------------------------------------------------------------------


def rest(nodes: Nodes, amounts: Amounts) -> dict[str, float]:
    create(nodes, "idle", amounts.idle_partitions)
    time.sleep(amounts.idle_seconds)
    before = [cost(nodes.pid(node)).cpu_s for node in NODES]
    time.sleep(amounts.idle_seconds)
    used = [cost(nodes.pid(node)).cpu_s - earlier for node, earlier in zip(NODES, before, strict=True)]
    return {"idle CPU %, the most of a node": 100 * max(used) / amounts.idle_seconds}


MEASURES: Final[Mapping[str, Callable[[Nodes, Amounts], dict[str, float]]]] = {
    "gaps": gaps,
    "load": load,
    "catch-up": catch_up,
    "rest": rest,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=MEASURES)
    parser.add_argument("--brokers", default="ottla,kafka", help="in turn (default: both)")
    parser.add_argument("--quick", action="store_true", help="move little: the figures say nothing")
    arguments = parser.parse_args()
    amounts = QUICK if arguments.quick else WHOLE
    for _ in range(arguments.rounds):
        for name in [arguments.only] if arguments.only else MEASURES:
            for broker in arguments.brokers.split(","):
                with BROKERS[broker]() as nodes:
                    measured = MEASURES[name](nodes, amounts)
                rounded = {figure: round(value, 2) for figure, value in measured.items()}
                print(json.dumps({"broker": broker, "measure": name, **rounded}), flush=True)


if __name__ == "__main__":
    main()
