"""The transaction coordinator: each request, each crash, and what goes by itself."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    NotCoordinatorError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from ottla.coordinator.transaction.state import (
    EXHAUSTED_EPOCH,
    Partition,
    ProducerIdAndEpoch,
    TransactionStatus,
)
from ottla.kproto.records import EndTxnMarker
from ottla.storage.clock import ManualClock
from ottla.storage.errors import StoreOfflineError, TransactionCoordinatorFencedError
from tests.coordinator.transaction.world import MINUTE_MS, P0, P1, V1, V2, Markers, World, running


@pytest.fixture
async def world(log: Any) -> AsyncIterator[World]:
    async with running(log) as world:
        yield world


@pytest.mark.parametrize("commit", [True, False])
async def test_a_transaction_ends_in_every_partition_with_the_same_marker(world: World, commit: bool) -> None:
    producer = await world.init()
    assert producer == ProducerIdAndEpoch(1_000, 0)
    await world.add(producer, P0)
    await world.add(producer, P1)
    assert world.status_now() is TransactionStatus.ONGOING
    assert await world.end(producer, commit=commit) == producer
    await world.settle()
    assert world.status_now() is (TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT)
    assert sorted(world.markers.written) == [
        (P0, EndTxnMarker(1_000, 0, 0, commit)),
        (P1, EndTxnMarker(1_000, 0, 0, commit)),
    ]


async def test_the_next_transaction_waits_until_the_markers_of_the_last_are_written(world: World) -> None:
    producer = await world.init()
    await world.add(producer)
    world.markers.gate = trio.Event()
    await world.end(producer, commit=True)
    assert world.status_now() is TransactionStatus.PREPARE_COMMIT
    with pytest.raises(ConcurrentTransactionsError):
        await world.add(producer)
    with pytest.raises(ConcurrentTransactionsError):
        await world.init()
    for commit in (True, False):
        with pytest.raises(ConcurrentTransactionsError):
            await world.end(producer, commit=commit)
    world.markers.gate.set()
    await world.settle()
    await world.add(producer)
    assert world.status_now() is TransactionStatus.ONGOING


async def test_a_marker_that_is_refused_is_written_again(
    world: World, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    producer = await world.init()
    await world.add(producer, P0, P1)
    world.markers.refused = {P1: StoreOfflineError("t")}
    await world.end(producer, commit=True)
    await trio.sleep(5)
    assert world.status_now() is TransactionStatus.PREPARE_COMMIT
    assert {partition for partition, _ in world.markers.written} == {P0}
    assert "1 markers are not written yet" in caplog.text
    world.markers.refused = {}
    await trio.sleep(5)
    assert world.status_now() is TransactionStatus.COMPLETE_COMMIT
    assert [partition for partition, _ in world.markers.written] == [P0, P1]


async def test_a_partition_with_a_newer_coordinator_needs_no_marker_from_here(world: World) -> None:
    producer = await world.init()
    await world.add(producer, P0)
    world.markers.refused = {P0: TransactionCoordinatorFencedError("t")}
    await world.end(producer, commit=True)
    await world.settle()
    assert world.status_now() is TransactionStatus.COMPLETE_COMMIT


async def test_ending_again_alike_is_answered_alike(world: World) -> None:
    producer = await world.init()
    await world.add(producer)
    await world.end(producer, commit=True)
    await world.settle()
    await world.end(producer, commit=True)
    with pytest.raises(InvalidTransactionStateError):
        await world.end(producer, commit=False)
    assert len(world.markers.written) == 1


async def test_a_request_that_is_given_up_at_once_leaves_nothing(world: World) -> None:
    with trio.CancelScope() as scope:
        scope.cancel()
        await world.init()
    assert scope.cancelled_caught
    assert not world.coordinator.runtime.shard(0).entries


async def test_an_empty_transaction_cannot_end_before_v2(world: World) -> None:
    producer = await world.init()
    with pytest.raises(InvalidTransactionStateError):
        await world.end(producer, commit=True)


class TestFencing:
    async def test_a_new_producer_gets_the_next_epoch(self, world: World) -> None:
        old = await world.init()
        new = await world.init()
        assert new == ProducerIdAndEpoch(old.producer_id, old.epoch + 1)
        with pytest.raises(ProducerFencedError):
            await world.add(old)
        with pytest.raises(ProducerFencedError):
            await world.end(old, commit=True)
        with pytest.raises(InvalidProducerIdMappingError):
            await world.add(ProducerIdAndEpoch(7, 0))

    async def test_an_ongoing_transaction_is_aborted_under_the_next_epoch(self, world: World) -> None:
        old = await world.init()
        await world.add(old)
        with pytest.raises(ConcurrentTransactionsError):
            await world.init()
        await world.settle()
        assert world.markers.written == [(P0, EndTxnMarker(old.producer_id, old.epoch + 1, 0, False))]
        new = await world.init()
        assert new.epoch == old.epoch + 2
        with pytest.raises(ProducerFencedError):
            await world.end(old, commit=True)

    async def test_a_producer_that_recovers_keeps_its_id(self, world: World) -> None:
        producer = await world.init()
        bumped = await world.init(producer)
        assert bumped == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
        assert await world.init(producer) == bumped
        with pytest.raises(ProducerFencedError):
            await world.init(ProducerIdAndEpoch(99, 0))

    async def test_an_identity_from_elsewhere_is_taken_by_a_new_id_alone(self, world: World) -> None:
        producer = await world.init(ProducerIdAndEpoch(0, 0))
        assert producer.epoch == 0
        with pytest.raises(ProducerFencedError):
            await world.init(ProducerIdAndEpoch(0, 0))

    async def test_used_up_epochs_lead_to_a_new_id(self, world: World) -> None:
        producer = await world.init()
        while producer.epoch < EXHAUSTED_EPOCH:
            entry = world.coordinator.runtime.shard(0).entries["x"]
            assert entry.transaction is not None
            entry.transaction = entry.transaction._replace(producer_epoch=EXHAUSTED_EPOCH)
            producer = ProducerIdAndEpoch(producer.producer_id, EXHAUSTED_EPOCH)
        rotated = await world.init(producer)
        assert rotated == ProducerIdAndEpoch(1_001, 0)
        again = await world.init(producer)
        assert again.producer_id == rotated.producer_id


class TestTransactionsV2:
    """KIP-890: every end raises the epoch."""

    async def test_the_marker_and_the_producer_get_the_next_epoch(self, world: World) -> None:
        producer = await world.init()
        await world.add(producer, version=V2)
        following = await world.end(producer, commit=True, version=V2)
        assert following == ProducerIdAndEpoch(producer.producer_id, producer.epoch + 1)
        await world.settle()
        assert world.markers.written == [(P0, EndTxnMarker(producer.producer_id, producer.epoch + 1, 0, True))]
        with pytest.raises(ProducerFencedError):
            await world.add(producer, version=V2)
        await world.add(following, version=V2)

    async def test_a_retry_is_told_the_same_identity(self, world: World) -> None:
        producer = await world.init()
        await world.add(producer, version=V2)
        world.markers.gate = trio.Event()
        following = await world.end(producer, commit=True, version=V2)
        with pytest.raises(ConcurrentTransactionsError):
            await world.end(producer, commit=True, version=V2)
        world.markers.gate.set()
        await world.settle()
        assert await world.end(producer, commit=True, version=V2) == following
        with pytest.raises(InvalidTransactionStateError):
            await world.end(producer, commit=False, version=V2)
        assert len(world.markers.written) == 1

    async def test_an_empty_transaction_may_be_aborted_but_not_committed(self, world: World) -> None:
        producer = await world.init()
        with pytest.raises(InvalidTransactionStateError):
            await world.end(producer, commit=True, version=V2)
        following = await world.end(producer, commit=False, version=V2)
        assert following.epoch == producer.epoch + 1
        await world.settle()
        assert world.status_now() is TransactionStatus.COMPLETE_ABORT
        assert world.markers.written == []

    async def test_used_up_epochs_lead_to_a_new_id_at_the_end(self, world: World) -> None:
        first = await world.init()
        entry = world.coordinator.runtime.shard(0).entries["x"]
        assert entry.transaction is not None
        entry.transaction = entry.transaction._replace(producer_epoch=EXHAUSTED_EPOCH)
        producer = ProducerIdAndEpoch(first.producer_id, EXHAUSTED_EPOCH)
        await world.add(producer, version=V2)
        following = await world.end(producer, commit=True, version=V2)
        assert following == ProducerIdAndEpoch(1_001, 0)
        await world.settle()
        assert world.markers.written == [(P0, EndTxnMarker(first.producer_id, EXHAUSTED_EPOCH + 1, 0, True))]
        assert await world.end(producer, commit=True, version=V2) == following
        await world.add(following, version=V2)


class TestVerification:
    async def test_only_partitions_of_the_ongoing_transaction_pass(self, world: World) -> None:
        producer = await world.init()
        verify = world.coordinator.verify
        with pytest.raises(TransactionAbortableError):
            verify("x", producer, P0)
        await world.add(producer, P0)
        verify("x", producer, P0)
        with pytest.raises(TransactionAbortableError):
            verify("x", producer, P1)
        with pytest.raises(ProducerFencedError):
            verify("x", ProducerIdAndEpoch(producer.producer_id, 7), P0)
        with pytest.raises(InvalidProducerIdMappingError):
            verify("nobody", producer, P0)
        await world.end(producer, commit=True)
        with pytest.raises(ConcurrentTransactionsError):
            verify("x", producer, P0)


class TestTime:
    async def test_a_transaction_that_takes_too_long_is_aborted(
        self, log: Any, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with running(log) as world:
            producer = await world.init()
            await world.add(producer)
            world.clock.advance(MINUTE_MS)
            await trio.sleep(11)
            assert world.status_now() is TransactionStatus.ONGOING
            world.clock.advance(1)
            await trio.sleep(11)
            assert world.status_now() is TransactionStatus.COMPLETE_ABORT
            assert world.markers.written == [(P0, EndTxnMarker(producer.producer_id, producer.epoch + 1, 0, False))]
            with pytest.raises(ProducerFencedError):
                await world.end(producer, commit=True)

    async def test_a_decided_transaction_does_not_time_out(
        self, log: Any, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with running(log) as world:
            producer = await world.init()
            await world.add(producer)
            world.markers.gate = trio.Event()
            await world.end(producer, commit=True)
            world.clock.advance(10 * MINUTE_MS)
            await trio.sleep(30)
            world.markers.gate.set()
            await trio.sleep(1)
            assert world.status_now() is TransactionStatus.COMPLETE_COMMIT

    async def test_an_id_that_nobody_uses_is_forgotten(self, log: Any, autojump_clock: trio.testing.MockClock) -> None:
        async with running(log) as world:
            await world.init()
            world.clock.advance(world.coordinator.config.id_expiration_ms)
            await trio.sleep(3_601)
            with pytest.raises(TransactionalIdNotFoundError):
                world.coordinator.describe("x")
        async with running(log) as again:
            assert list(again.coordinator.list_transactions()) == []

    @pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
    async def test_timeouts_out_of_range_are_refused(self, world: World, timeout_ms: int) -> None:
        with pytest.raises(InvalidTransactionTimeoutError):
            await world.init(timeout_ms=timeout_ms)

    async def test_an_empty_id_is_refused(self, world: World) -> None:
        with pytest.raises(InvalidRequestError):
            await world.init(transactional_id="")


class TestCrashes:
    """A coordinator that is killed in each state: what was decided is carried through by the next."""

    @pytest.mark.parametrize("commit", [True, False])
    @pytest.mark.parametrize("version", [V1, V2])
    async def test_between_the_decision_and_its_markers(self, log: Any, commit: bool, version: int) -> None:
        markers = Markers()
        markers.gate = trio.Event()
        async with running(log, markers) as world:
            producer = await world.init()
            await world.add(producer, P0, P1, version=version)
            following = await world.end(producer, commit=commit, version=version)
        assert markers.written == []
        async with running(log) as again:
            await again.settle()
            assert {(partition, marker.is_commit) for partition, marker in again.markers.written} == {
                (P0, commit),
                (P1, commit),
            }
            await again.add(following, version=version)

    async def test_between_the_markers_and_the_completion(self, log: Any) -> None:
        async with running(log) as world:
            producer = await world.init()
            await world.add(producer)
            await world.end(producer, commit=True)
            log.gate = trio.Event()
            await world.settle()
            assert len(world.markers.written) == 1
        log.gate.set()
        async with running(log) as again:
            await again.settle()
            assert len(again.markers.written) == 1
            assert again.status_now() is TransactionStatus.COMPLETE_COMMIT

    async def test_in_an_ongoing_transaction(self, log: Any) -> None:
        async with running(log) as world:
            producer = await world.init()
            await world.add(producer, P0)
        async with running(log) as again:
            assert again.status_now() is TransactionStatus.ONGOING
            await again.add(producer, P1)
            await again.end(producer, commit=True)
            await again.settle()
            assert {partition for partition, _ in again.markers.written} == {P0, P1}

    async def test_a_step_that_is_not_stored_did_not_happen(self, world: World, log: Any) -> None:
        producer = await world.init()
        await world.add(producer)
        log.error = CoordinatorNotAvailableError("the disk is full")
        with pytest.raises(CoordinatorNotAvailableError):
            await world.end(producer, commit=True)
        log.error = None
        assert world.status_now() is TransactionStatus.ONGOING
        await world.end(producer, commit=False)

    async def test_a_coordinator_that_moves_away_stops(self, world: World, log: Any) -> None:
        producer = await world.init()
        await world.add(producer)
        world.markers.gate = trio.Event()
        await world.end(producer, commit=True)
        world.lead(2)
        world.markers.gate.set()
        await world.settle()
        assert world.markers.written == []
        with pytest.raises(NotCoordinatorError):
            await world.init()

    async def test_while_loading_everything_waits(self, log: Any) -> None:
        async with running(log) as world:
            await world.init()
        async with trio.open_nursery() as nursery:
            again = World(log, Markers(), ManualClock(), nursery)
            with pytest.raises(CoordinatorLoadInProgressError):
                await again.init()
            nursery.cancel_scope.cancel()


async def test_a_thousand_partitions_take_part(world: World) -> None:
    producer = await world.init()
    await world.add(producer, *(Partition("t", index) for index in range(1_000)))
    await world.end(producer, commit=True)
    await world.settle()
    assert len(world.markers.written) == 1_000
    assert world.status_now() is TransactionStatus.COMPLETE_COMMIT
