"""A node stops in order under every kind of work, and lets no time pass for it: the clock of these tests stands still.

So nothing here waits for a grace period, a session or a backoff; what a stop may wait for is a call of the disk.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.offset_and_metadata import TopicPartition
from ottla.coordinator.replica_log import ReplicaLog
from ottla.coordinator.transaction.state import Partition, TransactionStatus
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.kproto.messages.groups.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.sync_group import SyncGroupRequest
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.kproto.messages.transactions.end_txn import EndTxnRequest
from ottla.kproto.records import Record, build_batch
from ottla.metadata.changes.transactions import SHUTDOWN_SECONDS
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Compare, Operation
from ottla.server.main import STOP_GRACE_SECONDS, Node
from ottla.settings.config import BrokerConfig
from tests.servers import Client, RunningNode
from tests.storage.held_disk import HeldDisk, is_being_rewritten

pytestmark = pytest.mark.frozen_clock

Serve = Callable[..., Any]
Told = Callable[[], Awaitable[None]]
"""Waits for what a client is told when the node stops, and checks it."""

LONG_MS = 600_000
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.io.max.bytes.per.second": "1",
    "ottla.http.listen": "127.0.0.1:0",
    "ottla.console.enable": "true",
}


async def until(is_so: Callable[[], bool]) -> None:
    """Wait for what other tasks, the network or a worker thread bring about; real time passes, the loop's does not."""
    while not is_so():
        await trio.to_thread.run_sync(time.sleep, 0.001)


async def prepare(node: Any) -> None:
    """Both coordinators serve, and the topic `t` is there."""
    for topic in (CONSUMER_OFFSETS, TRANSACTION_STATE):
        await node.broker.controller.ensure_topic(topic)
    await until_loaded(node)
    await node.create_topic("t", 20)


async def until_loaded(node: Any) -> None:
    for coordinator in (node.broker.group_coordinator, node.broker.transaction_coordinator):
        await until(lambda runtime=coordinator.runtime: not runtime.loading())  # type: ignore[misc]


async def answer(client: Any, key: ApiKey, version: int) -> Any:
    """The next answer, None if the connection was closed instead."""
    try:
        return (await client.receive(key, version))[1]
    except (EOFError, trio.BrokenResourceError):
        return None


def produced(value: bytes = b"v", *, topic: str = "t", key: bytes | None = None) -> ProduceRequest:
    batch = build_batch([Record(timestamp_ms=1_700_000_000_000, key=key, value=value)])
    data = PartitionProduceData(index=0, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=LONG_MS, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


# The kinds of work


async def fetching(node: Any) -> Told:
    """For records that never come."""
    client = await node.connect()
    asked = FetchPartition(partition=7, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic="t", partitions=[asked])]
    await client.send(FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, topics=topics), 11)
    purgatory = node.broker.replica_manager.fetch_purgatory
    await until(lambda: purgatory.watching > 0)

    async def told() -> None:
        response = await answer(client, ApiKey.FETCH, 11)
        assert response.error_code == response.responses[0].partitions[0].error_code == 0
        assert await client.is_closed()

    return told


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=protocols,
    )


async def stable_member(node: Any, group: str) -> tuple[Any, Any]:
    """The only member of a stable group: its connection, and what its JoinGroup was told."""
    client = await node.connect()
    joined = await client.call(join(group), 3)
    assert joined.error_code == 0
    sync = SyncGroupRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
    assert (await client.call(sync, 1)).error_code == 0
    return client, joined


def told_to_look_again(client: Any, key: ApiKey, version: int) -> Told:
    async def told() -> None:
        response = await answer(client, key, version)
        assert ErrorCode(response.error_code) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await client.is_closed()

    return told


async def joining(node: Any) -> Told:
    """For a member that does not join again."""
    await stable_member(node, "joining")
    client = await node.connect()
    await client.send(join("joining"), 3)
    await until(lambda: node.broker.group_coordinator.answers.watching > 0)
    return told_to_look_again(client, ApiKey.JOIN_GROUP, 3)


async def syncing(node: Any) -> Told:
    """For a leader that does not assign."""
    first, former = await stable_member(node, "syncing")
    second = await node.connect()
    await second.send(join("syncing"), 3)
    group = node.broker.group_coordinator.classic_groups.describe("syncing")
    await until(lambda: group.is_in(ClassicState.PREPARING_REBALANCE))
    await first.call(join("syncing", former.member_id), 3)
    joined = await answer(second, ApiKey.JOIN_GROUP, 3)
    before = node.broker.group_coordinator.answers.watching
    sync = SyncGroupRequest(group_id="syncing", generation_id=joined.generation_id, member_id=joined.member_id)
    await second.send(sync, 1)
    await until(lambda: node.broker.group_coordinator.answers.watching > before)
    return told_to_look_again(second, ApiKey.SYNC_GROUP, 1)


async def heartbeating(node: Any) -> Told:
    """Sessions of both protocols, which have all their time left."""
    await stable_member(node, "classic")
    client = await node.connect()
    beat = ConsumerGroupHeartbeatRequest(
        group_id="consumer",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=300_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    assert (await client.call(beat, 1)).error_code == 0
    await client.send_frame(b"")

    async def told() -> None:
        assert await client.is_closed()

    return told


async def committing(node: Any) -> Told:
    """Fifty commits behind each other on one connection."""
    client = await node.connect()
    for offset in range(50):
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name="t", partitions=[partition])]
        await client.send(OffsetCommitRequest(group_id="committing", topics=topics), 8)
    acknowledged = node.acknowledged = []

    async def told() -> None:
        while (response := await answer(client, ApiKey.OFFSET_COMMIT, 8)) is not None:
            assert response.topics[0].partitions[0].error_code == 0
            acknowledged.append(len(acknowledged))

    return told


async def producing(node: Any) -> Told:
    """Fifty requests behind each other on one connection."""
    client = await node.connect()
    for _ in range(50):
        await client.send(produced(), 9)

    async def told() -> None:
        while (response := await answer(client, ApiKey.PRODUCE, 9)) is not None:
            assert response.responses[0].partition_responses[0].error_code == 0

    return told


async def ending_transactions(node: Any) -> Told:
    """Of twenty partitions each."""
    transactions = node.broker.transaction_coordinator
    partitions = [Partition("t", index) for index in range(20)]
    clients = []
    for name in ("x0", "x1", "x2", "x3", "x4"):
        producer = await transactions.init_producer_id(name, LONG_MS, None)
        await transactions.add_partitions(name, producer, partitions, 0)
        client = await node.connect()
        end = EndTxnRequest(
            transactional_id=name,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=True,
        )
        await client.send(end, 3)
        clients.append(client)

    async def told() -> None:
        for client in clients:
            response = await answer(client, ApiKey.END_TXN, 3)
            assert response is None or response.error_code == 0

    return told


async def changing_topics(node: Any) -> Told:
    """Topics that come and go."""
    await node.create_topic("going", 5)
    maker, remover = await node.connect(), await node.connect()
    coming = [CreatableTopic(name=f"coming-{number}", num_partitions=5, replication_factor=1) for number in range(5)]
    await maker.send(CreateTopicsRequest(topics=coming, timeout_ms=LONG_MS), 7)
    await remover.send(DeleteTopicsRequest(topics=[DeleteTopicState(name="going")], timeout_ms=LONG_MS), 6)

    async def told() -> None:
        for client, key, version in ((maker, ApiKey.CREATE_TOPICS, 7), (remover, ApiKey.DELETE_TOPICS, 6)):
            response = await answer(client, key, version)
            if response is not None:
                answers = response.topics if key is ApiKey.CREATE_TOPICS else response.responses
                assert {each.error_code for each in answers} == {0}

    return told


async def throttled(node: Any) -> Told:
    """A client beyond its quota, whose next request waits until it may be taken; the last of the kinds."""
    client = await node.connect()
    quota = EntryData(
        entity=[EntityData(entity_type="client-id", entity_name="test")],
        ops=[OpData(key="producer_byte_rate", value=1)],
    )
    await client.call(AlterClientQuotasRequest(entries=[quota]), 1)
    answered = await client.call(produced(b"v" * 10_000), 9)
    assert answered.throttle_time_ms > 0
    await client.send(produced(), 9)
    await until(lambda: any(connection._wait.is_open for connection in node.broker.listeners._connections))

    async def told() -> None:
        assert await client.is_closed()

    return told


async def half_a_request(node: Any) -> Told:
    client = await node.connect()
    await client.stream.send_all(b"\0\0\1\0" + b"abc")

    async def told() -> None:
        assert await client.is_closed()

    return told


async def read_to_its_end(stream: trio.SocketStream) -> bytes:
    received = b""
    while piece := await stream.receive_some(65_536):
        received += piece
    return received


async def watching_over_http(node: Any) -> Told:
    """A page that shows messages as they come, a connection between two requests, and half a request."""
    host, _, port = node.http_url.removeprefix("http://").rpartition(":")
    streams = [await trio.open_tcp_stream(host, int(port)) for _ in range(3)]
    node.clients += [Client(stream) for stream in streams]
    for stream, path in zip(streams, ("/console/topics/t/live?partition=3", "/metrics", ""), strict=True):
        end = f"{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n" if path else "/metr"
        await stream.send_all(f"GET {end}".encode())
    for stream in streams[:2]:
        assert (await stream.receive_some(12)).startswith(b"HTTP/1.1 200")

    async def told() -> None:
        live = await read_to_its_end(streams[0])
        assert live.count(b"nothing new") <= 1  # its generator ended, and did not go on at once for ever
        for stream in streams[1:]:
            await read_to_its_end(stream)

    return told


async def cleaning(node: Any) -> Told:
    """At a byte a second."""
    settings = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0", "segment_bytes": str(1 << 20)}
    await node.create_topic("compacted", **settings)
    client = await node.connect()
    for number in range(4):
        response = await client.call(produced(b"%d" % number * 900_000, topic="compacted", key=b"k"), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
    (store,) = [each for each in node.broker.log_manager.stores() if "compacted" in each.files.directory]
    node.background.start_soon(node.broker.log_manager.clean)
    await until(lambda: is_being_rewritten(store.files.directory))
    return trio.lowlevel.checkpoint


KINDS = [
    fetching,
    joining,
    syncing,
    heartbeating,
    committing,
    producing,
    ending_transactions,
    changing_topics,
    half_a_request,
    watching_over_http,
    cleaning,
    throttled,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.__name__))
async def test_a_node_stops_under(
    serve_node: Serve, nursery: trio.Nursery, kind: Callable[[Any], Awaitable[Told]]
) -> None:
    async with serve_node(SETTINGS) as node:
        await prepare(node)
        node.background = nursery
        told = await kind(node)
        node.node.stop()
        await told()


async def test_a_node_stops_under_all_of_it(serve_node: Serve, nursery: trio.Nursery, mock_clock: MockClock) -> None:
    async with serve_node(SETTINGS) as node:
        await prepare(node)
        node.background = nursery
        tolds = [await kind(node) for kind in KINDS]
        node.node.stop()
        for told in tolds:
            await told()


async def test_what_a_stop_leaves_is_taken_up(serve_node: Serve, nursery: trio.Nursery, mock_clock: MockClock) -> None:
    """Nobody's session was ended, no acknowledged commit is missing, and what was decided is carried through."""
    async with serve_node(SETTINGS) as node:
        await prepare(node)
        tolds = [await kind(node) for kind in (heartbeating, joining, committing, ending_transactions)]
        node.node.stop()
        for told in tolds:
            await told()
        acknowledged = node.acknowledged
    async with serve_node(SETTINGS) as node:
        await until_loaded(node)
        groups, transactions = node.broker.group_coordinator, node.broker.transaction_coordinator
        assert groups.classic_groups.describe("classic").is_in(ClassicState.STABLE)
        assert groups.classic_groups.describe("joining").is_in(ClassicState.STABLE)
        assert list(groups.consumer_groups.describe("consumer").members) == ["m"]
        partition = TopicPartition("t", 0)
        offset = groups.offsets.fetch("committing", [partition], require_stable=True)[partition]
        assert (-1 if offset is None else offset.offset) >= len(acknowledged) - 1
        await until(lambda: not any(it.is_prepared for it in transactions.list_transactions()))
        statuses = {it.status for it in transactions.list_transactions()}
        assert statuses <= {TransactionStatus.ONGOING, TransactionStatus.COMPLETE_COMMIT}


async def test_being_cut_short_ends_it_as_well(tmp_path: Path) -> None:
    """A second signal cancels everything, shielded or not: each wait ends by itself, or with what it waits for."""
    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path), **SETTINGS}
    async with trio.open_nursery() as nursery:
        node = RunningNode(Node(BrokerConfig(static)), await nursery.start(Node(BrokerConfig(static)).serve))
        node.background = nursery  # type: ignore[attr-defined]
        await prepare(node)
        for kind in KINDS:
            await kind(node)
        nursery.cancel_scope.cancel()
    for client in node.clients:
        await trio.aclose_forcefully(client.stream)


async def test_a_stop_waits_for_the_disk_and_for_nothing_else(serve_node: Serve) -> None:
    """A flush that is under way is what was asked for: it is waited for, and acknowledged."""
    disk = HeldDisk()
    async with serve_node(SETTINGS, disk=disk) as node:
        await prepare(node)
        await node.create_topic("synced", flush_messages="1")
        await node.create_topic("going", flush_messages="1")
        producer, remover = await node.connect(), await node.connect()
        disk.hold("fdatasync")
        await producer.send(produced(topic="synced"), 9)
        await producer.send(produced(topic="going"), 9)
        await disk.wait_until_held()
        deleted = [DeleteTopicState(name="going")]
        await remover.send(DeleteTopicsRequest(topics=deleted, timeout_ms=LONG_MS), 6)
        node.node.stop()
        await trio.testing.wait_all_tasks_blocked()
        disk.let_go()
        response = await answer(producer, ApiKey.PRODUCE, 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        await answer(remover, ApiKey.DELETE_TOPICS, 6)
    async with serve_node(SETTINGS) as node:
        assert node.broker.log_manager.node_dir.was_clean


async def test_the_metadata_store_is_waited_for_a_second(tmp_path: Path, mock_clock: MockClock) -> None:
    class Silent(MemoryMetadataStore):
        asked: trio.Event | None = None

        async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
            if self.asked is not None:
                self.asked.set()
                await trio.sleep_forever()
            return await super().commit(compares, operations)

    store = Silent()
    static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)}
    async with trio.open_nursery() as nursery:
        serving = Node(BrokerConfig(static), metadata_store=store)
        node = RunningNode(serving, await nursery.start(serving.serve))
        client = await node.connect()
        store.asked = trio.Event()
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        await client.send(CreateTopicsRequest(topics=[topic], timeout_ms=LONG_MS), 7)
        await store.asked.wait()
        serving.stop()
        await until(lambda: not node.broker.is_serving)
        mock_clock.jump(SHUTDOWN_SECONDS)
        response = await answer(client, ApiKey.CREATE_TOPICS, 7)
        assert ErrorCode(response.topics[0].error_code) is ErrorCode.REQUEST_TIMED_OUT
        assert await client.is_closed()
        await trio.aclose_forcefully(client.stream)


async def test_a_node_stops_while_its_coordinators_load(serve_node: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(log: ReplicaLog, partition: int) -> AsyncGenerator[memoryview, None]:
        await trio.sleep_forever()
        yield memoryview(b"")

    async with serve_node(SETTINGS) as node:
        await prepare(node)
    monkeypatch.setattr(ReplicaLog, "read", never)
    async with serve_node(SETTINGS) as node:
        assert node.broker.group_coordinator.runtime.loading()
        client = await node.connect()
        await client.send(join("g"), 3)
        response = await answer(client, ApiKey.JOIN_GROUP, 3)
        assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        node.node.stop()


async def test_a_client_that_does_not_read_is_waited_for_no_longer_than_the_grace_period(
    serve_node: Serve, mock_clock: MockClock
) -> None:
    async with serve_node(SETTINGS) as node:
        await prepare(node)
        client = await node.connect()
        for _ in range(20):
            await client.call(produced(b"v" * 900_000), 9)
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=50_000_000)
        topics = [FetchTopic(topic="t", partitions=[asked])]
        fetch = FetchRequest(max_wait_ms=LONG_MS, min_bytes=1, max_bytes=50_000_000, topics=topics)
        await client.send(fetch, 11)
        await trio.testing.wait_all_tasks_blocked()
        node.node.stop()
        await trio.testing.wait_all_tasks_blocked()
        assert node.broker.listeners.connection_count == 1
        mock_clock.jump(STOP_GRACE_SECONDS)
        await until(lambda: not node.broker.listeners.connection_count)
