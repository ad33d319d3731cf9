"""What a node for each core brings: `ottla serve --nodes 2` beside one node and Apache Kafka; how nodes start and rest.

    python -m benchmarks.nodes [--rounds 1] [--only start|load]

The load is that of `benchmarks/workloads/requests.py`, from one program for each node, which sends to the partitions
that its node leads; the brokers take turns. One JSON object a line.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from benchmarks import requests
from benchmarks.process_cost import cost
from benchmarks.startup import resident_kib
from benchmarks.workloads.base import create_topic, unique
from benchmarks.workloads.requests import empty_fetch, frame, list_offsets, metadata, produce
from compat_tests.apache_kafka import ApacheKafka
from compat_tests.ottla_broker import OttlaBroker, OttlaCluster
from compat_tests.process import BrokerProcess
from ottla.client.addresses import parse_addresses
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
PARTITIONS: Final = 10
WARM_UP_SECONDS: Final = 1
SECONDS: Final = 4
IDLE_SECONDS: Final = 10.0


def under_load(kind: str) -> dict[str, float]:
    """Requests a second of each load, on a fresh broker."""
    with tempfile.TemporaryDirectory() as folder, KINDS[kind](Path(folder)) as broker:
        topic = unique("nodes")
        create_topic(broker, topic, PARTITIONS)
        with Client(parse_addresses(broker.bootstrap)) as client:
            led: dict[int, list[int]] = {}
            for partition in client.topic(topic).partitions:
                led.setdefault(partition.leader_id, []).append(partition.partition_index)
            addresses = {it.node_id: f"{it.host}:{it.port}" for it in client.metadata([]).brokers}
        return {
            load: _requests_per_s(build, topic, connections, [(addresses[node], led[node]) for node in led])
            for load, (build, connections) in LOADS.items()
        }


def _requests_per_s(
    build: Callable[[str, int], Any], topic: str, connections: int, nodes: Sequence[tuple[str, list[int]]]
) -> float:
    def send(to: tuple[str, list[int]]) -> float:
        address, partitions = to
        frames = [frame(*build(topic, partition)) for partition in partitions]
        for seconds in (WARM_UP_SECONDS, SECONDS):
            measured = requests.run(address, frames, connections=connections // len(nodes), seconds=seconds)
        return float(measured["answered"]) / float(measured["seconds"])

    with ThreadPoolExecutor(len(nodes)) as threads:
        return sum(threads.map(send, nodes))


def at_rest(nodes: int) -> dict[str, float]:
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
        runs = [at_rest(3) for _ in range(max(arguments.rounds, 3))]
        print(
            json.dumps({name: round(statistics.median(run[name] for run in runs), 3) for name in runs[0]}), flush=True
        )
    if arguments.only != "start":
        for _ in range(arguments.rounds):
            for kind in KINDS:
                measured = {load: round(per_s) for load, per_s in under_load(kind).items()}
                print(json.dumps({"broker": kind, "requests_per_s": measured}), flush=True)


if __name__ == "__main__":
    main()
