"""SIGTERM to a broker process while clients of every kind are at work: it ends in order, and soon.

`tests/server/test_stop.py` shows it for each kind, without any time; here it is the whole process, with its threads.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.heartbeat import HeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.transactions.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import Record, build_batch

LONG_MS = 600_000
PATIENCE_S = 120
SETTINGS = (
    "group.initial.rebalance.delay.ms=0",
    "transaction.state.log.num.partitions=1",
    "offsets.topic.num.partitions=1",
    "log.cleaner.backoff.ms=50",
    "log.cleaner.min.cleanable.ratio=0",
)

Connect = Callable[[], BrokerConnection]
Work = Callable[[], None]
"""What a client does again and again, until the broker is gone."""


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def stable_member(connect: Connect, group: str) -> tuple[BrokerConnection, Any]:
    connection = connect()
    joined = connection.call(join(group), at_most=3)
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    connection.call(sync, at_most=1)
    return connection, joined


def begin_to_wait(connect: Connect) -> None:
    """A fetch for records that never come, a join for a member that does not, a sync for a leader that is silent."""
    asked = FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[asked])]
    connect().send(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=topics), at_most=11)
    stable_member(connect, "joining")
    connect().send(join("joining"), at_most=3)
    first, former = stable_member(connect, "syncing")
    second = connect()
    second.send(join("syncing"), at_most=3)
    # Until the other's join has come: a member that rejoins before it would be alone in its generation.
    beat = HeartbeatRequest(group_id="syncing", generation_id=former.generation_id, member_id=former.member_id)
    while first.call(beat, at_most=1).error_code != ErrorCode.REBALANCE_IN_PROGRESS:
        time.sleep(0.01)
    first.call(join("syncing", former.member_id), at_most=3)
    joined = second.receive()
    sync = SyncGroupRequest(group_id="syncing", generation_id=joined.generation_id, member_id=joined.member_id)
    second.send(sync, at_most=1)


def producing(connect: Connect, topic: str) -> Work:
    connection = connect()
    batch = build_batch([Record(timestamp_ms=1_700_000_000_000, key=b"k", value=b"v" * 50_000)])
    data = PartitionProduceData(index=0, records=batch)
    topic_data = [TopicProduceData(name=topic, partition_data=[data])]
    request = ProduceRequest(acks=-1, timeout_ms=LONG_MS, topic_data=topic_data)

    def work() -> None:
        for _ in range(5):
            connection.send(request, at_most=9)
        for _ in range(5):
            connection.receive()

    return work


def ending_transactions(connect: Connect, transactional_id: str) -> Work:
    connection = connect()
    topics = [AddPartitionsToTxnTopic(name="t", partitions=list(range(20)))]

    def work() -> None:
        given = connection.call(
            InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000), at_most=4
        )
        if given.error_code:
            return
        who = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}
        named = {f"v3_and_below_{key}": value for key, value in (who | {"transactional_id": transactional_id}).items()}
        connection.call(AddPartitionsToTxnRequest(v3_and_below_topics=topics, **named), at_most=3)
        connection.call(EndTxnRequest(transactional_id=transactional_id, committed=True, **who), at_most=3)

    return work


def changing_topics(connect: Connect) -> Work:
    connection = connect()
    made = [CreatableTopic(name="comes-and-goes", num_partitions=5, replication_factor=1)]
    deleted = [DeleteTopicState(name="comes-and-goes")]

    def work() -> None:
        connection.call(CreateTopicsRequest(topics=made, timeout_ms=LONG_MS), at_most=5)
        connection.call(DeleteTopicsRequest(topics=deleted, timeout_ms=LONG_MS), at_most=6)

    return work


def scraping(http: str) -> Work:
    host, _, port = http.removeprefix("http://").rpartition(":")

    def work() -> None:
        with socket.create_connection((host, int(port)), 10) as connection:
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: %b\r\nConnection: close\r\n\r\n" % host.encode())
            while connection.recv(65_536):
                pass

    return work


@contextmanager
def at_work(broker: Any, *works: Work) -> Iterator[None]:
    """Each in a thread of its own, until the broker is gone; it is, at the end. Entered when each has been done."""
    done = [threading.Event() for _ in works]

    def until_it_is_gone(work: Work, once: threading.Event) -> None:
        with suppress(ClientError, OSError):
            while True:
                work()
                once.set()

    threads = [threading.Thread(target=until_it_is_gone, args=each) for each in zip(works, done, strict=True)]
    for thread in threads:
        thread.start()
    try:
        assert all(once.wait(PATIENCE_S) for once in done)
        yield
    finally:
        broker.process.kill()
        for thread in threads:
            thread.join(PATIENCE_S)
    assert not any(thread.is_alive() for thread in threads)


@pytest.fixture
def busy(broker: Any, tmp_path: Path) -> Iterator[Any]:
    """A broker with all that a client may wait for."""
    flags = [flag for setting in SETTINGS for flag in ("--set", setting)]
    with (tmp_path / "log").open("wb") as log:
        running = type(broker)(tmp_path / "busy", "--http", "127.0.0.1:0", "--console", *flags, log=log)
    yield running
    running.process.kill()
    running.process.wait(PATIENCE_S)


def test_it_stops_in_order_whatever_is_under_way(busy: Any, tmp_path: Path) -> None:
    data_dir = tmp_path / "busy"
    port = busy.ready["port"]
    opened: list[BrokerConnection] = []

    def connect() -> BrokerConnection:
        opened.append(BrokerConnection("127.0.0.1", port, 20))
        return opened[-1]

    administrator = connect()
    busy.run("topic", "create", "t", "-p", "20")
    busy.run("topic", "create", "compacted", "-c", "cleanup.policy=compact", "-c", "segment.bytes=1048576")
    busy.run("topic", "create", "synced", "-c", "flush.messages=1")
    for key_type in (0, 1):
        asked = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["x"])
        while administrator.call(asked).coordinators[0].error_code:
            time.sleep(0.05)
    begin_to_wait(connect)
    connect()._socket.sendall(b"\0\0\1\0abc")
    backup = [sys.executable, "-m", "ottla.cli", "backup", "--data-dir", str(data_dir), str(tmp_path / "backup")]
    works = [
        *(producing(connect, topic) for topic in ("t", "compacted", "synced")),
        *(ending_transactions(connect, f"x{number}") for number in range(5)),
        changing_topics(connect),
        scraping(busy.ready["http"]),
    ]
    with at_work(busy, *works):
        backing_up = subprocess.Popen(backup, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert busy.stop(signal.SIGTERM) == 0
    backing_up.wait(PATIENCE_S)
    assert "of the stop" not in (tmp_path / "log").read_text()  # nothing had to be given up
    assert json.loads((data_dir / "node-1" / "node.json").read_text())["clean_shutdown"] is True
    for connection in opened:
        connection.close()

    again = type(busy)(data_dir)
    assert again.run("consume", "synced", "--format", "%k\\n").stdout.count(b"k") > 0
    assert again.stop() == 0
