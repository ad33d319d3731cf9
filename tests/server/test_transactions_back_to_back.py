"""A batch of the next transaction, which comes while the markers of the last one are still being written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from ottla.coordinator.transaction.markers import ReplicaMarkers
from ottla.coordinator.transaction.other_brokers import TransactionVerifier
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import EndTxnMarker, Record, build_batch
from ottla.server.apis.data import produce
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.disk.simulated_disk import SimulatedDisk
from tests.server.test_transaction_histories import TOPIC, Node, start
from tests.servers import answered

P0 = Partition(TOPIC.name, 0)
BEFORE_V2, V2 = 11, 12
PAUSE_MS = 20
PATIENCE = "add.partitions.to.txn.retry.backoff.max.ms"
MARKERS_SECONDS = 0.05


@pytest.fixture
async def node(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    """Writes markers within MARKERS_SECONDS of a clock that a test takes, too."""
    write = ReplicaMarkers.write

    async def write_slowly(self: ReplicaMarkers, partitions: Any, marker: EndTxnMarker, **options: Any) -> Any:
        await trio.sleep(MARKERS_SECONDS)
        return await write(self, partitions, marker, **options)

    monkeypatch.setattr(ReplicaMarkers, "write", write_slowly)
    async with start(SimulatedDisk(0), ManualClock(1_000_000), range(1_000, 2_000)) as node:
        yield node


async def end_one(node: Node, version: int) -> ProducerIdAndEpoch:
    """End a transaction whose markers are being written when this returns; the identity of the next."""
    coordinator = node.transaction_coordinator
    await trio.sleep(1)  # it has loaded
    identity = await coordinator.init_producer_id("x", 60_000, None)
    await coordinator.add_partitions("x", identity, [P0], version)
    following: ProducerIdAndEpoch = await coordinator.end("x", identity, commit=True, client_version=version)
    return following


async def send(node: Node, identity: ProducerIdAndEpoch, version: int = V2) -> ErrorCode:
    batch = build_batch(
        [Record(key=b"k", value=b"v", timestamp_ms=1_000_000)],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        is_transactional=True,
    )
    data = PartitionProduceData(index=0, records=memoryview(bytearray(batch)))
    request = ProduceRequest(
        transactional_id="x",
        acks=-1,
        timeout_ms=5_000,
        topic_data=[TopicProduceData(name=TOPIC.name, partition_data=[data])],
    )
    context: Any = SimpleNamespace(
        header=SimpleNamespace(api_version=version, client_id="test"),
        broker=node,
        fragment=None,
        connection=SimpleNamespace(was_held_up=False, held_up=lambda: None, is_awaited=True, sends_files=False),
        counted=None,
    )
    response = await answered(produce.handle(request, context))
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


async def test_it_is_let_in_as_soon_as_the_last_transaction_is_over(node: Node, autojump_clock: MockClock) -> None:
    following = await end_one(node, 2)
    began = trio.current_time()
    assert await send(node, following) == ErrorCode.NONE
    assert trio.current_time() - began == pytest.approx(MARKERS_SECONDS)


async def test_it_is_refused_when_that_takes_too_long(node: Node, autojump_clock: MockClock) -> None:
    node.config = BrokerConfig({PATIENCE: "30"})
    following = await end_one(node, 2)
    began = trio.current_time()
    assert await send(node, following) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert trio.current_time() - began == pytest.approx(0.03)


async def test_it_is_refused_at_once_where_nobody_may_wait(node: Node, autojump_clock: MockClock) -> None:
    node.config = BrokerConfig({PATIENCE: "0"})
    following = await end_one(node, 2)
    began = trio.current_time()
    assert await send(node, following) == ErrorCode.CONCURRENT_TRANSACTIONS
    assert trio.current_time() == began


async def test_before_v2_nobody_waits(node: Node, autojump_clock: MockClock) -> None:
    """There the partition has been added, and its producer has waited for that."""
    identity = await end_one(node, 0)
    began = trio.current_time()
    assert await send(node, identity, BEFORE_V2) == ErrorCode.NOT_ENOUGH_REPLICAS
    assert trio.current_time() == began


async def test_a_coordinator_elsewhere_is_asked_again_after_each_pause(
    node: Node, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not known here when the last transaction is over."""
    asked: list[float] = []
    own = node.transaction_verifier

    class Elsewhere:
        async def take_part(self, node_id: int, *arguments: Any, joins: bool) -> Any:
            asked.append(trio.current_time())
            return await own.verify(*arguments, joins=joins)

    following = await end_one(node, 2)
    cluster: Any = SimpleNamespace(other_brokers=Elsewhere())
    node.transaction_verifier = TransactionVerifier(cluster, node, node_id=1)
    assert await send(node, following) == ErrorCode.NONE
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    assert pauses == pytest.approx([PAUSE_MS / 1000] * 3)


async def test_the_wait_ends_with_the_coordinator(node: Node, autojump_clock: MockClock) -> None:
    await end_one(node, 2)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.transaction_verifier.until_settled, "x", 1.0)
        await trio.sleep(0.01)
        node.transaction_coordinator.runtime.resign(0)
    assert trio.current_time() - began == pytest.approx(0.01)
