"""A partition at rest is not looked at again: nothing that happens to it may be missed or answered in another way.

Two nodes live through the same: one remembers what is at rest, the other looks at everything each time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, Final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.records import iter_batches
from ottla.metadata.image import BrokerImage, MetadataDelta, TopicImage
from ottla.replica.errors import FetchSessionError, ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition, FetchResult
from ottla.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, PartitionKey
from ottla.replica.following.leader_session import Position
from ottla.replica.partition import Isolation, Partition
from ottla.runtime import time_slice
from tests.replica.conftest import Node

PARTITIONS: Final = 3
REPLICAS: Final = (0, 1, 2)
STEPS: Final = 400


class Follower:
    """A follower's side: what it has of each partition by what it was told, and its session."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.broker_epoch = 1
        self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        self.positions = [Position(0, 0, -1, 0, 0)] * PARTITIONS
        self.asked: dict[int, Position] = {}

    def lose_session(self) -> None:
        self.session_id, self.epoch = NO_SESSION, INITIAL_EPOCH
        self.asked = {}

    def take(self, index: int, result: FetchResult) -> None:
        at = self.positions[index]
        if result.error is not None:
            return
        if result.diverging_epoch is not None:
            at = at._replace(offset=result.diverging_epoch.end_offset, last_epoch=result.diverging_epoch.epoch)
        elif result.records is not None:
            *_, (_, last) = iter_batches(result.records.to_bytes())
            at = at._replace(offset=last.last_offset + 1, last_epoch=last.leader_epoch)
        self.positions[index] = at._replace(
            high_watermark=min(result.high_watermark, at.offset),
            log_start_offset=max(at.log_start_offset, min(result.log_start_offset, at.offset)),
        )


class World:
    """A node that leads, two followers, and all that was answered."""

    def __init__(self, *, remembers: bool) -> None:
        self.remembers = remembers
        self.node = Node()
        self.followers = {1: Follower(1), 2: Follower(2)}
        self.leader_epoch = [0] * PARTITIONS
        self.trace: list[object] = []
        self.rested = 0
        self.topic: TopicImage

    async def begin(self) -> None:
        await self.register(1, 1)
        self.topic = await self.node.create_topic(partitions=PARTITIONS, replicas=REPLICAS)
        sets = self.node.manager.in_sync_sets
        review = sets.review

        def traced(partition: Partition) -> None:
            self.trace.append(("review", partition.index))
            review(partition)

        sets.review = traced  # type: ignore[method-assign]

    async def register(self, node_id: int, epoch: int) -> None:
        """A follower's broker has registered, again if it had."""
        self.followers[node_id].broker_epoch = epoch
        before = self.node.image
        brokers = {it: BrokerImage(it, (), epoch=self.followers[it].broker_epoch if it else 1) for it in REPLICAS}
        self.node.image = replace(before, brokers=brokers)
        await self.node.manager.apply(MetadataDelta(before, self.node.image, changed_brokers=REPLICAS))

    async def change(self, index: int, **fields: Any) -> None:
        self.leader_epoch[index] = fields.get("leader_epoch", self.leader_epoch[index])
        self.topic = await self.node.change(self.topic, index, **fields)

    async def recreate(self) -> None:
        await self.node.delete_topic(self.topic)
        for follower in self.followers.values():
            await self.fetch(follower.node_id)  # while it does not know yet
        self.leader_epoch = [0] * PARTITIONS
        self.topic = await self.node.create_topic(partitions=PARTITIONS, replicas=REPLICAS)
        for follower in self.followers.values():
            follower.lose_session()
            follower.positions = [Position(0, 0, -1, 0, 0)] * PARTITIONS

    async def fetch(
        self, node_id: int, *, wait_ms: int = 0, is_kept: bool = True, stale: frozenset[int] = frozenset()
    ) -> None:
        """One fetch of a follower's session; of `stale` partitions it does not know the leader epoch yet."""
        follower = self.followers[node_id]
        topic_id = self.topic.topic_id
        requested: dict[PartitionKey, FetchPartition] = {}
        for index, at in enumerate(follower.positions):
            if index not in stale:
                at = follower.positions[index] = at._replace(leader_epoch=self.leader_epoch[index])
            if follower.asked.get(index) != at:
                follower.asked[index] = at
                requested[topic_id, index] = FetchPartition(
                    topic_id, index, at.offset, 1 << 20, at.leader_epoch, at.last_epoch, at.log_start_offset,
                    at.high_watermark, topic_id,
                )  # fmt: skip
        manager = self.node.manager
        try:
            context = manager.fetch_sessions.open(
                follower.session_id, follower.epoch, requested, (), uses_topic_ids=True, replica_id=node_id
            )
        except FetchSessionError as error:
            self.trace.append(type(error))
            follower.lose_session()
            return
        self.rested += sum(it.idle_result is not None for it in context.partitions)
        if not self.remembers:
            for it in context.partitions:
                it.idle_result = None
        params = FetchParams(
            max_wait_ms=wait_ms,
            min_bytes=1,
            isolation=Isolation.LOG_END,
            replica_id=node_id,
            replica_epoch=follower.broker_epoch,
        )
        began = trio.current_time()
        results = await manager.fetch(params, context.partitions)
        self.trace.append(trio.current_time() - began)
        session_id, told = context.answer(results)
        answered = [(context.partitions[position].partition, results[position]) for position in told]
        self.trace.append([self._seen(index, result) for index, result in answered])
        if is_kept:
            context.keep(results, told)
            for index, result in answered:
                follower.take(index, result)
            follower.session_id = session_id
            follower.epoch += 1
        else:  # its answer was empty, as a throttled one's is: it fetches on as if it had been one
            follower.epoch += 1
            if follower.session_id == NO_SESSION:
                follower.lose_session()
        for result in results:
            result.release()

    async def fetch_elsewhere(self, node_id: int, index: int, back: int) -> None:
        """The same process fetches a partition outside its session, from farther back: it is what it says last."""
        at = self.followers[node_id].positions[index]
        start = at.log_start_offset if back else at.log_start_offset - 1
        asked = FetchPartition(
            self.topic.topic_id, index, max(0, at.offset - back), 1 << 20, self.leader_epoch[index], -1, start
        )
        epoch = self.followers[node_id].broker_epoch
        params = FetchParams(isolation=Isolation.LOG_END, replica_id=node_id, replica_epoch=epoch)
        (result,) = await self.node.manager.fetch(params, [asked])
        self.trace.append(self._seen(index, result))
        result.release()

    def _seen(self, index: int, result: FetchResult) -> tuple[object, ...]:
        return (
            index,
            type(result.error),
            result.high_watermark,
            result.last_stable_offset,
            result.log_start_offset,
            result.diverging_epoch,
            b"" if result.records is None else result.records.to_bytes(),
        )

    def state(self) -> list[object]:
        """What the leader knows of its followers."""
        known: list[object] = []
        now_ms = self.node.clock.time_ms()
        for index in range(PARTITIONS):
            try:
                partition = self.node.partition(self.topic, index)
            except ReplicaError as error:
                known.append(type(error))
                continue
            progress = [
                [getattr(follower, name) for name in follower.__slots__] for follower in partition._followers.values()
            ]
            known.append((partition.log.high_watermark, partition.isr, partition.lagging(now_ms), progress))
        return known


class Both:
    """Both worlds, each step of which is taken in one and the other."""

    def __init__(self) -> None:
        self.worlds = (World(remembers=True), World(remembers=False))

    async def step(self, act: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        for world in self.worlds:
            await act(world)
        remembering, looking = self.worlds
        assert remembering.trace == looking.trace
        assert remembering.state() == looking.state()

    async def step_while_fetched(self, node_id: int, act: Callable[[World], Coroutine[Any, Any, None]]) -> None:
        """A fetch waits while something happens."""

        async def both(world: World) -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: world.fetch(node_id, wait_ms=500))
                await wait_all_tasks_blocked()
                await act(world)

        await self.step(both)


def append(index: int, count: int) -> Callable[[World], Coroutine[Any, Any, None]]:
    async def act(world: World) -> None:
        if world.node.partition(world.topic, index).is_leader:
            await world.node.append(world.topic, index, acks=0, count=count)

    return act


def flush(index: int) -> Callable[[World], Coroutine[Any, Any, None]]:
    async def act(world: World) -> None:
        world.node.flush(world.node.log(world.topic, index))

    return act


def move_start(index: int, *, left: int, tells: bool) -> Callable[[World], Coroutine[Any, Any, None]]:
    """The log's start moves, as by retention: so many records are left, if there are."""

    async def act(world: World) -> None:
        log = world.node.log(world.topic, index)
        await log.advance_log_start_offset(max(log.log_start_offset, log.high_watermark - left))
        if tells:
            world.node.manager.on_flushed([log])  # type: ignore[list-item]

    return act


def any_event(rng: random.Random) -> Callable[[World], Coroutine[Any, Any, None]]:
    index, other = rng.randrange(PARTITIONS), rng.choice((1, 2))
    kind = rng.choice(
        ("append", "append", "flush", "flush", "start", "isr", "leave", "lead", "epoch", "clock", "assign")
    )
    tells, seconds, left = rng.random() < 0.5, rng.choice((0, 1, 40)), rng.choice((0, 4))

    async def act(world: World) -> None:
        epoch = world.leader_epoch[index]
        match kind:
            case "append":
                await append(index, 2)(world)
            case "flush":
                await flush(index)(world)
            case "start":
                await move_start(index, left=left, tells=tells)(world)
            case "isr":
                partition = world.node.partition(world.topic, index)
                isr = tuple(it for it in REPLICAS if (it == other) != (it in partition.isr))
                await world.change(index, isr=isr)
            case "leave":
                await world.change(index, leader=other, leader_epoch=epoch + 1)
            case "lead":
                await world.change(index, leader=0, leader_epoch=epoch + 1, isr=REPLICAS)
            case "epoch":
                await world.change(index, leader_epoch=epoch + 1)
            case "clock":
                world.node.clock.advance(seconds * 1000 + 1)
            case "assign":  # removed from the replicas and back
                await world.change(index, replicas=(0, 3 - other), isr=(0, 3 - other))
                await world.change(index, replicas=REPLICAS)

    return act


async def take_step(both: Both, rng: random.Random, number: int) -> None:
    chance, node_id = rng.random(), rng.choice((1, 2))
    event = any_event(rng)
    if chance < 0.45:
        wait_ms, kept = rng.choice((0, 500)), rng.random() < 0.8
        stale: frozenset[int] = frozenset(range(PARTITIONS)) if rng.random() < 0.05 else frozenset()
        await both.step(lambda world: world.fetch(node_id, wait_ms=wait_ms, is_kept=kept, stale=stale))
    elif chance < 0.6:
        await both.step_while_fetched(node_id, event)
    elif chance < 0.88:
        await both.step(event)
    elif chance < 0.94:
        index, back = rng.randrange(PARTITIONS), rng.choice((0, 2))
        await both.step(lambda world: world.fetch_elsewhere(node_id, index, back))
    elif chance < 0.96:
        await both.step(lambda world: world.register(node_id, number))
    elif chance < 0.98:
        await both.step(World.recreate)
    else:

        async def evict(world: World) -> None:
            follower = world.followers[node_id]
            world.node.manager.fetch_sessions.open(
                follower.session_id, FINAL_EPOCH, {}, (), uses_topic_ids=True, replica_id=node_id
            )

        await both.step(evict)


@pytest.mark.parametrize("seed", range(12))
async def test_nothing_that_happens_to_a_partition_at_rest_is_missed(
    seed: int, autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where a slice of time ends, others run: in both worlds at the same places.
    monkeypatch.setattr(time_slice, "perf_counter", trio.current_time)
    rng = random.Random(seed)
    both = Both()
    await both.step(World.begin)
    for number in range(2, STEPS):
        await take_step(both, rng, number)
    assert both.worlds[0].rested, "nothing was ever at rest"
