"""Consumers that are sent to a replica in their rack, and read there (KIP-392)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from ottla.kproto.records import Record, build_batch
from ottla.metadata.changes.topic_changes import USE_DEFAULT, NewTopic
from ottla.replica.append import Records, TopicIdPartition
from ottla.settings.declared.replication import RACK_AWARE_SELECTOR
from tests.clusters import Cluster, RunCluster
from tests.server.cluster.producers import Router

RACKS = {1: "a", 2: "b", 3: "b"}
SETTINGS = {
    "replica.selector.class": RACK_AWARE_SELECTOR,
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "100",
}
BEFORE_RACKS, BY_NAME, NEWEST = 10, 12, 17


class Readers:
    """Consumers of the one partition of topic t, which node 1 leads and all have."""

    def __init__(self, cluster: Cluster, topic_id: UUID) -> None:
        self.cluster = cluster
        self.topic_id = topic_id
        self._router = Router(cluster)

    async def append(self, *values: bytes) -> None:
        batch = build_batch([Record(value=value, timestamp_ms=0) for value in values])
        key = TopicIdPartition(self.topic_id, 0)
        manager = self.cluster[1].broker.replica_manager
        result = (
            await manager.append({key: Records(memoryview(bytearray(batch)))}, required_acks=-1, timeout_ms=10_000)
        )[key]
        assert result.error is None

    async def fetch(
        self, node_id: int, rack: str, offset: int = 0, version: int = NEWEST, max_wait_ms: int = 0
    ) -> PartitionData:
        partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic="t", topic_id=self.topic_id, partitions=[partition])
        request = FetchRequest(topics=[topic], rack_id=rack, max_wait_ms=max_wait_ms, min_bytes=1)
        answer: PartitionData = (await self._router.call(node_id, request, version)).responses[0].partitions[0]
        return answer


@asynccontextmanager
async def readers(run_cluster: RunCluster, **settings: str) -> AsyncIterator[Readers]:
    async with run_cluster(0, {**SETTINGS, **settings}) as cluster:
        for node_id, rack in RACKS.items():
            await cluster.start(node_id, broker_rack=rack)
        await cluster.until(lambda image: sum(1 for _ in image.live_brokers()) == len(RACKS))
        topic = NewTopic("t", USE_DEFAULT, USE_DEFAULT, assignments={0: (1, 2)}, configs={})
        created = await cluster[1].broker.controller.create_topic(topic)
        await cluster.until(lambda image: image.topic("t") is not None)
        yield Readers(cluster, created.topic_id)


async def test_a_consumer_is_sent_to_the_replica_in_its_rack_and_reads_there(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        for version in (BY_NAME, NEWEST):
            # Though it may wait: nothing is to be waited for.
            sent = await reader.fetch(1, "b", version=version, max_wait_ms=30_000)
            assert (sent.error_code, sent.preferred_read_replica, sent.records) == (ErrorCode.NONE, 2, b"")
            assert sent.high_watermark == 1
            near = await reader.fetch(2, "b", version=version, max_wait_ms=30_000)
            assert (near.error_code, near.preferred_read_replica, near.high_watermark) == (ErrorCode.NONE, -1, 1)
            assert near.records


async def test_who_has_no_replica_nearer_reads_from_the_leader(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        for rack, version in (("", NEWEST), ("a", NEWEST), ("unheard of", NEWEST), ("b", BEFORE_RACKS)):
            answer = await reader.fetch(1, rack, version=version)
            assert (answer.preferred_read_replica, bool(answer.records)) == (-1, True), (rack, version)
        # One from before racks does not know that followers may be asked, and none serves it.
        assert (await reader.fetch(2, "", version=BEFORE_RACKS)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_without_the_selector_racks_do_not_matter(run_cluster: RunCluster) -> None:
    async with run_cluster(0, {}) as cluster:
        for node_id, rack in RACKS.items():
            await cluster.start(node_id, broker_rack=rack)
        topic = NewTopic("t", USE_DEFAULT, USE_DEFAULT, assignments={0: (1, 2)}, configs={})
        created = await cluster[1].broker.controller.create_topic(topic)
        await cluster.until(lambda image: image.topic("t") is not None)
        reader = Readers(cluster, created.topic_id)
        await reader.append(b"x")
        assert (await reader.fetch(1, "b")).records


async def test_a_follower_says_what_it_does_not_have(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        beyond = await reader.fetch(2, "b", offset=100)
        assert (beyond.error_code, beyond.high_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        # Nor does a leader send anybody there for an offset that the follower has not.
        assert (await reader.fetch(1, "b", offset=100)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_who_waits_at_a_follower_is_woken_by_the_leader(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        answers = []

        async def wait() -> None:
            answers.append(await reader.fetch(2, "b", offset=1, max_wait_ms=30_000))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait)
            await reader.append(b"y")
        assert answers[0].records
        assert answers[0].high_watermark == 2


async def test_nobody_is_sent_to_a_replica_that_is_not_in_sync_or_gone(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        await reader.cluster.kill(2)
        await reader.cluster.until(lambda image: image.partition("t", 0).isr == (1,))  # type: ignore[union-attr]
        answer = await reader.fetch(1, "b")
        assert (answer.preferred_read_replica, bool(answer.records)) == (-1, True)


async def test_a_session_sends_its_consumer_on_again_and_again(run_cluster: RunCluster) -> None:
    async with readers(run_cluster) as reader:
        await reader.append(b"x")
        client = await reader.cluster.connect(1)
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        topic = FetchTopic(topic_id=reader.topic_id, partitions=[partition])
        first = await client.call(FetchRequest(topics=[topic], rack_id="b", session_epoch=0), NEWEST)
        assert first.responses[0].partitions[0].preferred_read_replica == 2
        again = FetchRequest(rack_id="b", session_id=first.session_id, session_epoch=1, max_wait_ms=30_000, min_bytes=1)
        second = await client.call(again, NEWEST)
        assert second.responses[0].partitions[0].preferred_read_replica == 2
