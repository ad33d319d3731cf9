"""Producer epochs at their ends: a timeout, an end or a recovery in the last of them, and histories of all three."""

from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from ottla.coordinator.errors import ConcurrentTransactionsError, CoordinatorError, ProducerFencedError
from ottla.coordinator.replay import CoordinatorRecord
from ottla.coordinator.transaction import records
from ottla.coordinator.transaction.shard import Entry
from ottla.coordinator.transaction.state import (
    EXHAUSTED_EPOCH,
    MAX_EPOCH,
    NO_EPOCH,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)
from ottla.kproto.records import EndTxnMarker, Record, build_batch, iter_records
from ottla.metastore.errors import StoreUnavailableError
from tests.coordinator.conftest import MemoryLog
from tests.coordinator.transaction.world import MINUTE_MS, P0, V1, V2, World, running

FORMER_ID = 7
ONGOING, COMPLETE_ABORT = TransactionStatus.ONGOING, TransactionStatus.COMPLETE_ABORT


def held(epoch: int, status: TransactionStatus = ONGOING) -> Transaction:
    """The state of a transactional id that has come to this epoch."""
    partitions = frozenset({P0}) if status is ONGOING else frozenset()
    return Transaction("x", FORMER_ID, epoch, MINUTE_MS, status, partitions, start_ms=1_000_000, update_ms=1_000_000)


def put(world: World, transaction: Transaction) -> ProducerIdAndEpoch:
    world.coordinator.runtime.shard(0).entries["x"] = Entry(transaction)
    return transaction.identity


async def time_out(world: World) -> None:
    world.clock.advance(MINUTE_MS + 1)
    await trio.sleep(11)


async def init(world: World, expected: ProducerIdAndEpoch | None = None) -> ProducerIdAndEpoch:
    """As a client does it: again while the last transaction is being ended."""
    while True:
        try:
            return await world.init(expected)
        except ConcurrentTransactionsError:
            await trio.sleep(0.1)


async def test_a_timeout_in_the_last_epoch_leads_to_a_new_id(log: Any, autojump_clock: MockClock) -> None:
    async with running(log) as world:
        former = put(world, held(EXHAUSTED_EPOCH))
        await time_out(world)
        assert world.markers.written == [(P0, EndTxnMarker(FORMER_ID, MAX_EPOCH, 0, False))]
        assert await world.end(former, commit=False, version=V2) == ProducerIdAndEpoch(1_000, 0)
        assert await world.init(former) == ProducerIdAndEpoch(1_000, 0)
        assert await world.init() == ProducerIdAndEpoch(1_000, 1)


async def test_so_does_the_fence_of_an_initialization(log: Any, autojump_clock: MockClock) -> None:
    async with running(log) as world:
        put(world, held(EXHAUSTED_EPOCH))
        assert await init(world) == ProducerIdAndEpoch(1_000, 1)
        assert world.markers.written == [(P0, EndTxnMarker(FORMER_ID, MAX_EPOCH, 0, False))]


async def test_before_v2_the_last_epoch_shuts_the_producer_out(log: Any, autojump_clock: MockClock) -> None:
    async with running(log) as world:
        world.level = 1
        former = put(world, held(EXHAUSTED_EPOCH))
        await time_out(world)
        assert world.coordinator.describe("x").identity == ProducerIdAndEpoch(FORMER_ID, MAX_EPOCH)
        with pytest.raises(ProducerFencedError):
            await world.init(former)
        with pytest.raises(ProducerFencedError):
            await world.end(former, commit=False)
        assert await world.init() == ProducerIdAndEpoch(1_000, 0)


@pytest.mark.parametrize("level", [0, 1, 2])
async def test_a_start_aborts_a_transaction_in_the_very_last_epoch(
    log: Any, autojump_clock: MockClock, level: int
) -> None:
    """Earlier versions gave that epoch to producers."""
    record = records.build(held(MAX_EPOCH))
    log.store(0, bytes(build_batch([Record(key=record.key, value=record.value, timestamp_ms=1)])))
    async with running(log) as world:
        world.level = level
        await time_out(world)
        assert world.status_now() is COMPLETE_ABORT
        assert world.markers.written == [(P0, EndTxnMarker(FORMER_ID, MAX_EPOCH, 0, False))]
        assert (await world.init()).producer_id != FORMER_ID


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [V1, V2])
async def test_a_transaction_in_the_very_last_epoch_can_be_ended(
    log: Any, autojump_clock: MockClock, version: int, commit: bool
) -> None:
    async with running(log) as world:
        producer = put(world, held(MAX_EPOCH))
        await world.end(producer, commit=commit, version=version)
        await world.settle()
        assert world.markers.written == [(P0, EndTxnMarker(FORMER_ID, MAX_EPOCH, 0, commit))]
        assert (await world.init()).producer_id != FORMER_ID


async def test_the_former_id_cannot_end_what_the_new_id_has_begun(log: Any, autojump_clock: MockClock) -> None:
    async with running(log) as world:
        former = put(world, held(EXHAUSTED_EPOCH))
        following = await world.end(former, commit=True, version=V2)
        await world.settle()
        await world.add(following, version=V2)
        with pytest.raises(ProducerFencedError):
            await world.init(former)
        assert world.status_now() is ONGOING


async def test_a_timeout_that_finds_no_producer_id_holds_up_no_other(
    log: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(log) as world:
        put(world, held(EXHAUSTED_EPOCH))
        other = await world.init(transactional_id="y")
        await world.coordinator.add_partitions("y", other, [P0], V2)
        world.refuse_ids = StoreUnavailableError("the store is away")
        await time_out(world)
        assert world.status_now() is ONGOING
        assert world.coordinator.describe("y").status is COMPLETE_ABORT
        assert "does not abort what has timed out now: the store is away" in caplog.text
        world.refuse_ids = None
        await time_out(world)
        assert world.status_now() is COMPLETE_ABORT


async def test_a_timeout_that_fails_holds_up_no_other(
    log: Any, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(log) as world:
        put(world, held(EXHAUSTED_EPOCH))
        other = await world.init(transactional_id="y")
        await world.coordinator.add_partitions("y", other, [P0], V2)
        world.refuse_ids = ZeroDivisionError("a fault of ours")
        await time_out(world)
        assert world.status_now() is ONGOING
        assert world.coordinator.describe("y").status is COMPLETE_ABORT
        assert "x cannot be looked after" in caplog.text
        world.refuse_ids = None
        await time_out(world)
        assert world.status_now() is COMPLETE_ABORT


# Histories ------------------------------------------------------------------------------------------------------------

WHO = st.integers(-2, 1)  # the last identities that were given, and those that nobody was given
STEPS = st.one_of(
    st.tuples(st.just("init"), st.none() | WHO),
    st.tuples(st.just("add"), WHO, st.sampled_from([V1, V2])),
    st.tuples(st.just("end"), WHO, st.booleans(), st.sampled_from([V1, V2])),
    st.tuples(st.just("time out")),
    st.tuples(st.just("level"), st.integers(0, 2)),
    st.tuples(st.just("load again")),
)
STARTS = st.builds(
    held,
    st.sampled_from([NO_EPOCH + 1, *range(EXHAUSTED_EPOCH - 2, MAX_EPOCH + 1)]),
    st.sampled_from([ONGOING, TransactionStatus.EMPTY, COMPLETE_ABORT, TransactionStatus.COMPLETE_COMMIT]),
)


async def live(start: Transaction, steps: list[tuple[Any, ...]]) -> None:
    log = MemoryLog()
    async with running(log) as world:
        given_out = [put(world, start)]
        has_been_below_v2 = False
        for what, *details in steps:
            if what == "level":
                (world.level,) = details
                has_been_below_v2 |= world.level < V2
            elif what == "time out":
                await time_out(world)
            elif what == "load again":  # the last epoch is not in the record
                entry = world.coordinator.runtime.shard(0).entries["x"]
                assert entry.transaction is not None
                entry.transaction = entry.transaction._replace(last_epoch=NO_EPOCH)
            else:
                try:
                    answer = await ask(world, what, given_out, details)
                except CoordinatorError:
                    continue
                finally:
                    await world.settle()
                if answer not in given_out:
                    given_out.append(answer)
                    # As Kafka does: a fence before v2 takes the last epoch, and an EndTxn of v2 takes that for its own.
                    assert 0 <= answer.epoch <= (MAX_EPOCH if has_been_below_v2 else EXHAUSTED_EPOCH)
        await time_out(world)
        assert 0 <= (await init(world)).epoch <= EXHAUSTED_EPOCH
        stored = [record for batch in log.batches[0] for record in iter_records(batch)]
        for record in stored:
            _, transaction = records.parse(CoordinatorRecord(bytes(record.key or b""), bytes(record.value or b"")))
            assert transaction is not None
            assert 0 <= transaction.producer_epoch <= MAX_EPOCH
        assert all(0 <= marker.producer_epoch <= MAX_EPOCH for _, marker in world.markers.written)


async def ask(world: World, what: str, given_out: list[ProducerIdAndEpoch], details: list[Any]) -> ProducerIdAndEpoch:
    who, *rest = details
    producer = None
    if who is not None:
        producer = given_out[who] if -len(given_out) <= who < 0 else given_out[-1]
        if who == 1:
            producer = producer._replace(epoch=min(producer.epoch + 1, MAX_EPOCH))
    if what == "init":
        return await world.init(producer)
    assert producer is not None
    if what == "add":
        await world.add(producer, version=rest[0])
        return producer
    return await world.end(producer, commit=rest[0], version=rest[1])


@given(start=STARTS, steps=st.lists(STEPS, max_size=14))
def test_no_history_leads_beyond_the_last_epoch(start: Transaction, steps: list[tuple[Any, ...]]) -> None:
    trio.run(partial(live, start, steps), clock=MockClock(autojump_threshold=0))
