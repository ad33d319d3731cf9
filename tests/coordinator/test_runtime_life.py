"""A partition's life, with everything that can overlap: loading, writing, moving away, coming back, the end.

Whatever happens when, every write is settled exactly once, and what a shard holds is what its log says.
"""

import logging
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.coordinator.partition import Write
from ottla.coordinator.replay import CoordinatorRecord, Producer
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.kproto.errors import DecodeError
from ottla.kproto.records import EndTxnMarker, iter_records
from ottla.runtime.stages import Stages, TurnWait
from ottla.storage.clock import ManualClock

UNREADABLE = CoordinatorRecord(b"unreadable", None)


class Journal:
    """A shard that remembers what it was told, and in which order it was loaded and unloaded."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.held: list[bytes] = []
        self.life: list[str] = []

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        if "unloaded" in self.life:
            self.life.append("replayed into though it is gone")
        if record == UNREADABLE:
            raise DecodeError("not a record of this topic")
        self.held.append(record.key)

    def replay_marker(self, marker: EndTxnMarker) -> None:
        raise NotImplementedError

    def loaded(self) -> None:
        self.life.append("loaded")

    def unloaded(self) -> None:
        self.life.append("unloaded")


class Haste(Enum):
    """How far an append gets before it has to wait for anything."""

    NONE = "none"
    STORED = "stored"  # it is in the log, and waits to be told so
    WRITTEN = "written"  # it is in the log, and that is known at the end of the turn
    COMMITTED = "committed"


class _AtTurnsEnd(TurnWait):
    @property
    def is_over(self) -> bool:
        return True


class SteppedLog:
    """A log whose appends and reads end when the test says so: `begun` appends have their place, and wait.

    `haste` says of the next append how far it gets at once.
    """

    def __init__(self, memory: Any) -> None:
        self.memory = memory
        self.turn = memory.turn
        self.begun: list[trio.Event] = []
        self.refusal: Exception | None = None
        self.heeds_cancellation = True
        self.reading = trio.Event()
        self.reading.set()
        self.read_error: Exception | None = None
        self.haste: Callable[[], Haste] = lambda: Haste.NONE

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        haste = self.haste()
        base_offset: int
        if haste is Haste.NONE:
            base_offset = yield partial(self.append, partition, records)
            return base_offset
        if self.refusal is not None:
            raise self.refusal
        base_offset = self.memory.store(partition, records)
        if haste is Haste.STORED:
            yield self._be_told
        elif haste is Haste.WRITTEN:
            yield _AtTurnsEnd()
        return base_offset

    async def append(self, partition: int, records: bytes) -> int:
        if self.refusal is not None:
            raise self.refusal
        base_offset: int = await self.memory.append(partition, records)  # from here on it is in the log
        await self._be_told()
        return base_offset

    async def _be_told(self) -> None:
        told = trio.Event()
        self.begun.append(told)
        with trio.CancelScope(shield=not self.heeds_cancellation):
            await told.wait()

    async def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        await self.reading.wait()
        if self.read_error is not None:
            raise self.read_error
        async with aclosing(self.memory.read(partition)) as read:
            async for batches in read:
                yield batches

    async def confirm(self, partitions: Iterable[int]) -> None:
        await self.memory.confirm(partitions)

    def tell(self) -> None:
        """Let every append that has begun return."""
        for told in self.begun:
            told.set()
        self.begun.clear()

    def keys(self, partition: int) -> list[bytes]:
        """What the log holds, in order."""
        return [record.key or b"" for batch in self.memory.batches[partition] for record in iter_records(batch)]


class World:
    def __init__(self, log: SteppedLog, nursery: trio.Nursery) -> None:
        self.log = log
        self.shards: list[Journal] = []
        self.runtime: CoordinatorRuntime[Journal] = CoordinatorRuntime(
            "topic", log=log, clock=ManualClock(), nursery=nursery, new_shard=self._new_shard
        )

    def _new_shard(self, partition: int) -> Journal:
        self.shards.append(Journal(partition))
        return self.shards[-1]

    def begin(self, *names: str, partition: int = 0) -> list[Write]:
        return [self.runtime.begin_write(partition, [CoordinatorRecord(name.encode(), b"v")]) for name in names]


@pytest.fixture
def stepped(log: Any) -> SteppedLog:
    return SteppedLog(log)


@asynccontextmanager
async def running(stepped: SteppedLog) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(stepped, nursery)
        world.runtime.elect(0)
        await settle()
        yield world
        nursery.cancel_scope.cancel()


async def settle() -> None:
    await trio.testing.wait_all_tasks_blocked()


def assert_refused(*writes: Write) -> None:
    for write in writes:
        assert write.is_done
        assert isinstance(write.error, NotCoordinatorError)


# The end


async def test_cancelling_everything_settles_what_is_under_way_and_what_waits(stepped: SteppedLog) -> None:
    async with running(stepped) as world:
        writes = world.begin("a")
        await settle()
        writes += world.begin("b", "c")
    assert_refused(*writes)


async def test_a_write_whose_turn_does_not_end_any_more_is_refused(stepped: SteppedLog) -> None:
    """The task that serves the sockets was cancelled with all the others, and ends no turn."""
    with stepped.turn.served():
        async with running(stepped) as world:
            writes = world.begin("a", "b")
        assert_refused(*writes)


async def test_a_shielded_writer_does_not_hold_up_the_end(stepped: SteppedLog) -> None:
    """It begins to write when all is cancelled already: nobody writes any more, so it is told at once."""
    refused = []

    async def write_late(world: World) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                try:
                    await world.runtime.write(0, [CoordinatorRecord(b"late", b"v")])
                except NotCoordinatorError as error:
                    refused.append(error)

    async with trio.open_nursery() as nursery:
        world = World(stepped, nursery)
        world.runtime.elect(0)
        nursery.start_soon(write_late, world)
        await settle()
        nursery.cancel_scope.cancel()
    assert len(refused) == 1


async def test_closing_settles_everything_at_once_and_refuses_what_comes(stepped: SteppedLog) -> None:
    async with running(stepped) as world:
        writes = world.begin("a")
        await settle()
        writes += world.begin("b")
        world.runtime.close()
        assert_refused(*writes)
        assert world.shards[0].life == ["loaded", "unloaded"]
        for _ in range(2):
            with pytest.raises(NotCoordinatorError):
                world.begin("c")
            with pytest.raises(NotCoordinatorError):
                world.runtime.shard(0)
            world.runtime.elect(0)
            world.runtime.close()
        stepped.tell()
        await settle()
        assert len(world.shards) == 1
        assert world.shards[0].held == []


async def test_closing_ends_a_load(stepped: SteppedLog) -> None:
    stepped.reading = trio.Event()
    async with running(stepped) as world:
        world.runtime.elect(1)
        with pytest.raises(CoordinatorLoadInProgressError):
            world.runtime.shard(0)
        world.runtime.close()
        stepped.reading.set()
        await settle()
        assert [shard.life for shard in world.shards] == [["unloaded"], ["unloaded"]]
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)


# Moving away and coming back


async def test_a_partition_that_moves_away_while_it_loads_is_never_loaded(stepped: SteppedLog) -> None:
    stepped.reading = trio.Event()
    async with running(stepped) as world:
        world.runtime.resign(0)
        world.runtime.elect(0)
        stepped.reading.set()
        await settle()
        former, present = world.shards
        assert former.life == ["unloaded"]
        assert present.life == ["loaded"]
        assert world.runtime.shard(0) is present


async def test_a_load_that_fails_when_its_partition_is_gone_does_not_touch_the_next_one(stepped: SteppedLog) -> None:
    stepped.reading = trio.Event()
    async with running(stepped) as world:
        stepped.read_error = NotCoordinatorError("led elsewhere")
        stepped.reading.set()  # the read fails in the turn in which the partition goes
        world.runtime.resign(0)
        await settle()
        stepped.read_error = None
        world.runtime.elect(0)
        await settle()
        assert world.runtime.failed == []
        assert world.runtime.shard(0) is world.shards[-1]

        stepped.reading = trio.Event()
        world.runtime.resign(0)
        world.runtime.elect(0)
        await settle()
        stepped.read_error = CoordinatorNotAvailableError("no such log")
        stepped.reading.set()
        world.runtime.resign(0)
        world.runtime.elect(0)
        stepped.read_error = None
        await settle()
        assert world.runtime.failed == []
        assert world.runtime.shard(0) is world.shards[-1]


async def test_a_write_that_is_under_way_when_its_partition_moves_away_is_not_replayed(stepped: SteppedLog) -> None:
    stepped.heeds_cancellation = False
    async with running(stepped) as world:
        writes = world.begin("a")
        await settle()
        writes += world.begin("b")
        world.runtime.resign(0)
        assert_refused(*writes)
        # It comes back while the old writer still waits for its append, which is in the log.
        world.runtime.elect(0)
        await settle()
        assert world.runtime.shard(0).held == [b"a"]
        (later,) = world.begin("c")
        await settle()
        stepped.tell()
        await settle()
        assert later.is_done
        assert later.error is None
        former, present = world.shards
        assert former.held == []
        assert present.held == stepped.keys(0) == [b"a", b"c"]


async def test_an_append_that_ends_in_the_turn_in_which_its_partition_goes(stepped: SteppedLog) -> None:
    async with running(stepped) as world:
        (write,) = world.begin("a")
        await settle()
        stepped.tell()
        world.runtime.resign(0)
        await settle()
        assert_refused(write)
        assert world.shards[0].life == ["loaded", "unloaded"]


async def test_what_was_decided_on_a_former_shard_is_not_written(stepped: SteppedLog) -> None:
    async with running(stepped) as world:
        former = world.runtime.shard(0)
        world.runtime.resign(0)
        world.runtime.elect(0)
        await settle()
        with pytest.raises(NotCoordinatorError):
            await world.runtime.write(0, [CoordinatorRecord(b"a", b"v")], shard=former)
        assert stepped.keys(0) == []
        write = world.runtime.begin_write(0, [CoordinatorRecord(b"b", b"v")], shard=world.runtime.shard(0))
        await settle()
        stepped.tell()
        await write.wait()
        assert stepped.keys(0) == [b"b"]


async def test_a_request_that_is_cancelled_while_its_write_waits_is_written_all_the_same(stepped: SteppedLog) -> None:
    async with running(stepped) as world:
        world.begin("a")
        await settle()
        async with trio.open_nursery() as request:
            request.start_soon(world.runtime.write, 0, [CoordinatorRecord(b"b", b"v")])
            await settle()
            request.cancel_scope.cancel()
        stepped.tell()
        await settle()
        stepped.tell()
        await settle()
        assert world.runtime.shard(0).held == stepped.keys(0) == [b"a", b"b"]


# Writes of one turn


async def test_a_write_is_committed_at_the_end_of_its_turn(stepped: SteppedLog) -> None:
    stepped.haste = lambda: Haste.COMMITTED
    async with running(stepped) as world:
        for name in ("a", "b"):
            (write,) = world.begin(name)
            assert not write.is_done
            stepped.turn.end()
            assert write.is_done
            assert write.error is None
        assert world.runtime.shard(0).held == stepped.keys(0) == [b"a", b"b"]
        stepped.refusal = CoordinatorNotAvailableError("no room")
        (refused,) = world.begin("c")
        stepped.turn.end()
        assert refused.error is stepped.refusal


@pytest.mark.parametrize("haste", [Haste.WRITTEN, Haste.STORED, Haste.NONE])
async def test_writes_of_one_turn_leave_as_one_batch_and_those_after_keep_their_order(
    stepped: SteppedLog, haste: Haste
) -> None:
    stepped.haste = lambda: haste
    async with running(stepped) as world:
        writes = world.begin("a", "b")
        stepped.turn.end()
        assert [write.is_done for write in writes] == [haste is Haste.WRITTEN] * 2
        writes += world.begin("c")
        await settle()
        stepped.tell()
        await settle()
        assert [write.is_done for write in writes] == [True, True, haste is Haste.WRITTEN]
        stepped.tell()
        await settle()
        assert [write.error for write in writes if write.is_done] == [None] * 3
        assert world.runtime.shard(0).held == stepped.keys(0) == [b"a", b"b", b"c"]
        assert len(stepped.memory.batches[0]) == 2


async def test_a_partition_that_goes_before_the_turn_ends_writes_nothing(stepped: SteppedLog) -> None:
    stepped.haste = lambda: Haste.WRITTEN
    async with running(stepped) as world:
        (write,) = world.begin("a")
        world.runtime.resign(0)
        assert_refused(write)
        stepped.turn.end()
        await settle()
        assert stepped.keys(0) == []


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_a_partition_goes_while_a_write_waits_to_be_told(stepped: SteppedLog, turns: int) -> None:
    """Before the task that goes on with it has run, too."""
    stepped.haste = lambda: Haste.STORED
    async with running(stepped) as world:
        (write,) = world.begin("a")
        stepped.turn.end()
        for _ in range(turns):
            await trio.lowlevel.checkpoint()
        world.runtime.resign(0)
        assert_refused(write)
        world.runtime.elect(0)
        await settle()
        stepped.tell()
        await settle()
        former, present = world.shards
        assert former.held == []
        assert present.held == stepped.keys(0) == [b"a"]


async def test_a_partition_goes_when_its_write_is_appended_and_not_written(stepped: SteppedLog) -> None:
    """It goes amid the end of a turn: by what a store that writes then tells, for one."""
    stepped.haste = lambda: Haste.WRITTEN
    async with running(stepped) as world:
        (write,) = world.begin("a")
        stepped.turn.write(lambda: world.runtime.resign(0))
        stepped.turn.end()
        assert_refused(write)
        assert world.shards[0].held == []


@pytest.mark.parametrize("haste", [Haste.NONE, Haste.STORED])
async def test_everything_is_cancelled_while_a_write_waits_to_be_told(stepped: SteppedLog, haste: Haste) -> None:
    stepped.haste = lambda: haste
    async with running(stepped) as world:
        writes = world.begin("a")
        stepped.turn.end()
        writes += world.begin("b")
    assert_refused(*writes)


async def test_a_write_that_is_begun_while_one_is_replayed_comes_after_it(
    stepped: SteppedLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    stepped.haste = lambda: Haste.COMMITTED
    async with running(stepped) as world:
        writes: list[Write] = []
        replay = Journal.replay

        def replay_and_write(
            journal: Journal, offset: int, producer: Producer | None, record: CoordinatorRecord
        ) -> None:
            replay(journal, offset, producer, record)
            if record.key == b"a":
                writes.extend(world.begin("b"))

        monkeypatch.setattr(Journal, "replay", replay_and_write)
        writes += world.begin("a")
        await settle()
        assert [write.error for write in writes if write.is_done] == [None, None]
        assert world.runtime.shard(0).held == stepped.keys(0) == [b"a", b"b"]


async def test_a_write_that_cannot_be_replayed_at_the_end_of_its_turn_ends_its_partition(stepped: SteppedLog) -> None:
    stepped.haste = lambda: Haste.COMMITTED
    async with running(stepped) as world:
        write = world.runtime.begin_write(0, [UNREADABLE])
        stepped.turn.end()
        assert_refused(write)
        assert world.runtime.failed == [0]
        assert world.shards[0].life == ["loaded", "unloaded"]


# Records that cannot be read


async def test_a_partition_that_is_led_elsewhere_before_it_is_loaded_is_no_error(
    stepped: SteppedLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replicas know that it was moved away, and the coordinators are about to hear of that."""

    async def read(partition: int) -> AsyncGenerator[memoryview, None]:
        raise NotCoordinatorError(f"node 1 does not lead topic-{partition}")
        yield memoryview(b"")

    async with running(stepped) as world:
        monkeypatch.setattr(stepped, "read", read)
        world.runtime.resign(0)
        world.runtime.elect(0)
        await settle()
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)
        assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_a_partition_that_cannot_be_loaded_fails_alone(
    stepped: SteppedLog, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(stepped) as world:
        world.runtime.begin_write(0, [CoordinatorRecord(b"a", b"v"), UNREADABLE])
        (good,) = world.begin("a")
        await settle()
        world.runtime.resign(0)
        world.runtime.elect(0)
        world.runtime.elect(1)
        await settle()
        assert world.runtime.failed == [0]
        assert world.runtime.loading() == 0
        with pytest.raises(NotCoordinatorError):
            world.runtime.shard(0)
        with pytest.raises(NotCoordinatorError):
            world.begin("b")
        assert [shard.partition for shard in world.runtime.shards()] == [1]
        assert_refused(good)
        (line,) = [record for record in caplog.records if record.levelname == "ERROR"]
        assert line.getMessage() == (
            "topic partition 0 cannot be loaded, what it keeps is unavailable: "
            "the record at offset 1 cannot be read: not a record of this topic"
        )
        assert line.exc_info is None

        # Led anew, its log may be another one.
        stepped.memory.batches[0].clear()
        world.runtime.elect(0)
        await settle()
        assert world.runtime.failed == []
        assert world.runtime.shard(0).held == []


async def test_a_shard_that_cannot_follow_its_log_is_given_up(
    stepped: SteppedLog, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(stepped) as world:
        world.runtime.elect(1)
        unreadable = world.runtime.begin_write(0, [UNREADABLE])
        await settle()
        (waiting,) = world.begin("a")
        stepped.tell()
        await settle()
        assert_refused(unreadable, waiting)
        assert world.runtime.failed == [0]
        assert world.shards[0].life == ["loaded", "unloaded"]
        assert "topic partition 0 cannot follow its log" in caplog.text
        (other,) = world.begin("b", partition=1)
        await settle()
        stepped.tell()
        await settle()
        assert other.is_done
        assert other.error is None
        world.runtime.resign(0)
        assert world.shards[0].life == ["loaded", "unloaded"]


# Everything at once


class Written(NamedTuple):
    write: Write
    partition: int
    key: bytes
    shard: Journal


class History:
    """Steps of every kind over two partitions, in an order by seed."""

    def __init__(self, world: World, stepped: SteppedLog, nursery: trio.Nursery, seed: int) -> None:
        self.world = world
        self.runtime = world.runtime
        self.log = stepped
        self.nursery = nursery
        self.rng = random.Random(seed)
        self.written: list[Written] = []
        stepped.heeds_cancellation = self.rng.random() < 0.5
        stepped.haste = lambda: self.rng.choice(list(Haste))
        self._weights = {
            self.elect: 4.0,
            self.resign: 2.0,
            self.write: 10.0,
            self.tell: 6.0,
            self.refuse: 1.0,
            self.hold_reads: 1.0,
            self.read: 2.0,
            self.rest: 8.0,
            self.close: 0.1,
            self.cancel: 0.1,
        }

    async def run(self, steps: int) -> None:
        for _ in range(steps):
            (step,) = self.rng.choices(list(self._weights), list(self._weights.values()))
            await step()

    async def elect(self) -> None:
        self.runtime.elect(self.rng.randrange(2))

    async def resign(self) -> None:
        self.runtime.resign(self.rng.randrange(2))

    async def write(self) -> None:
        partition, key = self.rng.randrange(2), b"%d" % len(self.written)
        try:
            shard = self.runtime.shard(partition)
            if self.rng.random() < 0.3:
                write = self.runtime.begin_planned_write(partition, partial(self._plan, key, shard), shard=shard)
            else:
                write = self.runtime.begin_write(partition, [CoordinatorRecord(key, b"v")], shard=shard)
        except (NotCoordinatorError, CoordinatorLoadInProgressError):
            return
        self.written.append(Written(write, partition, key, shard))

    def _plan(self, key: bytes, shard: Journal) -> list[CoordinatorRecord]:
        assert self.runtime.shard(shard.partition) is shard
        assert shard.held == self.log.keys(shard.partition), "all that came before is replayed"
        if self.rng.random() < 0.2:
            raise CoordinatorNotAvailableError("not now")
        return [CoordinatorRecord(key, b"v")]

    async def tell(self) -> None:
        self.log.tell()

    async def refuse(self) -> None:
        self.log.refusal = None if self.log.refusal else CoordinatorNotAvailableError("no room")

    async def hold_reads(self) -> None:
        if self.log.reading.is_set():
            self.log.reading = trio.Event()

    async def read(self) -> None:
        self.log.reading.set()
        self.log.read_error = self.rng.choice([None, None, CoordinatorNotAvailableError("damaged")])

    async def rest(self) -> None:
        for _ in range(self.rng.randrange(4)):
            await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        self.runtime.close()

    async def cancel(self) -> None:
        self.nursery.cancel_scope.cancel()
        await trio.lowlevel.checkpoint()

    async def come_to_rest(self) -> None:
        """What is left to happen happens; then a shard holds just what its log does."""
        self.log.reading.set()
        self.log.read_error = None
        for _ in range(100):  # more than enough: each time all that waits for the log goes on
            await settle()
            self.log.tell()
        for shard in self.runtime.loaded_shards():
            assert shard.held == self.log.keys(shard.partition)

    def check(self) -> None:
        for write, partition, key, shard in self.written:
            assert write.is_done
            if write.error is None:
                assert key in self.log.keys(partition)
                assert key in shard.held
        for shard in self.world.shards:
            assert shard.life in (["loaded", "unloaded"], ["unloaded"])
            # Never ahead of the log, and in its order.
            logged = iter(self.log.keys(shard.partition))
            assert all(key in logged for key in shard.held)


@pytest.mark.parametrize("seed", range(300))
async def test_any_order_of_steps_keeps_what_is_promised(stepped: SteppedLog, seed: int) -> None:
    async with trio.open_nursery() as nursery:
        history = History(World(stepped, nursery), stepped, nursery, seed)
        try:
            await history.run(60)
            await history.come_to_rest()
        finally:
            history.runtime.close()
            stepped.tell()
        nursery.cancel_scope.cancel()
    history.check()
