"""What a node for each core brings: `ottla serve --nodes 2` beside one node and Apache Kafka; how nodes start and rest.

    python -m benchmarks.nodes [--rounds 1] [--only start|load]

The load is that of `benchmarks/workloads/requests.py`, from one program for each node, which sends to the partitions
that its node leads, or the groups that it coordinates; and records of 1 KB by librdkafka, which finds the leaders
itself. The brokers take turns. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks import librdkafka, requests
from benchmarks.measuring.process_cost import cost
from benchmarks.startup import resident_kib
from benchmarks.workloads.base import PRODUCER, create_topic, unique
from benchmarks.workloads.requests import (
    empty_fetch,
    frame,
    group_of,
    list_offsets,
    metadata,
    offset_commit,
    produce,
)
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker, OttlaCluster
from compat_tests.brokers.process import BrokerProcess
from ottla.client.addresses import parse_addresses
from ottla.client.admin.group_state import Coordinator, committed_offsets
from ottla.client.client import Client

KINDS: Final[dict[str, Callable[[Path], BrokerProcess]]] = {
    "ottla, 2 nodes": lambda folder: OttlaCluster(folder, nodes=2),
    "ottla, 1 node": OttlaBroker,
    "kafka": lambda folder: ApacheKafka(folder, heap_mb=1024),
}
LOADS: Final = {
    "produce 16 KB, 1,000 connections": (produce, 1_000),
    "Metadata, 10 connections": (metadata, 10),
    "ListOffsets, 10 connections": (list_offsets, 10),
    "empty Fetch, 10 connections": (empty_fetch, 10),
}
COMMITS: Final = "OffsetCommit, 10 connections"
PARTITIONS: Final = 10
GROUPS: Final = 10
RECORDS: Final = 300_000
RECORD_BYTES: Final = 1_000
WARM_UP_SECONDS: Final = 1
SECONDS: Final = 4
IDLE_SECONDS: Final = 10.0


def under_load(kind: str) -> dict[str, float]:
    """Requests and records a second of each load, on a fresh broker."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](Path(folder)) as broker:
        topic = unique("nodes")
        create_topic(broker, topic, PARTITIONS)
        with Client(parse_addresses(broker.bootstrap)) as client:
            led: dict[int, list[int]] = {}
            for partition in client.topic(topic).partitions:
                led.setdefault(partition.leader_id, []).append(partition.partition_index)
            coordinated = _groups_by_coordinator(client)
            addresses = {it.node_id: f"{it.host}:{it.port}" for it in client.metadata([]).brokers}
        figures = {}
        for load, (build, connections) in LOADS.items():
            frames = {addresses[node]: [frame(*build(topic, index)) for index in led[node]] for node in led}
            figures[load] = _requests_per_s(frames, connections)
        commits = {
            addresses[node]: [frame(*offset_commit(topic, group)) for group in groups]
            for node, groups in coordinated.items()
        }
        return figures | {COMMITS: _requests_per_s(commits, 10)} | _records_per_s(broker)


def _groups_by_coordinator(client: Client) -> dict[int, list[int]]:
    """The numbers of the groups that each node coordinates; each has loaded what it has of them."""
    coordinator = Coordinator(client, 60)
    found: dict[int, list[int]] = {}
    for number in range(GROUPS):
        committed_offsets(coordinator, group_of(number))
        found.setdefault(coordinator.node_id(group_of(number)), []).append(number)
    return found


def _requests_per_s(frames: Mapping[str, Sequence[bytes]], connections: int) -> float:
    """Requests a second to all nodes together; `frames` are what is sent to each address."""

    def send(to: tuple[str, Sequence[bytes]]) -> float:
        address, own = to
        for seconds in (WARM_UP_SECONDS, SECONDS):
            measured = requests.run(address, own, connections=connections // len(frames), seconds=seconds)
        return float(measured["answered"]) / float(measured["seconds"])

    with ThreadPoolExecutor(len(frames)) as threads:
        return sum(threads.map(send, frames.items()))


def _records_per_s(broker: BrokerProcess) -> dict[str, float]:
    topic = unique("records")
    create_topic(broker, topic, PARTITIONS)
    where = (broker.bootstrap, topic, PARTITIONS, RECORDS)
    produced = librdkafka.run("produce", *where, RECORD_BYTES, "acks=1", *PRODUCER)
    consumed = librdkafka.run("consume", *where)
    return {"records of 1 KB written": RECORDS / produced["seconds"], "and read": RECORDS / consumed["seconds"]}


def idle_result(nodes: int) -> dict[str, float]:
    """How long until all nodes answer, and what each takes when nobody asks anything."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        with OttlaCluster(Path(folder), nodes=nodes) as broker:
            ready_s = time.perf_counter() - began
            time.sleep(1)
            before = [cost(pid).cpu_s for pid in broker.pids]
            time.sleep(IDLE_SECONDS)
            used = [cost(pid).cpu_s - earlier for pid, earlier in zip(broker.pids, before, strict=True)]
            return {
                "ready_s": ready_s,
                "resident_mb_each": max(resident_kib(pid) for pid in broker.pids) / 1024,
                "idle_cpu_percent_each": max(used) / IDLE_SECONDS * 100,
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", choices=["start", "load"])
    arguments = parser.parse_args()
    if arguments.only != "load":
        runs = [idle_result(3) for _ in range(max(arguments.rounds, 3))]
        print(
            json.dumps({name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}), flush=True
        )
    if arguments.only != "start":
        for _ in range(arguments.rounds):
            for kind in KINDS:
                measured = {load: round(per_s) for load, per_s in under_load(kind).items()}
                print(json.dumps({"broker": kind, "per_s": measured}), flush=True)


if __name__ == "__main__":
    main()
