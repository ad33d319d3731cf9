"""What is done to a node's logs in one life: some of it waited for, some while other things go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import trio

from ottla.simulation.storage.changes import delete, move_start, restart_at, truncate
from ottla.simulation.storage.engine import StorageError, forget_tails
from ottla.simulation.storage.history import Key
from ottla.simulation.storage.reading import fetch, observe
from ottla.simulation.storage.settings import random_log_config
from ottla.simulation.storage.tracked import Topic, TrackedLog
from ottla.simulation.storage.writing import append, append_as_follower, append_many, end_transaction

if TYPE_CHECKING:
    from ottla.simulation.storage.state import SimulationState

__all__ = ["Operations"]

_MOST_UNDER_WAY = 8
_MOST_LOGS = 12


class Operations:
    """One life's work."""

    def __init__(self, simulation: SimulationState) -> None:
        self._simulation = simulation
        self._rng = simulation.rng
        self._nursery: trio.Nursery
        self._under_way = 0
        #: Topics are made while others are being deleted; else one after the other, as a broker does.
        self._overlaps_administration = self._rng.random() < 0.2
        self._administration = trio.Lock()
        self._opening: set[Key] = set()
        self._of_a_log: list[tuple[int, Callable[[TrackedLog], Awaitable[None]]]] = [
            (40, self._append),
            (4, self._append_many),
            (6, partial(end_transaction, simulation)),
            (8, self._flush),
            (3, self._truncate),
            (3, partial(move_start, simulation)),
            (1, partial(restart_at, simulation)),
            (1, self._change_role),
            (3, self._delete),
        ]
        self._of_the_node: list[tuple[int, Callable[[], Awaitable[None]]]] = [
            (15, self._let_run),
            (18, self._fetch),
            (4, self._create_topic),
            (1, self._add_partition),
            (2, self._clean),
            (1, self._flush_all),
            (1, self._roll),
        ]

    async def run(self) -> None:
        """Work for a while; in the end perhaps delete everything, perhaps give up what is under way."""
        simulation, rng = self._simulation, self._rng
        async with trio.open_nursery() as self._nursery:
            while not simulation.disk.is_dead and len(simulation.logs) < rng.randint(1, 4):
                await self._attempt("create", None, self._create_topic)
            for _ in range(rng.randint(10, 120)):
                if simulation.disk.is_dead:
                    break
                await self._step()
                for tracked in list(simulation.logs.values()):
                    observe(simulation, tracked)
                met = simulation.disk.misdirected
                simulation.check(not met, f"a closed descriptor's number was used, and met another file: {met}")
            if rng.random() < 0.3:
                simulation.note("gives up what is under way")
                self._nursery.cancel_scope.cancel()
        if rng.random() < 0.3:
            simulation.note("deletes everything")
            for tracked in list(simulation.logs.values()):
                await self._attempt(f"delete {tracked}", tracked, partial(self._delete, tracked))

    async def _step(self) -> None:
        rng = self._rng
        logs = [tracked for tracked in self._simulation.logs.values() if tracked.is_usable]
        weights = [weight for weight, _ in self._of_a_log], [weight for weight, _ in self._of_the_node]
        if logs and rng.random() < 0.6:
            tracked = rng.choice(logs)
            operation: Callable[[], Awaitable[None]] = partial(rng.choices(self._of_a_log, weights[0])[0][1], tracked)
            what = f"{_name(operation)} {tracked}"
        else:
            tracked = None
            operation = rng.choices(self._of_the_node, weights[1])[0][1]
            what = _name(operation)
        if not self._simulation.takes(what):
            return
        if self._under_way < _MOST_UNDER_WAY and rng.random() < 0.5:
            self._under_way += 1
            self._nursery.start_soon(self._beside, what, tracked, operation)
            if rng.random() < 0.5:
                await trio.lowlevel.checkpoint()
        else:
            await self._attempt(what, tracked, operation)

    async def _beside(self, what: str, tracked: TrackedLog | None, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await self._attempt(what, tracked, operation)
        finally:
            self._under_way -= 1

    async def _attempt(self, what: str, tracked: TrackedLog | None, operation: Callable[[], Awaitable[None]]) -> None:
        try:
            await operation()
        except (OSError, StorageError) as error:
            self._simulation.excuse(what, error, tracked)

    # One log.

    async def _append(self, tracked: TrackedLog) -> None:
        if tracked.is_follower:
            await append_as_follower(self._simulation, tracked)
        else:
            await append(self._simulation, tracked)

    async def _append_many(self, tracked: TrackedLog) -> None:
        if not tracked.is_follower:
            await append_many(self._simulation, tracked)

    async def _truncate(self, tracked: TrackedLog) -> None:
        """Perhaps while the log is being read in order, through what is read ahead, and written again at once."""
        rng = self._rng
        if rng.random() < 0.6:
            await truncate(self._simulation, tracked)
            return
        max_bytes = rng.choice((100, 300, 600))
        await self._read_on(tracked, max_bytes, rng.randint(2, 4))
        await truncate(self._simulation, tracked, beyond=tracked.read_end if rng.random() < 0.7 else None)
        await self._append_many(tracked)
        await self._flush(tracked)
        await self._read_on(tracked, max_bytes, 2)

    async def _read_on(self, tracked: TrackedLog, max_bytes: int, times: int) -> None:
        """Read in order, perhaps from the files."""
        if self._rng.random() < 0.5:
            forget_tails(self._simulation.manager)
        for _ in range(times):
            if tracked.is_usable:
                await fetch(self._simulation, [tracked], max_bytes=max_bytes, is_committed=False, goes_on=True)

    async def _flush(self, tracked: TrackedLog) -> None:
        if tracked.is_usable:
            moment = tracked.history.now
            await tracked.log.flush()
            tracked.history.is_written(moment, synced=True)
            self._simulation.note(f"synced {tracked}")

    async def _change_role(self, tracked: TrackedLog) -> None:
        if tracked.is_writable:
            self._simulation.epoch += 1
            tracked.is_follower = not tracked.is_follower
            self._simulation.note(f"{tracked}: follower is {tracked.is_follower}")

    async def _delete(self, tracked: TrackedLog) -> None:
        """Delete a log, or all of its topic's."""
        if not tracked.is_usable:
            return
        whole = self._rng.random() < 0.7
        if self._overlaps_administration:
            await delete(self._simulation, tracked, whole_topic=whole)
        else:
            async with self._administration:
                await delete(self._simulation, tracked, whole_topic=whole)

    # The node.

    async def _let_run(self) -> None:
        simulation = self._simulation
        for tracked in simulation.logs.values():
            # A follower hears from its leader how far it is.
            if tracked.is_usable and tracked.is_follower and self._rng.random() < 0.5:
                tracked.log.advance_high_watermark(tracked.log.flushed_end_offset)
        if self._rng.random() < 0.6:
            for _ in range(self._rng.randint(1, 10)):
                await trio.lowlevel.checkpoint()
        else:
            duration_ms = self._rng.choice((1, 20, 300, 2000))
            simulation.clock.advance(duration_ms)
            await trio.sleep(duration_ms / 1000)

    async def _fetch(self) -> None:
        logs = [tracked for tracked in self._simulation.logs.values() if tracked.is_usable]
        if logs:
            chosen = self._rng.sample(logs, min(len(logs), self._rng.choice((1, 1, 2, 4))))
            max_bytes = self._rng.choice((1, 200, 2000, 1 << 20))
            is_committed = self._rng.random() < 0.5
            for _ in range(self._rng.choice((1, 1, 4))):
                chosen = [tracked for tracked in chosen if tracked.is_usable]
                await fetch(self._simulation, chosen, max_bytes=max_bytes, is_committed=is_committed)

    async def _create_topic(self) -> None:
        simulation, rng = self._simulation, self._rng
        number = simulation.next_topic
        simulation.next_topic += 1
        config = random_log_config(rng)
        topic = Topic(
            number, f"t{rng.randrange(3)}", UUID(int=rng.getrandbits(128)), config, config.flush_messages == 1
        )
        for partition in range(rng.choice((1, 1, 2, 4))):
            if len(simulation.logs) < _MOST_LOGS:
                await self._open(topic, partition)

    async def _add_partition(self) -> None:
        """One more partition of a topic, perhaps one that was deleted before."""
        logs = [tracked for tracked in self._simulation.logs.values() if tracked.is_usable]
        if logs and len(self._simulation.logs) < _MOST_LOGS:
            await self._open(self._rng.choice(logs).topic, self._rng.randrange(5))

    async def _open(self, topic: Topic, partition: int) -> None:
        simulation = self._simulation
        if self._overlaps_administration:
            await self._open_now(topic, partition)
        else:
            async with self._administration:
                await self._open_now(topic, partition)
        simulation.note(f"opened {topic.name}#{topic.number}-{partition}")

    async def _open_now(self, topic: Topic, partition: int) -> None:
        simulation = self._simulation
        key = (topic.topic_id, partition)
        if key in simulation.logs or key in simulation.half_deleted or key in self._opening:
            return
        self._opening.add(key)
        simulation.topics[key] = topic
        simulation.deleted.discard(key)
        simulation.ever.setdefault(key, set())
        try:
            tracked = await simulation.open(key)
        finally:
            self._opening.discard(key)
        log = tracked.log
        is_empty = (log.log_start_offset, log.log_end_offset) == (0, 0)
        simulation.check(is_empty, f"{tracked}: a new log is {log}")

    async def _clean(self) -> None:
        self._simulation.note("cleans")
        await self._simulation.manager.clean()
        self._simulation.note("cleaned")

    async def _flush_all(self) -> None:
        simulation = self._simulation
        moments = [(history, history.now) for history in simulation.stores.values()]
        await simulation.manager.flush_all()
        if not simulation.may_fail:
            for history, moment in moments:
                history.is_written(moment, synced=True)

    async def _roll(self) -> None:
        self._simulation.note("time to roll")
        self._simulation.clock.advance(self._simulation.config.segment_ms)


def _name(operation: Any) -> str:
    while isinstance(operation, partial):
        operation = operation.func
    return str(operation.__name__).strip("_").replace("_", " ")
