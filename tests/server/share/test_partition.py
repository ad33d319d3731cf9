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

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError, FencedShareLeaderError
from ottla.coordinator.share.state import DeliveryState, SharePartitionKey, ShareState, StateBatch, StateChange
from ottla.replica.errors import NotLeaderError
from ottla.runtime.deadlines import Deadlines
from ottla.runtime.time_slice import TimeSlice
from ottla.server.share.config import ShareConfig, duration_ms
from ottla.server.share.dead_letters import Origin, QueueCounters
from ottla.server.share.errors import InvalidRecordStateError
from ottla.server.share.in_flight import ACCEPT, GAP, REJECT, RELEASE
from ottla.server.share.partition import Life, SharePartition, ShareServices
from ottla.server.share.records import Acknowledgement, Acquired, Cause, Dead, Span
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


class Queue:
    """A dead-letter queue: what is written, once its gate is open, so many offsets at a time."""

    def __init__(self) -> None:
        self.counters: dict[str, QueueCounters] = {}
        self.gate: trio.Event | None = None
        self.at_a_time = 100
        self.error: Exception | None = None
        self.letters: list[tuple[int, int, Cause]] = []

    async def write(self, share: Origin, dead: Sequence[Dead]) -> list[tuple[int, int]]:
        if self.gate is not None:
            await self.gate.wait()
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        first = dead[0]
        last = min(first.last, first.first + self.at_a_time - 1)
        self.letters += [(offset, first.delivery_count, first.cause) for offset in range(first.first, last + 1)]
        return [(first.first, last)]


class World:
    def __init__(self, nursery: trio.Nursery, persister: SlowPersister | None = None) -> None:
        self.nursery = nursery
        self.persister = persister or SlowPersister()
        self.config = ShareConfig(lock_duration_ms=LOCK_SECONDS * 1000, max_delivery_count=3)
        partition: Any = SimpleNamespace(
            topic="t",
            index=0,
            is_leader=True,
            term=1,
            leader_epoch=4,
            log=SimpleNamespace(high_watermark=100),
            log_start_offset=0,
            knows_log_start=True,
        )
        self.partition = partition
        self.ended: list[SharePartition] = []
        self.ended_letters: list[SharePartition] = []
        self.queue = Queue()
        services = ShareServices(self, self.persister, self.queue, ManualClock(1_000), Deadlines(), nursery)
        self.share = SharePartition(KEY, partition, services, self)

    def of_share_group(self, group_id: str) -> ShareConfig:
        return self.config

    def share_changed(self, share: SharePartition) -> None:
        """No fetch waits."""

    def share_ended(self, share: SharePartition) -> None:
        self.ended.append(share)

    def dead_letters_ended(self, share: SharePartition) -> None:
        self.ended_letters.append(share)

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


@pytest.mark.parametrize("batch", [StateBatch(5, 4, 0, 1), StateBatch(0, 4, 5, 1)], ids=["backwards", "unknown state"])
async def test_state_that_makes_no_sense_ends_the_share_partition_alone(
    batch: StateBatch, autojump_clock: MockClock
) -> None:
    """A writer of state may write anything."""
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
    monkeypatch.setattr(TimeSlice, "is_over", True)
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


class TestDeadLetters:
    """Groups with a dead-letter queue (KIP-1191)."""

    @pytest.fixture
    async def world(self, world: World) -> World:
        world.config = world.config._replace(dead_letter_topic="dlq.q")
        return world

    async def done(self, world: World) -> None:
        await trio.testing.wait_all_tasks_blocked()
        assert world.ended_letters
        assert not world.share.is_writing_dead_letters

    def stored(self, world: World) -> list[tuple[int, int, int]]:
        """The states that were stored, one after the other."""
        return [(b.first_offset, b.last_offset, b.delivery_state) for w in world.persister.writes for b in w.batches]

    async def test_rejected_records_are_written_before_they_are_over(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.acquire("a")
        await world.share.acknowledge("a", [Acknowledgement(0, 9, [REJECT] * 3 + [ACCEPT] * 7)])
        await trio.testing.wait_all_tasks_blocked()
        assert self.stored(world) == [(0, 2, DeliveryState.ARCHIVING), (3, 9, DeliveryState.ACKNOWLEDGED)]
        assert world.share.in_flight.start_offset == 0
        assert world.share.in_flight.delivery_complete_count() == 7
        assert world.share.in_flight.next_fetch_offset() == 10  # nobody gets them
        with pytest.raises(InvalidRecordStateError):
            await world.share.acknowledge("a", accept(0, 2))
        world.queue.gate.set()
        await self.done(world)
        assert world.queue.letters == [(offset, 1, Cause.REJECTED) for offset in range(3)]
        assert self.stored(world)[2:] == [(0, 2, DeliveryState.ARCHIVED)]
        assert world.share.in_flight.start_offset == world.persister.writes[-1].start_offset == 10

    @pytest.mark.parametrize("kind", [GAP, RELEASE])
    async def test_gaps_and_what_is_given_back_are_no_letters(self, world: World, kind: int) -> None:
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, kind))
        await trio.testing.wait_all_tasks_blocked()
        assert not world.queue.letters

    async def test_without_a_queue_they_are_over_at_once(self, world: World) -> None:
        world.config = world.config._replace(dead_letter_topic="")
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, REJECT))
        assert self.stored(world) == [(0, 9, DeliveryState.ARCHIVED)]
        assert not world.queue.letters

    async def test_what_was_delivered_too_often(self, world: World, autojump_clock: MockClock) -> None:
        for _ in range(2):
            world.acquire("a", 1)
            await trio.sleep(LOCK_SECONDS + 1)
        world.acquire("a", 1)
        await world.share.release("a")
        await self.done(world)
        assert world.queue.letters == [(0, 3, Cause.DELIVERED_TOO_OFTEN)]
        for _ in range(3):
            world.acquire("a", 1)
            await trio.sleep(LOCK_SECONDS + 1)
        await self.done(world)
        assert world.queue.letters[1:] == [(1, 3, Cause.DELIVERED_TOO_OFTEN)]
        assert world.share.in_flight.start_offset == 2

    async def test_what_is_rejected_with_its_last_delivery(self, world: World, autojump_clock: MockClock) -> None:
        for _ in range(2):
            world.acquire("a", 1)
            await world.share.release("a")
        world.acquire("a", 1)
        await world.share.acknowledge("a", accept(0, 0, REJECT))
        await self.done(world)
        assert world.queue.letters == [(0, 3, Cause.REJECTED)]

    async def test_more_dies_while_letters_are_written(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.queue.at_a_time = 2
        world.acquire("a")
        await world.share.acknowledge("a", accept(4, 8, REJECT))
        await trio.testing.wait_all_tasks_blocked()
        await world.share.acknowledge("a", accept(0, 1, REJECT))
        world.queue.gate.set()
        await self.done(world)
        assert sorted(world.queue.letters) == [(offset, 1, Cause.REJECTED) for offset in (0, 1, 4, 5, 6, 7, 8)]
        assert len(world.ended_letters) == 1
        await world.share.acknowledge("a", [Acknowledgement(2, 3, [ACCEPT]), Acknowledgement(9, 9, [ACCEPT])])
        assert world.share.in_flight.start_offset == 10

    async def test_the_next_leader_goes_on(self, world: World) -> None:
        """It does not know why, but how often a record was delivered."""
        world.persister.state = world.persister.state._replace(
            start_offset=0,
            batches=(
                StateBatch(0, 1, DeliveryState.ARCHIVING, 1),
                StateBatch(2, 4, DeliveryState.ACKNOWLEDGED, 1),
                StateBatch(5, 5, DeliveryState.ARCHIVING, 3),
            ),
        )
        other = World(world.nursery, persister=world.persister)
        other.config = world.config
        await other.share.load()
        await self.done(other)
        assert other.queue.letters == [
            (0, 1, Cause.REJECTED),
            (1, 1, Cause.REJECTED),
            (5, 3, Cause.DELIVERED_TOO_OFTEN),
        ]
        assert other.share.in_flight.start_offset == 6

    async def test_a_leader_that_is_fenced_stops(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, REJECT))
        await trio.testing.wait_all_tasks_blocked()
        world.persister.refusal = FencedShareLeaderError("another leads")
        world.queue.gate.set()
        await self.done(world)
        assert world.share.life is Life.ENDED
        assert world.ended == [world.share]

    async def test_what_could_not_be_stored_at_the_end_is_over_all_the_same(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, REJECT))
        await trio.testing.wait_all_tasks_blocked()
        world.persister.refusal = CoordinatorNotAvailableError("not now")
        world.queue.gate.set()
        await self.done(world)
        world.persister.refusal = None
        assert world.share.in_flight.start_offset == 10
        world.acquire("a")
        await world.share.acknowledge("a", accept(10, 19))
        assert world.persister.writes[-1].start_offset == 10
        assert len(world.queue.letters) == 10

    async def test_what_ends_while_a_letter_waits_stores_nothing(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, REJECT))
        await trio.testing.wait_all_tasks_blocked()
        world.share.end(NotLeaderError("gone"))
        written = len(world.persister.writes)
        world.queue.gate.set()
        await self.done(world)
        assert len(world.persister.writes) == written

    async def test_the_log_begins_later_meanwhile(self, world: World) -> None:
        world.queue.gate = trio.Event()
        world.queue.at_a_time = 2
        world.acquire("a")
        await world.share.acknowledge("a", accept(0, 9, REJECT))
        await trio.testing.wait_all_tasks_blocked()
        world.partition.log_start_offset = 5
        assert world.share.can_acquire()
        world.queue.gate.set()
        await self.done(world)
        assert world.share.in_flight.start_offset == 10
        assert len(world.queue.letters) == len(set(world.queue.letters)) == 10
