"""What goes on behind the requests, and across them: completions, timeouts, expiry, partitions that move meanwhile."""

import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    ConcurrentTransactionsError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    InvalidProducerIdMappingError,
    NotCoordinatorError,
    ProducerFencedError,
)
from ottla.coordinator.transaction.completion import Completion
from ottla.coordinator.transaction.shard import Entry, TransactionShard
from ottla.coordinator.transaction.state import ProducerIdAndEpoch, Transaction, TransactionStatus
from ottla.coordinator.transaction.upkeep import Upkeep
from ottla.runtime.stages import Stages
from ottla.storage.clock import ManualClock
from tests.coordinator.transaction.world import MINUTE_MS, P0, Markers, World, running


class RefusingLog:
    """A log that refuses the partitions and the first `refusals` appends that a test names."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.turn = log.turn
        self.refused: set[int] = set()
        self.refusals = 0

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        base_offset: int = yield partial(self.append, partition, records)
        return base_offset

    async def confirm(self, partitions: Iterable[int]) -> None:
        await self.log.confirm(partitions)

    async def append(self, partition: int, records: bytes) -> int:
        if partition in self.refused or self.refusals:
            self.refusals = max(0, self.refusals - 1)
            await trio.lowlevel.checkpoint()
            raise CoordinatorNotAvailableError("the store is full")
        offset: int = await self.log.append(partition, records)
        return offset

    def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        batches: AsyncGenerator[memoryview, None] = self.log.read(partition)
        return batches


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


async def begin(world: World, *transactional_ids: str) -> dict[str, ProducerIdAndEpoch]:
    producers = {}
    for transactional_id in transactional_ids:
        producers[transactional_id] = await world.init(transactional_id=transactional_id)
        await world.coordinator.add_partitions(transactional_id, producers[transactional_id], [P0], 0)
    return producers


class TestCompletion:
    async def test_a_completion_that_is_refused_is_written_later(
        self, log: Any, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        refusing = RefusingLog(log)
        async with running(refusing) as world:
            producer = await world.init()
            await world.add(producer)
            world.markers.gate = trio.Event()
            await world.end(producer, commit=True)
            refusing.refusals = 3
            world.markers.gate.set()
            await trio.sleep(0.5)
            assert world.status_now() is TransactionStatus.PREPARE_COMMIT
            with pytest.raises(ConcurrentTransactionsError):
                await world.init()  # answered at once, not when the log takes records again
            await trio.sleep(5)
            assert world.status_now() is TransactionStatus.COMPLETE_COMMIT
            await world.add(producer)
        assert warnings(caplog) == ["x is not marked as complete yet: the store is full"] * 3

    async def test_a_stop_ends_it_without_a_word(self, log: Any, caplog: pytest.LogCaptureFixture) -> None:
        async with running(log) as world:
            await begin(world, "x", "y")
            log.gate = trio.Event()
            producer = world.coordinator.describe("x").identity
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_refused, world, "x", producer)  # its record is under way
                nursery.start_soon(_refused, world, "y", world.coordinator.describe("y").identity)  # waits behind it
                await world.settle()
                world.coordinator.runtime.close()
        assert warnings(caplog) == []


async def _refused(world: World, transactional_id: str, producer: ProducerIdAndEpoch) -> None:
    with pytest.raises(NotCoordinatorError):
        await world.coordinator.end(transactional_id, producer, commit=True, client_version=0)


class TestUpkeep:
    async def test_a_partition_that_refuses_does_not_hold_up_the_timeouts_of_others(
        self, log: Any, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        refusing = RefusingLog(log)
        async with running(refusing, topic_partitions=3) as world:
            for partition in range(3):
                world.lead(1, partition)
            await world.settle()
            ids = {world.coordinator.partition_for(name): name for name in "abcdefgh"}
            await begin(world, *ids.values())
            refusing.refused = {0, 1}
            world.clock.advance(MINUTE_MS + 1)
            await trio.sleep(11)
            statuses = {partition: world.coordinator.describe(name).status for partition, name in ids.items()}
            assert statuses[2] is TransactionStatus.COMPLETE_ABORT
            assert statuses[0] is statuses[1] is TransactionStatus.ONGOING
            assert warnings(caplog) == [
                f"partition {n} of __transaction_state does not abort what has timed out now: the store is full"
                for n in (0, 1)
            ]
            refusing.refused = set()
            await trio.sleep(11)
            assert {world.coordinator.describe(name).status for name in ids.values()} == {
                TransactionStatus.COMPLETE_ABORT
            }

    async def test_a_partition_that_loads_or_refuses_does_not_hold_up_the_expiry_of_others(
        self, log: Any, autojump_clock: trio.testing.MockClock
    ) -> None:
        refusing = RefusingLog(log)
        async with running(refusing, topic_partitions=3) as world:
            for partition in range(3):
                world.lead(1, partition)
            await world.settle()
            ids = {world.coordinator.partition_for(name): name for name in "abcdefgh"}
            for name in ids.values():
                await world.init(transactional_id=name)
            world.clock.advance(world.coordinator.config.id_expiration_ms)
            refusing.refused = {0}
            await trio.sleep(3_590)
            log.reading = trio.Event()
            world.lead(2, 1)
            world.lead(1, 1)
            await trio.sleep(20)
            assert world.coordinator.runtime.loading() == 1
            held = [list(shard.entries) for shard in world.coordinator.runtime.loaded_shards()]
            assert held == [[ids[0]], []]

    async def test_a_transaction_that_is_ended_in_time_is_not_aborted(
        self, log: Any, autojump_clock: trio.testing.MockClock
    ) -> None:
        """The tick finds it still open, and waits for the end that is under way."""
        async with running(log) as world:
            producer = (await begin(world, "x"))["x"]
            log.gate = trio.Event()
            world.clock.advance(MINUTE_MS + 1)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(world.end, producer, commit=True))
                await trio.sleep(11)
                log.gate.set()
            await world.settle()
            assert world.status_now() is TransactionStatus.COMPLETE_COMMIT
            assert log.appends == 4  # initialized, begun, decided, over

    async def test_an_id_that_is_used_again_while_it_expires_begins_anew(
        self, log: Any, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with running(log) as world:
            former = await world.init()
            world.clock.advance(world.coordinator.config.id_expiration_ms)
            await trio.sleep(3_590)
            log.gate = trio.Event()
            await trio.sleep(20)  # the tombstone is under way
            given: list[ProducerIdAndEpoch] = []

            async def init() -> None:
                given.append(await world.init())

            async with trio.open_nursery() as nursery:
                nursery.start_soon(init)
                nursery.start_soon(init)
                await trio.sleep(1)
                log.gate.set()
            assert {each.producer_id for each in given} == {former.producer_id + 1}
            assert sorted(each.epoch for each in given) == [0, 1]
            assert len(world.coordinator.runtime.shard(0).entries) == 1


class TestOverlaps:
    async def test_who_waited_for_a_partition_that_has_come_back_sees_its_new_state(self, log: Any) -> None:
        """The first request's record is stored but not told; the second waits for it when the partition moves."""
        async with running(log) as world:
            former = await world.init()
            log.told = trio.Event()
            refused: list[type[Exception]] = []

            async def init() -> None:
                try:
                    await world.init()
                except (NotCoordinatorError, CoordinatorLoadInProgressError) as error:
                    refused.append(type(error))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(init)
                await world.settle()
                nursery.start_soon(init)
                await world.settle()
                world.lead(2)
                world.lead(1)
                log.told.set()
                await world.settle()
            assert refused == [NotCoordinatorError, CoordinatorLoadInProgressError]
            assert (await world.init()).epoch == former.epoch + 2

    async def test_a_decision_on_former_state_is_not_stored(self, log: Any) -> None:
        """It waits for a producer id while the partition moves away, comes back, and others go on."""
        async with running(log) as world:
            world.id_gate = trio.Event()
            refused: list[bool] = []

            async def init() -> None:
                try:
                    await world.init()
                except NotCoordinatorError:
                    refused.append(True)

            async with trio.open_nursery() as nursery:
                nursery.start_soon(init)
                await world.settle()
                world.lead(2)
                world.lead(1)
                await world.settle()
                world.id_gate.set()
            assert refused == [True]
            assert list(world.coordinator.list_transactions()) == []

    async def test_an_id_that_came_to_nothing_leaves_nothing(self, log: Any) -> None:
        async with running(log) as world:
            log.error = CoordinatorNotAvailableError("no room")
            for _ in range(3):
                with pytest.raises(CoordinatorNotAvailableError):
                    await world.init()
            assert world.coordinator.runtime.shard(0).entries == {}
            log.error = None
            producer = await world.init()
            with pytest.raises(ProducerFencedError):
                await world.init(ProducerIdAndEpoch(99, 0))
            with pytest.raises(InvalidProducerIdMappingError):
                await world.coordinator.end("y", producer, commit=True, client_version=0)
            assert list(world.coordinator.runtime.shard(0).entries) == ["x"]


class TestManyIds:
    """Of tens of thousands of transactional ids, most have nothing to be done for them."""

    COUNT = 20_000

    @pytest.fixture
    def shard(self) -> TransactionShard:
        shard = TransactionShard(0)
        for number in range(self.COUNT):
            transactional_id = f"id-{number}"
            shard.entries[transactional_id] = Entry(Transaction(transactional_id, number, 0, MINUTE_MS))
        return shard

    @pytest.fixture
    async def turns(self) -> AsyncIterator[list[None]]:
        """One for each turn that others had."""
        turns: list[None] = []

        async def count() -> None:
            while True:
                turns.append(None)
                await trio.lowlevel.checkpoint()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(count)
            yield turns
            nursery.cancel_scope.cancel()

    async def test_they_are_looked_after_in_steps(self, shard: TransactionShard, turns: list[None]) -> None:
        done: list[str] = []

        async def fence(_shard: TransactionShard, _entry: Entry, current: Transaction) -> None:
            await trio.lowlevel.checkpoint()
            done.append(current.transactional_id)

        self.last_of(shard, TransactionStatus.ONGOING)
        runtime: Any = SimpleNamespace()
        fencing: Any = SimpleNamespace(fence=fence)
        upkeep = Upkeep(runtime=runtime, clock=ManualClock(10 * MINUTE_MS), id_expiration_ms=MINUTE_MS, fencing=fencing)
        before = len(turns)
        assert await upkeep._look_after(shard, upkeep._is_timed_out, upkeep._abort) is None
        assert done == [f"id-{self.COUNT - 1}"]
        assert len(turns) - before > 3

    async def test_what_was_decided_is_carried_through_in_steps(
        self, shard: TransactionShard, turns: list[None], nursery: trio.Nursery
    ) -> None:
        may_be_written = trio.Event()

        async def write(*_: object, **__: object) -> None:
            await may_be_written.wait()

        last = self.last_of(shard, TransactionStatus.PREPARE_COMMIT)
        completion = Completion(
            runtime=SimpleNamespace(write=write),  # type: ignore[arg-type]
            markers=Markers(),
            clock=ManualClock(),
            epochs={},
            nursery=nursery,
        )
        before = len(turns)
        completion.resume(shard)
        with trio.fail_after(10):
            while last.completing is None:
                await trio.lowlevel.checkpoint()
        assert len(turns) - before > 3
        may_be_written.set()

    def last_of(self, shard: TransactionShard, status: TransactionStatus) -> Entry:
        last = shard.entries[f"id-{self.COUNT - 1}"]
        assert last.transaction is not None
        last.transaction = last.transaction._replace(status=status, start_ms=0)
        return last
