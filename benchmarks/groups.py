"""Groups beside Apache Kafka's: rebalance, heartbeats, offset commits, and a restart with many offsets.

    python -m benchmarks.groups [--only NAME …] [--broker ottla|kafka|both] [--offsets 1000000]

rebalance   seconds from the subscription of a second member (librdkafka, both protocols) until both have their half
heartbeats  CPU that 200 groups of 10 classic members take, each heartbeating every 3 seconds
commits     offset commits a second of 512 members, each with a connection, a partition and one commit under way; and of
            32 members that send 16 ahead, as an asynchronous commit after every record does
restart     seconds from the start of the process until every partition of __consumer_offsets answers OffsetFetch

Each part has a fresh broker. The machine's noise meets both brokers: compare within a run.
"""

from __future__ import annotations

import argparse
import os
import selectors
import socket
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess
from compat_tests.wire.groups.group_wire import SUBSCRIPTION, GroupWire
from compat_tests.wire.wire import Wire
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic

GROUPS, MEMBERS, HEARTBEAT_S, HEARTBEAT_ROUNDS = 200, 10, 3.0, 4
CONNECTIONS, COMMIT_S = 512, 8.0
AHEAD_CONNECTIONS, AHEAD = 32, 16
PARTITIONS = 1000
OFFSETS_PARTITIONS = 50


@contextmanager
def running(kind: str, **settings: str) -> Iterator[BrokerProcess]:
    with tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder:
        overrides = {name.replace("_", "."): value for name, value in settings.items()}
        overrides["offsets.topic.num.partitions"] = str(OFFSETS_PARTITIONS)
        broker: BrokerProcess
        if kind == "ottla":
            broker = OttlaBroker(Path(folder), overrides=overrides)
        else:
            broker = ApacheKafka(Path(folder), overrides=overrides, heap_mb=1024)
        with broker:
            yield broker


def create_topic(wire: Wire, name: str, partitions: int) -> None:
    """Create a topic and wait until it is known."""
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    created = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0]
    assert created.error_code == ErrorCode.NONE, created
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)])
    while wire.call(asked, 9).topics[0].error_code != ErrorCode.NONE:
        time.sleep(0.05)


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# rebalance


def rebalance(kind: str) -> dict[str, float]:
    figures = {}
    with running(kind) as broker:
        create_topic(Wire(broker.bootstrap), "t", 2)
        for protocol in ("classic", "consumer"):
            runs = sorted(_rebalance(broker, protocol, f"{protocol}-{run}") for run in range(5))
            figures[f"second {protocol} member until both have their half, s"] = runs[len(runs) // 2]
    return figures


def _rebalance(broker: BrokerProcess, protocol: str, group: str) -> float:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": group, "group.protocol": protocol}
    if protocol == "classic":
        settings["heartbeat.interval.ms"] = "500"  # what the brokers tell members of the other protocol
    first, second = Consumer(settings), Consumer(settings)
    first.subscribe(["t"])
    while len(first.assignment()) != 2:
        first.poll(0.01)
    started = time.perf_counter()
    second.subscribe(["t"])
    while len(first.assignment()) != 1 or len(second.assignment()) != 1:
        first.poll(0.005)
        second.poll(0.005)
    seconds = time.perf_counter() - started
    first.close()
    second.close()
    return seconds


# heartbeats


def heartbeats(kind: str) -> dict[str, float]:
    with running(kind, group_initial_rebalance_delay_ms="50") as broker:
        create_topic(Wire(broker.bootstrap), "t", 1)
        wires = [Wire(broker.bootstrap) for _ in range(MEMBERS)]
        for number in range(OFFSETS_PARTITIONS):
            GroupWire(wires[0], f"warm-{number}").find()
        requests: list[list[HeartbeatRequest]] = [[] for _ in wires]
        for number in range(GROUPS):
            for wire_requests, request in zip(requests, _joined(wires, f"group-{number}"), strict=True):
                wire_requests.append(request)
        _beat(wires, requests, HEARTBEAT_S)
        before, started = cpu_seconds(broker.pid), time.perf_counter()
        for _ in range(HEARTBEAT_ROUNDS):
            _beat(wires, requests, HEARTBEAT_S)
        share = (cpu_seconds(broker.pid) - before) / (time.perf_counter() - started)
    return {f"CPU of {GROUPS} groups of {MEMBERS} members, % of a core": share * 100}


def _joined(wires: list[Wire], group_id: str) -> list[HeartbeatRequest]:
    """A stable group with a member on each connection, and their heartbeats. Joins as old clients do, in one step."""
    members = [GroupWire(wire, group_id) for wire in wires]
    for member in members:
        member.send_join(version=3, session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    answers = [wire.receive(ApiKey.JOIN_GROUP, 3) for wire in wires]
    generation = max(answer.generation_id for answer in answers)
    assert {answer.error_code for answer in answers} == {0}
    assert {answer.generation_id for answer in answers} == {generation}, "a member came after the initial rebalance"
    leader = next(answer for answer in answers if answer.leader == answer.member_id)
    for member, answer in sorted(zip(members, answers, strict=True), key=lambda pair: pair[1] is not leader):
        assigned = {each.member_id: SUBSCRIPTION for each in answer.members}
        assert member.sync(answer.member_id, generation, version=3, assignments=assigned)[0] == "NONE"
    return [
        HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=answer.member_id) for answer in answers
    ]


def _beat(wires: list[Wire], requests: list[list[HeartbeatRequest]], seconds: float) -> None:
    """One heartbeat of every member, spread evenly over this many seconds."""
    started = time.perf_counter()
    for number in range(GROUPS):
        for wire, wire_requests in zip(wires, requests, strict=True):
            assert wire.call(wire_requests[number], 3).error_code == 0
        time.sleep(max(0.0, started + seconds * (number + 1) / GROUPS - time.perf_counter()))


# commits


def commits(kind: str) -> dict[str, float]:
    with running(kind) as broker:
        wire = Wire(broker.bootstrap)
        create_topic(wire, "t", CONNECTIONS)
        for number in range(CONNECTIONS):
            GroupWire(wire, f"group-{number}").find()
        figures = {}
        for label, connections, under_way in (
            (f"of {CONNECTIONS} members", CONNECTIONS, 1),
            (f"of {AHEAD_CONNECTIONS} members, {AHEAD} ahead", AHEAD_CONNECTIONS, AHEAD),
        ):
            before = cpu_seconds(broker.pid)
            rate, seconds = _commit_rate(broker, connections, under_way)
            used = cpu_seconds(broker.pid) - before
            figures[f"offset commits a second {label}"] = rate
            figures["  CPU of one of these, µs" + " " * len(figures)] = used / (rate * seconds) * 1e6
    return figures


def _commit_rate(broker: BrokerProcess, connections: int, under_way: int) -> tuple[float, float]:
    """Commits a second. Requests are built once, and answers are counted by their size: the client must be cheap."""
    selector = selectors.DefaultSelector()
    for number in range(connections):
        connection = socket.create_connection((HOST, broker.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = build_request_frame(commit_request(f"group-{number}", [number]), 8, 1, "bench")
        connection.sendall(request)
        size = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))[0] + 4
        answer = connection.recv(size - 4, socket.MSG_WAITALL)
        committed: Any = parse_response_frame(ApiKey.OFFSET_COMMIT, 8, answer)[1]
        assert committed.topics[0].partitions[0].error_code == ErrorCode.NONE
        selector.register(connection, selectors.EVENT_READ, [request, size, 0])
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.sendall(key.data[0] * under_way)
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < COMMIT_S:
        for key, _ in selector.select(1):
            active, state = key.fileobj, key.data
            assert isinstance(active, socket.socket)
            received = len(active.recv(65536))
            assert received, "the broker closed a connection"
            done, state[2] = divmod(state[2] + received, state[1])
            count += done
            active.sendall(state[0] * done)
    seconds = time.perf_counter() - started
    for key in list(selector.get_map().values()):
        assert isinstance(key.fileobj, socket.socket)
        key.fileobj.close()
    return count / seconds, seconds


def commit_request(group_id: str, partitions: list[int]) -> OffsetCommitRequest:
    asked = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=17, committed_metadata="")
        for index in partitions
    ]
    return OffsetCommitRequest(group_id=group_id, topics=[OffsetCommitRequestTopic(name="t", partitions=asked)])


# restart


def restart(kind: str, offsets: int) -> dict[str, float]:
    with running(kind) as broker:
        wire = Wire(broker.bootstrap)
        create_topic(wire, "t", PARTITIONS)
        groups = [f"group-{number}" for number in range(offsets // PARTITIONS)]
        for group_id in groups:
            GroupWire(wire, group_id).find()
            answer = wire.call(commit_request(group_id, list(range(PARTITIONS))), 8)
            assert {partition.error_code for partition in answer.topics[0].partitions} == {ErrorCode.NONE}
        wire.close()
        broker.stop()
        started = time.perf_counter()
        broker.start()
        ready = time.perf_counter() - started
        wire = Wire(broker.bootstrap)
        answered = [_answered(wire, group_id) - started for group_id in groups]
    return {
        "process start to ready, s": ready,
        "to the first group asked for, s": answered[0],
        "to all groups, s": max(answered),
    }


def _answered(wire: Wire, group_id: str) -> float:
    """When one offset of the group was answered."""
    asked = OffsetFetchRequest(
        group_id=group_id, topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[PARTITIONS - 1])]
    )
    answer: Any
    while (answer := wire.call(asked, 7)).error_code != ErrorCode.NONE:
        assert answer.error_code in (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR), answer
        time.sleep(0.005)
    at = time.perf_counter()
    assert answer.topics[0].partitions[0].committed_offset == 17
    return at


PARTS: dict[str, Callable[[str, int], dict[str, float]]] = {
    "rebalance": lambda kind, offsets: rebalance(kind),
    "heartbeats": lambda kind, offsets: heartbeats(kind),
    "commits": lambda kind, offsets: commits(kind),
    "restart": restart,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=PARTS, metavar="NAME", default=list(PARTS))
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    parser.add_argument("--offsets", type=int, default=1_000_000)
    arguments = parser.parse_args()
    kinds = ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,)
    print(f"{'':58}" + "".join(f"{kind:>12}" for kind in kinds))
    for part in arguments.only:
        results = [PARTS[part](kind, arguments.offsets) for kind in kinds]
        for label in results[0]:
            print(f"{label:58}" + "".join(f"{figures[label]:12,.2f}" for figures in results), flush=True)


if __name__ == "__main__":
    main()
