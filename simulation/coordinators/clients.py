"""Clients that do what real clients do, in the seed's order, and now and then give up in the middle of it."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.replay import Producer
from ottla.simulation.coordinators.history import Commit, Key, Removal
from ottla.simulation.coordinators.world import GROUPS, TOPIC_PARTITIONS, TOPICS, World

_ADDRESS = re.compile(" object at 0x[0-9a-f]+")


class Client:
    """Repeats its steps until it is cancelled."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.rng = world.rng
        self.name = name

    async def run(self, pause_s: float) -> None:
        while True:
            await trio.sleep(self.rng.uniform(0, pause_s))
            with trio.CancelScope() as patience:
                if self.rng.random() < 0.1:  # its connection closes while it waits for an answer
                    patience.deadline = trio.current_time() + self.rng.uniform(0, 0.1)
                if self.world.takes(self.name):
                    await self.step()

    async def step(self) -> None:
        raise NotImplementedError

    async def ask(self, what: str, request: Callable[[], Awaitable[Any]]) -> Any:
        """Send a request. Raises the error that the coordinator refuses it with."""
        self.world.note(f"{self.name} {what} …")
        try:
            answer = await request()
        except CoordinatorError as error:
            self.world.note(f"{self.name} {what}: {type(error).__name__} {error}")
            raise
        except trio.Cancelled:
            self.world.note(f"{self.name} {what}: gave up")
            raise
        self.world.done[type(self).__name__ + " " + what.split()[0]] += 1
        self.world.note(f"{self.name} {what}: {_ADDRESS.sub('', str(answer))}")
        return answer

    @asynccontextmanager
    async def recorded(self, operations: Sequence[Commit | Removal]) -> AsyncIterator[None]:
        """Tell the history how an operation ended: refused for certain, done, or nobody knows."""
        try:
            yield
        except (NotCoordinatorError, CoordinatorNotAvailableError):
            raise
        except CoordinatorError:
            self.world.history.end(operations, acknowledged=False)
            raise
        self.world.history.end(operations, acknowledged=True)

    async def commit(self, group: str, **member: Any) -> None:
        """Commit a new offset of one or two partitions, as OffsetCommit does: under the id that the topic has now."""
        keys = self.rng.sample(self.world.all_keys(group), self.rng.randint(1, 2))
        commits, offsets = self.new_offsets(keys)
        if not offsets:
            return
        async with self.recorded(commits):
            refused = await self.ask(
                f"commit {group} {[str(each) for each in commits]}",
                lambda: self.world.coordinator.offsets.commit(group, offsets, **member),
            )
            assert not refused
        self.world.audit(group)

    def new_offsets(self, keys: Sequence[Key]) -> tuple[list[Commit], dict[TopicPartition, OffsetToCommit]]:
        commits: list[Commit] = []
        offsets: dict[TopicPartition, OffsetToCommit] = {}
        for key in keys:
            topic = self.world.image.topic(key.topic)
            if topic is not None:
                commit = self.world.history.begin_commit(key, topic.topic_id)
                commits.append(commit)
                offsets[TopicPartition(key.topic, key.partition)] = OffsetToCommit(
                    commit.offset, -1, "", topic_id=topic.topic_id
                )
        return commits, offsets


class SimpleClient(Client):
    """Commits without being a member, deletes offsets and groups."""

    async def step(self) -> None:
        group = self.rng.choice(GROUPS)
        chance = self.rng.random()
        with suppress(CoordinatorError):
            if chance < 0.6:
                await self.commit(group)
            elif chance < 0.75:
                await self.delete_offsets(group)
            else:
                await self.delete_group(group)

    async def delete_group(self, group: str) -> None:
        removal = self.world.history.begin_removal(self.world.all_keys(group))
        async with self.recorded([removal]):
            await self.ask(f"delete {group}", lambda: self.world.coordinator.delete_group(group))
        self.world.audit(group)

    async def delete_offsets(self, group: str) -> None:
        topic = self.rng.choice(TOPICS)
        partitions = [TopicPartition(topic, index) for index in range(TOPIC_PARTITIONS)]
        removal = self.world.history.begin_removal([Key(group, *partition) for partition in partitions])
        async with self.recorded([removal]):
            refused = await self.ask(
                f"delete-offsets {group} {topic}", lambda: self.world.coordinator.offsets.delete(group, partitions)
            )
            if refused:
                assert len(refused) == len(partitions)
                raise next(iter(refused.values()))
        self.world.audit(group)


class TransactionalClient(Client):
    """Commits offsets in transactions. A transaction that it gives up is ended when all is over."""

    async def step(self) -> None:
        producer_id = self.world.begin_transaction()
        partitions = self.world.open_transactions[producer_id]
        commits: list[Commit] = []
        is_committed = self.rng.random() < 0.7
        try:
            for _ in range(self.rng.randint(1, 3)):
                group = self.rng.choice(GROUPS)
                partitions.add(self.world.partition_of(group))
                commits += await self._commit(group, Producer(producer_id, 0))
                await trio.sleep(self.rng.choice((0, 0, 0.3, 3)))
        except CoordinatorError:
            is_committed = False
        self.world.note(f"{self.name} ends {producer_id}: {'commit' if is_committed else 'abort'}")
        while not await self.world.end_transaction(producer_id, commit=is_committed):  # noqa: ASYNC110
            await trio.sleep(0.1)
        self.world.history.end(commits, acknowledged=is_committed)
        self.world.note(f"{self.name} ended {producer_id}")
        self.world.audit()

    async def _commit(self, group: str, producer: Producer) -> list[Commit]:
        """TxnOffsetCommit looks at the topics first and then makes sure that the partition takes part."""
        commits, offsets = self.new_offsets(self.rng.sample(self.world.all_keys(group), self.rng.randint(1, 2)))
        # The coordinator of the transaction may be long in answering: topics are deleted meanwhile.
        await trio.sleep(self.rng.choice((0, 0.02, 0.5)))
        if offsets:
            refused = await self.ask(
                f"txn-commit {group} {producer.producer_id} {[str(each) for each in commits]}",
                lambda: self.world.coordinator.offsets.commit(group, offsets, producer=producer),
            )
            gone = [each for each in commits if TopicPartition(each.key.topic, each.key.partition) in refused]
            self.world.history.end(gone, acknowledged=False)
            return [each for each in commits if each not in gone]
        return []


class Administrator(Client):
    """Deletes topics and makes them again, often at once, and commits for what it made."""

    async def step(self) -> None:
        name = self.rng.choice(TOPICS)
        if self.world.image.topic(name) is None:
            self.world.create_topic(name)
            return
        self.world.delete_topic(name)
        await trio.sleep(self.rng.choice((0, 0, 0.01, 1)))
        if self.world.image.topic(name) is None:
            self.world.create_topic(name)
        with suppress(CoordinatorError):
            await self.commit(self.rng.choice(GROUPS))
        self.world.audit()


class Operator(Client):
    """Moves partitions away and back, makes the log refuse, sets the clock forward."""

    async def step(self) -> None:
        partition = self.rng.randrange(2)
        match self.rng.randrange(4):
            case 0:
                self.world.lead(partition, here=False)
                await trio.sleep(self.rng.choice((0, 0.05, 0.5)))
                self.world.lead(partition, here=True)
            case 1:
                self.world.note(f"partition {partition} refuses")
                self.world.log.refusing.add(partition)
                await trio.sleep(self.rng.choice((0.02, 0.5)))
                self.world.log.refusing.discard(partition)
            case 2:
                self.world.note("the clock is set forward")
                self.world.clock.set_forward(4_000_000)
            case _:
                self.world.audit()
