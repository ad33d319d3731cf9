"""What the parts of a simulation share: the node's disk and clock, its topics, and what is known to have happened."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from random import Random

from ottla.simulation.harness.outcome import SimulationError
from ottla.simulation.storage.engine import (
    Fault,
    LogClosedError,
    LogManager,
    ManualClock,
    SimulatedDisk,
    store_name,
)
from ottla.simulation.storage.history import Key, StoreHistory
from ottla.simulation.storage.memory import ReceivedMemory
from ottla.simulation.storage.model import LogModel, Seen
from ottla.simulation.storage.settings import random_storage_config
from ottla.simulation.storage.tracked import Topic, TrackedLog
from ottla.simulation.storage.workers import Workers


class SimulationState:
    """What outlives a process: the disk, the clock, the topics, the history; and what every life needs."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        self.seed = seed
        self._only = only
        self._operations = 0
        #: The operations that were done, by number.
        self.parts: dict[int, str] = {}
        self.rng = rng = Random(seed)
        self._flips = Random(f"flips {seed}")
        self.workers = Workers(rng, pause_probability=rng.choice((0.0, 0.05, 0.3)))
        self.clock = ManualClock()
        self.disk = SimulatedDisk(
            rng.getrandbits(32),
            cold_probability=rng.choice((0.0, 0.3, 1.0)),
            pause=self.workers.pause,
            iov_max=rng.choice((1, 4, 1024)),
            clock=self.clock,
        )
        self.config = random_storage_config(rng)
        if seed % 2:
            self.config = self.config._replace(scrub_bytes_per_second=50_000, scrub_interval_ms=100)
        self.memory = ReceivedMemory()
        self.trace: list[str] = []
        self.topics: dict[Key, Topic] = {}
        self.stores: dict[str, StoreHistory] = {}
        #: Logs whose deletion has ended, and those where it has not: the next life ends it.
        self.deleted: set[Key] = set()
        self.half_deleted: set[Key] = set()
        #: Logs that were ever truncated.
        self.cut: set[Key] = set()
        #: Every record that was ever in a log.
        self.ever: dict[Key, set[Seen]] = {}
        self.epoch = 0
        self.next_value = 0
        self.next_topic = 0
        self.failure: SimulationError | None = None
        self.finished_s = 0.0
        # Of the life that is under way.
        self.manager: LogManager
        self.logs: dict[Key, TrackedLog] = {}
        self.faults: list[Fault] = []
        self.is_watched = False
        self.is_damaged = False

    # The story.

    def note(self, text: str) -> None:
        self.trace.append(text)

    def takes(self, operation: str) -> bool:
        """Whether the next operation is done: all are, or those whose numbers were asked for."""
        number = self._operations
        self._operations += 1
        is_taken = self._only is None or number in self._only
        if is_taken:
            self.parts[number] = operation
        return is_taken

    @property
    def digest(self) -> str:
        """A hash of all that has happened."""
        lines = [*self.trace, f"{self.disk.operation_count} operations"]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def check(self, condition: bool, message: str) -> None:
        if not condition:
            self.fail(message)

    def fail(self, message: str) -> None:
        """The engine did what it must not do: the process dies here, and the seed has failed."""
        if self.failure is None:
            self.failure = SimulationError(self.seed, message, self.trace)
        self.disk.crash()
        raise self.failure

    def excuse(self, what: str, error: BaseException, log: TrackedLog | None = None) -> None:
        """An operation has failed: that is right only if the disk has failed, or the log was deleted meanwhile."""
        self.note(f"{what}: {type(error).__name__}: {error}")
        is_deleted = log is not None and log.is_deleting and isinstance(error, LogClosedError)
        self.check(self.may_fail or is_deleted, f"{what} failed with {error!r}, and nothing was wrong with the disk")

    @property
    def may_fail(self) -> bool:
        """Whether the process is dead, or the disk is damaged or has failed in this life."""
        return self.is_damaged or self.disk.is_dead or any(fault.struck for fault in self.faults)

    async def open(self, key: Key) -> TrackedLog:
        """Open a log of a known topic."""
        topic, partition = self.topics[key], key[1]
        log = await self.manager.open_log(topic.topic_id, topic.name, partition, topic.config)
        name = store_name(self.config, *key)
        history = self.stores.setdefault(name, StoreHistory())
        tracked = self.logs[key] = TrackedLog(topic, partition, log, history, LogModel())
        tracked.was_cut = key in self.cut
        return tracked
