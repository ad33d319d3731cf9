"""One seed: a node's storage through several lives."""

from __future__ import annotations

import errno
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence

import trio

from ottla.simulation.harness import scheduling
from ottla.simulation.harness.outcome import Outcome, SimulationError
from ottla.simulation.storage.cramped import cramped
from ottla.simulation.storage.damaged import flip_a_bit, read_what_is_left
from ottla.simulation.storage.ending import check_files, check_nothing_held
from ottla.simulation.storage.engine import (
    Fault,
    FaultKind,
    LogManager,
    PartitionLog,
    StorageError,
    repeatable,
)
from ottla.simulation.storage.memory import ReceivedMemory
from ottla.simulation.storage.operations import Operations
from ottla.simulation.storage.reading import note_last_start
from ottla.simulation.storage.restart import compare_after_start
from ottla.simulation.storage.state import SimulationState

__all__ = ["FOLDER", "Simulation", "simulate"]

FOLDER = "/data"
_NODE_FOLDER = f"{FOLDER}/node-0"
_LIMIT_S = 3_000.0


def simulate(seed: int, *, only: Collection[int] | None = None) -> Outcome:
    """Run one seed. `only` has the numbers of the operations that are done; without it all are."""
    simulation = Simulation(seed, only)
    finding = ""
    try:
        simulation.run()
    except SimulationError as error:
        finding = error.finding
    counts = {"operations": len(simulation.parts)}
    return Outcome(seed, finding, simulation.trace, simulation.digest, simulation.parts, counts)


class Simulation(SimulationState):
    """Leads a node's storage through its lives."""

    # Lives.

    def _hung(self, error: scheduling.HangError) -> None:
        """The process does not end by itself."""
        if self.failure is None:
            self.failure = SimulationError(self.seed, f"the process ended: {error!r}", self.trace)
        self.disk.crash()

    def run(self) -> str:
        """Run all lives; returns the digest. SimulationError if the engine does what it must not."""
        watch = _Watch(self)
        logger = logging.getLogger("ottla.storage")
        logger.addHandler(watch)
        try:
            with repeatable(self.workers.new_lock), cramped(self.rng):
                for _ in range(self.rng.randint(2, 4)):
                    self._live(self._life)
                if self.rng.random() < 0.2 and flip_a_bit(self, FOLDER):
                    self.is_damaged = True
                    self._live(self._damaged_life)
        finally:
            logger.removeHandler(watch)
        return self.digest

    def _live(self, life: Callable[[], Awaitable[None]]) -> None:
        """One process, and how it ends."""
        self.faults = []
        self.memory = ReceivedMemory()
        self.is_watched = False
        clean = False
        try:
            scheduling.run(life, self.rng.getrandbits(32), limit_s=_LIMIT_S, hung=self._hung)
            clean = not self.disk.is_dead
        except BaseException as error:
            if self.failure is not None:
                raise self.failure from None
            if not isinstance(error, Exception | BaseExceptionGroup) or isinstance(error, KeyboardInterrupt):
                raise
            if not self.may_fail or not _is_of_storage(error):
                raise SimulationError(self.seed, f"the process ended: {_first(error)!r}", self.trace) from error
            self.note(f"ended by {_first(error)!r}")
        for tracked in self.logs.values():
            note_last_start(self, tracked)
        if self.failure is not None:
            raise self.failure
        if clean and not self.may_fail:
            for history in self.stores.values():
                history.is_written(history.now, synced=True)
            self.disk.faults.clear()
            check_files(self, _NODE_FOLDER)
        self.disk.faults.clear()
        if self.rng.random() < 0.4:
            self.note("power cut")
            self.disk = self.disk.power_loss(flips=self._flips)
            for history in self.stores.values():
                history.lose_power()
        else:
            self.note("stopped" if clean else "killed")
            self.disk = self.disk.crash()

    async def _damaged_life(self) -> None:
        self.manager = LogManager(
            self.disk, FOLDER, self.config, self.clock, listener=self, run_blocking=self.workers.run
        )
        async with self.manager.run():
            await self._open()
            await read_what_is_left(self)

    async def _life(self) -> None:
        """It starts, is compared with the model, and works."""
        self.manager = LogManager(
            self.disk, FOLDER, self.config, self.clock, listener=self, run_blocking=self.workers.run
        )
        async with self.manager.run():
            await self._open()
            await compare_after_start(self)
            self._arm_faults()
            self.is_watched = True
            self.note("works")
            operations = Operations(self)
            await operations.run()
            await check_nothing_held(self)
            if self.rng.random() < 0.35:
                self.disk.crash()
        self.finished_s += trio.current_time()

    async def _open(self) -> None:
        """Open every log that may hold anything; logs that were certainly deleted are forgotten."""
        self.logs = {}
        left = {key for history in self.stores.values() for key in history.keys_left()}
        self.topics = {key: topic for key, topic in self.topics.items() if key in left or key not in self.deleted}
        self.deleted = set()
        await self.manager.open_ahead(
            (topic_id, self.topics[topic_id, partition].name, partition) for topic_id, partition in self.topics
        )
        for key in list(self.topics):
            tracked = await self.open(key)
            if key in self.half_deleted:
                # In every life, as a power cut may take the deletion back.
                del self.logs[key]
                tracked.history.forget(key)
                await self.manager.delete_logs(key[0], [key[1]])

    def _arm_faults(self) -> None:
        """Perhaps something will fail, or the process die in the middle of an operation."""
        choice = self.rng.random()
        after = self.rng.randint(1, 300)
        if choice < 0.3:
            self._arm(Fault(FaultKind.CRASH, after=after))
        elif choice < 0.45:
            operation = self.rng.choice(("pwritev", "fdatasync", "create", "rename", "preadv", "unlink"))
            code = self.rng.choice((errno.EIO, errno.ENOSPC))
            self._arm(Fault(FaultKind.ERROR, frozenset({operation}), errno=code, after=after % 20))

    def _arm(self, fault: Fault) -> None:
        self.faults.append(self.disk.faults.add(fault))

    # What the engine reports.

    def on_flushed(self, logs: Sequence[PartitionLog]) -> None:
        """The leader of a partition without other replicas moves its high watermark; one that truncates its log is not
        a leader.
        """
        for log in logs:
            tracked = self.logs.get((log.topic_id, log.partition))
            if tracked is not None and tracked.log is log and not (tracked.is_follower or tracked.is_held):
                log.advance_high_watermark(log.flushed_end_offset)

    def on_stalled(self, logs: Sequence[PartitionLog]) -> None:
        """The disk is full for a store."""
        self.note(f"a store of {len(logs)} logs has no room")

    def on_damaged(self, logs: Sequence[PartitionLog]) -> None:
        """Damage was found."""
        self.note(f"a store of {len(logs)} logs is damaged")

    def on_offline(self, logs: Sequence[PartitionLog], error: Exception) -> None:
        """A store has stopped."""
        self.note(f"a store of {len(logs)} logs is offline: {error}")
        if not self.may_fail and self.failure is None:
            message = f"a store of {len(logs)} logs went offline, and nothing was wrong with the disk: {error!r}"
            self.failure = SimulationError(self.seed, message, self.trace)
            self.disk.crash()


class _Watch(logging.Handler):
    """The engine complains of nothing as long as nothing is wrong with the disk."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.ERROR)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        simulation = self._simulation
        simulation.note(f"log {record.levelname}: {record.getMessage()}")
        if simulation.is_watched and not simulation.may_fail and simulation.failure is None:
            message = f"{record.levelname}: {record.getMessage()}"
            simulation.failure = SimulationError(simulation.seed, message, simulation.trace)
            simulation.disk.crash()


def _is_of_storage(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_of_storage, error.exceptions))
    return isinstance(error, OSError | StorageError)


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error
