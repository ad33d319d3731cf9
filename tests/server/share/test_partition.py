"""A share partition over a persister that answers when the test says so: what may overlap with a change on its way."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from ottla.server.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError, FencedShareLeaderError
from ottla.server.coordinator.share.state import DeliveryState, SharePartitionKey, ShareState, StateBatch, StateChange
from ottla.server.event_loop.pace import Pace
from ottla.server.replica.errors import NotLeaderError
from ottla.server.share.config import ShareConfig, duration_ms
from ottla.server.share.errors import InvalidRecordStateError
from ottla.server.share.in_flight import ACCEPT, RELEASE
from ottla.server.share.partition import Life, SharePartition
from ottla.server.share.records import Acknowledgement, Acquired, Span
from ottla.server.waiting.deadlines import Deadlines
from ottla.storage.clock import ManualClock

KEY = SharePartitionKey("g", UUID(int=1), 0)
LOCK_SECONDS = 30


class SlowPersister:
    """Keeps what is written, and holds back its answers while `gate` is not set."""

    def __init__(self) -> None:
        self.state = ShareState(1, 0, 0, 0)
        self.writes: list[StateChange] = []
        self.gate = trio.Event()
        self.gate.set()
        self.refusal: CoordinatorError | None = None

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        await self.gate.wait()
        return self.state

    async def write(self, key: SharePartitionKey, change: StateChange) -> None:
        self.writes.append(change)
        await self.gate.wait()
        if self.refusal is not None:
            raise self.refusal

    async def initialize(
        self, wanted: Sequence[Any], is_wanted: Any = None
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        raise NotImplementedError

    async def delete(self, keys: Sequence[Any]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        raise NotImplementedError

    async def read_summary(self, keys: Sequence[Any]) -> Mapping[SharePartitionKey, ShareState | CoordinatorError]:
        raise NotImplementedError


class World:
    def __init__(self, nursery: trio.Nursery) -> None:
        self.persister = SlowPersister()
        self.config = ShareConfig(lock_duration_ms=LOCK_SECONDS * 1000, max_delivery_count=3)
        partition: Any = SimpleNamespace(
            topic="t",
            index=0,
            is_leader=True,
            term=1,
            leader_epoch=4,
            log=SimpleNamespace(log_start_offset=0, high_watermark=100),
        )
        self.partition = partition
        self.ended: list[SharePartition] = []
        self.share = SharePartition(
            KEY,
            partition,
            config=lambda: self.config,
            persister=self.persister,
            clock=ManualClock(1_000),
            deadlines=Deadlines(),
            nursery=nursery,
            changed=lambda share: None,
            ended=self.ended.append,
        )

    def acquire(self, member: str, count: int = 10) -> list[Acquired]:
        assert self.share.can_acquire()
        offset = self.share.in_flight.next_fetch_offset()
        return self.share.acquire(
            member, offset, [Span(offset, offset + count - 1)], [], max_records=count, batch_size=count, is_strict=False
        )


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        await world.share.load()
        assert world.share.life is Life.ACTIVE
        yield world
        nursery.cancel_scope.cancel()


def accept(first: int, last: int, kind: int = ACCEPT) -> list[Acknowledgement]:
    return [Acknowledgement(first, last, [kind])]


async def test_a_lock_that_ends_while_an_acknowledgement_is_stored_changes_nothing(
    world: World, autojump_clock: MockClock
) -> None:
    world.acquire("a")
    world.persister.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.share.acknowledge, "a", accept(0, 9))
        await trio.sleep(LOCK_SECONDS + 1)
        assert not [run for run in world.share.in_flight.runs() if run.is_available]
        world.persister.gate.set()
    assert world.share.in_flight.start_offset == 10
    assert len(world.persister.writes) == 1


async def test_a_lock_that_ended_while_storing_failed_gives_the_record_to_others(
    world: World, autojump_clock: MockClock
) -> None:
    world.acquire("a")
    world.persister.gate = trio.Event()
    world.persister.refusal = CoordinatorNotAvailableError("not now")
    async with trio.open_nursery() as nursery:

        async def acknowledge() -> None:
            with pytest.raises(CoordinatorNotAvailableError):
                await world.share.acknowledge("a", accept(0, 9))

        nursery.start_soon(acknowledge)
        await trio.sleep(LOCK_SECONDS + 1)
        world.persister.gate.set()
    assert world.acquire("b") == [Acquired(0, 9, 2)]


async def test_what_cannot_be_stored_is_held_still(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    world.persister.refusal = CoordinatorNotAvailableError("not now")
    with pytest.raises(CoordinatorNotAvailableError):
        await world.share.acknowledge("a", accept(0, 4))
    world.persister.refusal = None
    await world.share.acknowledge("a", accept(0, 9))
    assert world.share.in_flight.start_offset == 10


async def test_a_record_is_acknowledged_once(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    world.persister.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.share.acknowledge, "a", accept(0, 9))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(InvalidRecordStateError):
            await world.share.acknowledge("a", accept(0, 9, RELEASE))
        world.persister.gate.set()


async def test_an_acknowledgement_outlives_the_request_that_brought_it(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    world.persister.gate = trio.Event()
    async with trio.open_nursery() as nursery:

        async def impatient() -> None:
            with trio.move_on_after(1):
                await world.share.acknowledge("a", accept(0, 9))

        nursery.start_soon(impatient)
        await trio.sleep(2)
        world.persister.gate.set()
    assert world.share.in_flight.start_offset == 10


async def test_a_lock_that_ends_is_stored(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    await trio.sleep(LOCK_SECONDS + 1)
    assert world.persister.writes[-1].batches == [StateBatch(0, 9, DeliveryState.AVAILABLE, 1)]
    assert world.acquire("b") == [Acquired(0, 9, 2)]
    with pytest.raises(InvalidRecordStateError):
        await world.share.acknowledge("a", accept(0, 9))


async def test_a_leader_that_was_replaced_serves_no_more(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    world.persister.refusal = FencedShareLeaderError("a later one")
    with pytest.raises(FencedShareLeaderError):
        await world.share.acknowledge("a", accept(0, 9))
    assert world.ended == [world.share]
    assert not world.share.can_acquire()
    with pytest.raises(FencedShareLeaderError):
        await world.share.acknowledge("a", accept(0, 9))


async def test_leadership_that_ends_under_a_fetch(world: World, autojump_clock: MockClock) -> None:
    """The records were read in one leader epoch: in the next they are nobody's."""
    assert world.share.can_acquire()
    world.partition.leader_epoch = 5
    with pytest.raises(NotLeaderError):
        world.share.acquire("a", 0, [Span(0, 9)], [], max_records=10, batch_size=10, is_strict=False)
    assert world.ended == [world.share]


async def test_leadership_that_ends_while_a_change_is_stored(world: World, autojump_clock: MockClock) -> None:
    world.acquire("a")
    world.persister.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.share.acknowledge, "a", accept(0, 9))
        await trio.testing.wait_all_tasks_blocked()
        world.share.end(NotLeaderError("moved"))
        world.persister.gate.set()
    assert world.ended == [world.share]
    # Nothing of it ends by itself any more.
    await trio.sleep(LOCK_SECONDS + 1)
    assert len(world.persister.writes) == 1


async def test_a_share_partition_that_ends_while_it_is_loaded(autojump_clock: MockClock) -> None:
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        world.persister.gate = trio.Event()
        nursery.start_soon(world.share.load)
        await trio.testing.wait_all_tasks_blocked()
        world.share.end(NotLeaderError("moved"))
        world.persister.gate.set()
    assert world.share.life is Life.ENDED
    assert isinstance(world.share.error, NotLeaderError)


@pytest.mark.parametrize("batch", [StateBatch(5, 4, 0, 1), StateBatch(0, 4, 3, 1)], ids=["backwards", "unknown state"])
async def test_state_that_makes_no_sense_ends_the_share_partition_alone(
    batch: StateBatch, autojump_clock: MockClock
) -> None:
    """Whoever may write state may write anything."""
    async with trio.open_nursery() as nursery:
        world = World(nursery)
        world.persister.state = ShareState(1, 0, 0, 0, (batch,))
        nursery.start_soon(world.share.load)
    assert world.ended == [world.share]
    assert isinstance(world.share.error, CoordinatorError)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("latest", None),
        ("by_duration:P1D", 86_400_000),
        ("by_duration:PT1H30M", 5_400_000),
        ("by_duration:PT0.5S", 500),
        ("by_duration:P2DT3S", 172_803_000),
    ],
)
def test_durations(text: str, milliseconds: int | None) -> None:
    assert duration_ms(text) == milliseconds


MANY = 1_000


@pytest.fixture
async def busy(world: World, monkeypatch: pytest.MonkeyPatch) -> list[Acknowledgement]:
    """A member holds many records, and says something else of each than of its neighbours, in many steps."""
    monkeypatch.setattr(Pace, "is_over", True)
    assert world.acquire("m", MANY) == [Acquired(0, MANY - 1, 1)]
    world.persister.writes.clear()
    return [Acknowledgement(0, MANY - 1, [ACCEPT, RELEASE] * (MANY // 2))]


async def test_others_run_while_many_records_are_acknowledged(
    world: World, busy: list[Acknowledgement], autojump_clock: MockClock
) -> None:
    turns = 0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.share.acknowledge, "m", busy)
        while not world.persister.writes:
            turns += 1
            # What was begun is nobody's, and the rest is held.
            assert not any(run.is_available for run in world.share.in_flight.runs())
            await trio.lowlevel.checkpoint()
    assert turns > MANY // 100
    assert world.share.in_flight.start_offset == 1
    assert world.share.in_flight.delivery_complete_count() == MANY // 2 - 1


async def test_who_gives_up_amid_an_acknowledgement_has_said_nothing(
    world: World, busy: list[Acknowledgement], autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.share.acknowledge, "m", busy)
        while not any(run.before for run in world.share.in_flight.runs()):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert world.persister.writes == []
    assert {(run.state, run.before) for run in world.share.in_flight.runs()} == {(DeliveryState.ACQUIRED, None)}
    await world.share.acknowledge("m", accept(0, MANY - 1))
    assert world.share.in_flight.start_offset == MANY


async def test_what_was_begun_is_taken_back_where_the_rest_is_not_the_members(
    world: World, busy: list[Acknowledgement], autojump_clock: MockClock
) -> None:
    async def release() -> None:
        while not any(run.before for run in world.share.in_flight.runs()):
            await trio.lowlevel.checkpoint()
        await world.share.release("m")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(release)
        with pytest.raises(InvalidRecordStateError):
            await world.share.acknowledge("m", busy)
    assert len(world.persister.writes) == 1
    # What the acknowledgement had begun is the member's still, until its lock ends; the rest was given back.
    states = {run.state for run in world.share.in_flight.runs()}
    assert states == {DeliveryState.ACQUIRED, DeliveryState.AVAILABLE}
    await trio.sleep(LOCK_SECONDS + 1)
    assert {run.state for run in world.share.in_flight.runs()} == {DeliveryState.AVAILABLE}


async def test_leadership_that_ends_amid_an_acknowledgement(
    world: World, busy: list[Acknowledgement], autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:

        async def acknowledge() -> None:
            with pytest.raises(NotLeaderError):
                await world.share.acknowledge("m", busy)

        nursery.start_soon(acknowledge)
        while not any(run.before for run in world.share.in_flight.runs()):
            await trio.lowlevel.checkpoint()
        world.share.end(NotLeaderError("it moved"))
    assert world.persister.writes == []
    assert not any(run.before for run in world.share.in_flight.runs())
