"""Markers: what comes of each error of a partition, and what a transaction needs to be over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    LaterEpochError,
    NotCoordinatorError,
)
from ottla.coordinator.transaction.markers import ReplicaMarkers, write_everywhere
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch, TransactionStatus
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.transactions.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from ottla.kproto.records import EndTxnMarker
from ottla.metadata.internal_topics import CONSUMER_OFFSETS, TRANSACTION_STATE
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.errors import (
    NotEnoughReplicasAfterAppendError,
    NotEnoughReplicasError,
    NotLeaderError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from ottla.storage.clock import ManualClock
from ottla.storage.errors import (
    CorruptBatchError,
    InvalidProducerEpochError,
    LogClosedError,
    RecordTooLargeError,
    StoreOfflineError,
    TransactionCoordinatorFencedError,
)
from tests.coordinator.transaction.world import P0, P1
from tests.doubles.one_topic import OneTopic

Serve = Callable[..., Any]

MARKER = EndTxnMarker(7, 1, 3, True)
PASSING = [
    UnknownTopicOrPartitionError,
    NotLeaderError,
    NotEnoughReplicasError,
    NotEnoughReplicasAfterAppendError,
    RequestTimedOutError,
    StoreOfflineError,
    LogClosedError,
    NotCoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
]
LATER = [InvalidProducerEpochError, TransactionCoordinatorFencedError, LaterEpochError]
UNFORESEEN = [RecordTooLargeError, CorruptBatchError, RuntimeError]


class Sink:
    """P1 answers with one error after the other, then takes its marker; P0 always does. `asked` says when of whom."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.asked: list[tuple[float, list[Partition]]] = []

    async def write(self, partitions: Iterable[Partition], marker: EndTxnMarker) -> dict[Partition, Exception]:
        assert marker == MARKER
        self.asked.append((trio.current_time(), sorted(partitions)))
        await trio.lowlevel.checkpoint()
        return {P1: self.errors.pop(0)} if self.errors and P1 in partitions else {}


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, each.getMessage()) for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("error", PASSING)
async def test_what_passes_is_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    sink = Sink(error("not now"))
    await write_everywhere(sink, frozenset({P0, P1}), MARKER)
    assert [partitions for _, partitions in sink.asked] == [[P0, P1], [P1]]
    assert lines(caplog) == [("WARNING", "producer 7: 1 markers are not written yet; for t-1: not now")]


@pytest.mark.parametrize("error", LATER)
async def test_a_partition_with_a_later_marker_needs_no_other(
    caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    sink = Sink(error("later"))
    await write_everywhere(sink, frozenset({P0, P1}), MARKER)
    assert len(sink.asked) == 1
    assert lines(caplog) == []


@pytest.mark.parametrize("error", UNFORESEEN)
async def test_what_nobody_foresaw_is_an_error_and_tried_again(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture, error: type[Exception]
) -> None:
    sink = Sink(error("odd"))
    await write_everywhere(sink, frozenset({P0, P1}), MARKER)
    assert len(sink.asked) == 2
    assert lines(caplog) == [("ERROR", "producer 7: 1 markers are not written yet; for t-1: odd")]


@pytest.mark.usefixtures("without_jitter")
async def test_trying_again_takes_longer_each_time_and_is_told_once(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Sink(*[StoreOfflineError("offline")] * 6, NotLeaderError("elsewhere"), NotLeaderError("elsewhere"))
    began = trio.current_time()
    await write_everywhere(sink, frozenset({P1}), MARKER)
    times = [round(at - began, 1) for at, _ in sink.asked]
    assert times == [0, 0.1, 0.3, 0.7, 1.5, 2.5, 3.5, 4.5, 5.5]
    assert [text.rpartition(" ")[2] for _, text in lines(caplog)] == ["offline", "elsewhere"]


# On the replica manager


class Replicas:
    """Answers every append with `error`."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.appended: list[TopicIdPartition] = []

    async def append(self, entries: dict[TopicIdPartition, Records], **_: Any) -> dict[TopicIdPartition, AppendResult]:
        self.appended += entries
        return {key: AppendResult(self.error) for key in entries}


class Known(dict[Partition, UUID]):
    """The partitions that there are."""

    def topic_id_of(self, topic: str, partition: int) -> UUID | None:
        return self.get(Partition(topic, partition))


@pytest.mark.parametrize("error", [UnknownTopicOrPartitionError("t"), NotLeaderError("t")])
async def test_the_metadata_alone_says_that_a_partition_is_gone(error: Exception) -> None:
    """Its topic may be there and its log not yet, or be made again with fewer partitions."""
    replicas = Replicas(error)
    known = {P0: UUID(int=1)}
    markers = ReplicaMarkers(replicas, None, Known(known), ManualClock())  # type: ignore[arg-type]
    offsets = Partition(CONSUMER_OFFSETS, 0)
    assert await markers.write([P0, P1, offsets], MARKER) == {P0: error}
    assert replicas.appended == [TopicIdPartition(UUID(int=1), 0)]


class Groups:
    """Ends no transaction over offsets before `gate` is set."""

    def __init__(self) -> None:
        self.gate = trio.Event()
        self.ended: list[int] = []

    async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None:
        await self.gate.wait()
        self.ended.append(partition)


def markers_of(replicas: Replicas, groups: Groups) -> ReplicaMarkers:
    return ReplicaMarkers(replicas, groups, OneTopic(UUID(int=1)), ManualClock())  # type: ignore[arg-type]


OFFSETS = [Partition(CONSUMER_OFFSETS, 0), Partition(CONSUMER_OFFSETS, 1)]


async def test_data_does_not_wait_for_offsets() -> None:
    replicas, groups = Replicas(), Groups()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(markers_of(replicas, groups).write, [*OFFSETS, P0], MARKER)
        await trio.testing.wait_all_tasks_blocked()
        assert replicas.appended == [TopicIdPartition(UUID(int=1), 0)]
        assert groups.ended == []
        groups.gate.set()
    assert sorted(groups.ended) == [0, 1]


async def test_offsets_whose_groups_do_not_answer_count_as_failed(autojump_clock: trio.testing.MockClock) -> None:
    began = trio.current_time()
    failed = await markers_of(Replicas(NotLeaderError("t")), Groups()).write([*OFFSETS, P0], MARKER)
    assert trio.current_time() - began == pytest.approx(30)
    assert {partition: type(error) for partition, error in failed.items()} == {
        P0: NotLeaderError,
        OFFSETS[0]: RequestTimedOutError,
        OFFSETS[1]: RequestTimedOutError,
    }


async def test_one_partition_of_offsets_does_not_wait_for_another(autojump_clock: trio.testing.MockClock) -> None:
    class OneHangs(Groups):
        async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None:
            if partition == 0:
                await trio.sleep_forever()
            self.ended.append(partition)

    groups = OneHangs()
    failed = await markers_of(Replicas(), groups).write(OFFSETS, MARKER)
    assert list(failed) == [OFFSETS[0]]
    assert groups.ended == [1]


# A whole broker


def by_hand(producer: ProducerIdAndEpoch, topic: str, partition: int) -> WriteTxnMarkersRequest:
    """An administrator ends whatever transaction the producer has in a partition."""
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                transaction_result=False,
                coordinator_epoch=0,
                topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            )
        ]
    )


def code_of(response: Any) -> ErrorCode:
    (partition,) = response.markers[0].topics[0].partitions
    return ErrorCode(partition.error_code)


async def until_loaded(coordinator: Any) -> None:
    while coordinator.runtime.loading():
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize("topic", ["t", CONSUMER_OFFSETS])
async def test_a_transaction_ends_where_a_later_epoch_has_ended_already(serve_node: Serve, topic: str) -> None:
    async with serve_node({"offsets.topic.num.partitions": "2"}) as node:
        await node.create_topic("t", 2)
        for internal in (CONSUMER_OFFSETS, TRANSACTION_STATE):
            await node.broker.controller.ensure_topic(internal)
        transactions = node.broker.transaction_coordinator
        await until_loaded(transactions)
        await until_loaded(node.broker.group_coordinator)
        producer = await transactions.init_producer_id("x", 60_000, None)
        await transactions.add_partitions("x", producer, [Partition(topic, 0), Partition(topic, 1)], 0)
        client = await node.connect()
        later = producer._replace(epoch=producer.epoch + 3)
        assert code_of(await client.call(by_hand(later, topic, 0), 1)) == ErrorCode.NONE
        assert code_of(await client.call(by_hand(producer, topic, 0), 1)) == ErrorCode.INVALID_PRODUCER_EPOCH

        await transactions.end("x", producer, commit=True, client_version=0)
        with trio.fail_after(10):
            while transactions.describe("x").status is TransactionStatus.PREPARE_COMMIT:
                await trio.lowlevel.checkpoint()
        assert transactions.describe("x").status is TransactionStatus.COMPLETE_COMMIT
        assert (await transactions.init_producer_id("x", 60_000, None)).epoch == producer.epoch + 1


async def test_a_group_coordinator_that_is_not_here_is_a_leader_that_is_not(serve_node: Serve) -> None:
    async with serve_node({"offsets.topic.num.partitions": "1"}) as node:
        await node.broker.controller.ensure_topic(CONSUMER_OFFSETS)
        node.broker.group_coordinator.runtime.resign(0)
        client = await node.connect()
        response = await client.call(by_hand(ProducerIdAndEpoch(1, 0), CONSUMER_OFFSETS, 0), 1)
        assert code_of(response) == ErrorCode.NOT_LEADER_OR_FOLLOWER
