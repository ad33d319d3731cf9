"""Every fault of a table, on three real nodes with a real etcd under a client's load.

A producer with acks=all numbers its records in each partition and goes on all the time; each test does one thing to the
nodes, and waits until records are acknowledged again. The last one reads everything: each number is there once, in
order, and the replicas are equal, byte for byte.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from compat_tests.brokers.laboratory import NODES, SESSION_S, Laboratory
from compat_tests.endurance.replica_checks import REPLICAS, compare_replicas, wait_until_in_sync
from compat_tests.endurance.replicated_kill_loop import PARTITIONS, TOPIC, Load, read_back
from ottla.client.client import Client
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch
from tests.etcd import needs_etcd

pytestmark = [pytest.mark.replicas, needs_etcd]

WAIT_S = 120.0


class Lab(Laboratory):
    """The nodes, the ways between them and to etcd, and the load."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        super().__init__(folder, stack)
        admin = AdminClient({"bootstrap.servers": self.cluster.bootstrap})
        for created in admin.create_topics([NewTopic(TOPIC, PARTITIONS, REPLICAS)]).values():
            created.result()
        self.load = Load(self.cluster.bootstrap)
        self._worker = threading.Thread(target=self.load.run, daemon=True)
        self._worker.start()

    def until_in_sync(self) -> None:
        wait_until_in_sync(self.cluster, TOPIC)

    def until_acknowledged(self, partition: int | None = None) -> None:
        """Wait until a good many records more are acknowledged: those of every partition take their turns."""
        seen = self.load.acknowledged
        deadline = time.monotonic() + WAIT_S
        while self.load.acknowledged < seen + 100 * PARTITIONS:
            assert time.monotonic() < deadline, f"{self.load.acknowledged - seen} acknowledged within {WAIT_S:g} s"
            time.sleep(0.02)

    def leader(self) -> int:
        return self.cluster.wait_for_leader(TOPIC)

    def finish(self) -> list[str]:
        """What is wrong, in sentences."""
        self.load.stop()
        self._worker.join()
        self.load.finish()
        self.until_in_sync()
        wrong = read_back(self.cluster.bootstrap, self.load.sent).wrong + compare_replicas(self.cluster, TOPIC)
        return wrong + [f"{count} records failed: {error}" for error, count in self.load.failed.items()]


@pytest.fixture(scope="module")
def whole_lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    if request.config.getoption("--broker") != "ottla":
        pytest.skip("it has nodes of its own")
    with ExitStack() as stack:
        yield Lab(tmp_path_factory.mktemp("table"), stack)


@pytest.fixture
def lab(whole_lab: Lab) -> Lab:
    """With everything in order, and records going through."""
    whole_lab.cluster.start()
    whole_lab.until_in_sync()
    whole_lab.until_acknowledged()
    return whole_lab


def test_the_leader_is_killed(lab: Lab) -> None:
    led = lab.leader()
    lab.cluster.kill(led)
    lab.until_acknowledged()
    assert lab.cluster.wait_for_leader(TOPIC, other_than=led)


def test_the_leader_is_stopped_in_order(lab: Lab) -> None:
    lab.cluster.stop(lab.leader())
    lab.until_acknowledged()


def test_a_follower_is_killed(lab: Lab) -> None:
    lab.cluster.kill(next(node_id for node_id in NODES if node_id != lab.leader()))
    lab.until_acknowledged()


def test_the_leader_is_cut_off_from_etcd_only(lab: Lab) -> None:
    with lab.cut_off(lab.leader(), from_etcd=True):
        time.sleep(2 * SESSION_S)
        lab.until_acknowledged()


def test_the_leader_is_cut_off_from_its_followers_only(lab: Lab) -> None:
    with lab.cut_off(lab.leader(), from_brokers=True):
        lab.until_acknowledged()


def test_a_leader_that_only_a_client_reaches_acknowledges_nothing(lab: Lab) -> None:
    led = lab.leader()
    host, _, port = lab.cluster.address(led).rpartition(":")
    with Client([(host, int(port))], 20) as client:
        topic_id = client.topic(TOPIC).topic_id
        batch = build_batch([Record(value=b"-1", timestamp_ms=0)])
        data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
        produce = ProduceRequest(
            acks=-1, timeout_ms=3000, topic_data=[TopicProduceData(topic_id=topic_id, partition_data=[data])]
        )
        read = FetchRequest(
            topics=[FetchTopic(topic_id=topic_id, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])]
        )
        with lab.cut_off(led, from_brokers=True, from_etcd=True):
            refused = client.any_broker().call(produce).responses[0].partition_responses[0]
            assert refused.error_code in (
                *(ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER),
                *(ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND),
            )
            fetched = client.any_broker().call(read).responses[0].partitions[0]
            assert (fetched.error_code, bool(fetched.records)) == (ErrorCode.NONE, True)
            # The others elect leaders of their own, whom clients find.
            deadline = time.monotonic() + WAIT_S
            others = [lab.cluster.address(node_id) for node_id in NODES if node_id != led]
            while leader_as_told_by(others[0]) in (led, -1):
                assert time.monotonic() < deadline
                time.sleep(0.1)
        lab.until_acknowledged()


def leader_as_told_by(address: str) -> int:
    host, _, port = address.rpartition(":")
    with Client([(host, int(port))], 20) as client:
        return min(client.topic(TOPIC).partitions, key=lambda it: it.partition_index).leader_id


def test_the_leader_is_frozen_for_longer_than_its_session_and_woken(lab: Lab) -> None:
    with lab.cluster.paused(lab.leader()):
        time.sleep(3 * SESSION_S)
        lab.until_acknowledged()
    lab.until_acknowledged()


def test_two_of_three_are_killed(lab: Lab) -> None:
    led = lab.leader()
    others = [node_id for node_id in NODES if node_id != led]
    for node_id in others:
        lab.cluster.kill(node_id)
    time.sleep(SESSION_S)
    lab.load.take_gap_s()
    seen = lab.load.acknowledged
    time.sleep(SESSION_S)
    assert lab.load.acknowledged == seen, "one replica of three is not enough for acks=all"
    lab.cluster.start(others[0])
    lab.until_acknowledged()


def test_a_disk_is_emptied(lab: Lab) -> None:
    node_id = lab.leader()
    lab.cluster.kill(node_id)
    lab.empty_disk(node_id)
    lab.cluster.start(node_id)
    lab.until_in_sync()
    lab.until_acknowledged()


def test_etcd_is_gone_for_a_while(lab: Lab) -> None:
    for member in range(3):
        lab.etcd.kill(member)
    time.sleep(3 * SESSION_S)
    lab.until_acknowledged()
    lab.etcd.start()
    # Decisions are made again.
    led = lab.leader()
    lab.cluster.kill(led)
    assert lab.cluster.wait_for_leader(TOPIC, other_than=led, timeout_s=WAIT_S)


def test_the_leader_of_etcd_goes(lab: Lab) -> None:
    member = lab.etcd.leader()
    lab.etcd.kill(member)
    lab.until_acknowledged()
    led = lab.leader()
    lab.cluster.kill(led)
    assert lab.cluster.wait_for_leader(TOPIC, other_than=led, timeout_s=WAIT_S)
    lab.etcd.start_member(member)
    lab.etcd.wait_until_ready(member)


def test_after_all_that_nothing_is_lost_or_doubled_and_the_replicas_are_equal(lab: Lab) -> None:
    assert lab.finish() == []
