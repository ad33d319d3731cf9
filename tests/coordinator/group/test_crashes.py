"""A broker that dies in every state of a group, and between an append and its answer: nothing is lost, nobody is stuck.

The log in memory survives the coordinator; the next one over the same log is the restart.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorError,
    FencedMemberEpochError,
    IllegalGenerationError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.classic.member import JoinResult, Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerGroupState
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.runtime.stages import Stages
from ottla.storage.clock import ManualClock

STATE = PartitionState.initial((1,))
T = uuid5(NAMESPACE_DNS, "t")
T0 = TopicPartition("t", 0)


@asynccontextmanager
async def running(log: Any) -> AsyncIterator[GroupCoordinator]:
    """A broker from its start to its death: requests that wait when it ends are never answered."""
    image = MetadataImage(revision=1)
    topic = TopicImage(name="t", topic_id=T, partitions=(STATE,) * 4)
    image = MetadataImage(
        revision=1, topics=image.topics.set("t", topic), topics_by_id=image.topics_by_id.set(T, topic)
    )
    async with trio.open_nursery() as nursery:
        coordinator = GroupCoordinator(
            node_id=1,
            config=GroupConfig(offsets_topic_partitions=1, initial_rebalance_delay_ms=0),
            clock=ManualClock(1_000),
            log=log,
            topics=GroupTopics(CoordinatorMetadata(image)),
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        offsets = TopicImage(name=OFFSETS_TOPIC, topic_id=UUID(int=1), partitions=(STATE,))
        change = PartitionChange(offsets, 0, None, STATE)
        coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=[change]))
        await trio.testing.wait_all_tasks_blocked()
        yield coordinator
        nursery.cancel_scope.cancel()


async def unanswered(nursery: trio.Nursery, function: Callable[..., Awaitable[Any]], *arguments: Any) -> None:
    """Begin a request to which the broker dies before it has an answer, but perhaps a reason why not."""

    async def ask() -> None:
        with suppress(CoordinatorError):
            await function(*arguments)
            raise AssertionError("it was answered")

    nursery.start_soon(ask)
    await trio.testing.wait_all_tasks_blocked()


def join(coordinator: GroupCoordinator, member_id: str = "") -> Awaitable[JoinResult]:
    request = JoinRequest(
        member_id=member_id,
        group_instance_id=None,
        client_id="c",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[Protocol("range", b"r")],
        known_member_id_required=False,
        supports_skipping_assignment=True,
    )
    return coordinator.classic_groups.join("g", request)


async def sync(coordinator: GroupCoordinator, joined: JoinResult) -> bytes:
    plan = {member.member_id: b"for " + member.member_id.encode() for member in joined.members}
    answer = await coordinator.classic_groups.sync(
        "g",
        member_id=joined.member_id,
        group_instance_id=None,
        generation_id=joined.generation_id,
        protocol_type=None,
        protocol_name=None,
        assignments=plan,
    )
    return answer.assignment


def heartbeat(coordinator: GroupCoordinator, joined: JoinResult) -> None:
    coordinator.classic_groups.heartbeat(
        "g", member_id=joined.member_id, group_instance_id=None, generation_id=joined.generation_id
    )


async def commit(coordinator: GroupCoordinator, offset: int, joined: JoinResult | None = None) -> None:
    refused = await coordinator.offsets.commit(
        "g",
        {T0: OffsetToCommit(offset, -1, "", topic_id=T)},
        member_id="" if joined is None else joined.member_id,
        generation_id=-1 if joined is None else joined.generation_id,
    )
    assert not refused


def committed(coordinator: GroupCoordinator) -> int | None:
    found = coordinator.offsets.fetch("g", [T0], require_stable=True)[T0]
    assert not isinstance(found, Exception)
    return None if found is None else found.offset


async def stable_member(coordinator: GroupCoordinator) -> JoinResult:
    joined = await join(coordinator)
    assert await sync(coordinator, joined)
    return joined


async def works_again(coordinator: GroupCoordinator, member_id: str) -> None:
    """The member joins again, as its client does, and is alone in a stable group that takes its commits."""
    try:
        joined = await join(coordinator, member_id)
    except UnknownMemberIdError:
        joined = await join(coordinator)
    assert await sync(coordinator, joined) == b"for " + joined.member_id.encode()
    heartbeat(coordinator, joined)
    await commit(coordinator, 99, joined)
    assert committed(coordinator) == 99
    assert coordinator.classic_groups.describe("g").state is ClassicState.STABLE


async def test_it_dies_while_a_first_member_joins(log: Any, autojump_clock: Any) -> None:
    with trio.CancelScope() as dead:
        async with running(log) as coordinator, trio.open_nursery() as nursery:
            first = await join(coordinator)  # CompletingRebalance, nothing is stored
            await unanswered(nursery, join, coordinator)
            assert coordinator.classic_groups.describe("g").state is ClassicState.PREPARING_REBALANCE
            dead.cancel()
    async with running(log) as coordinator:
        with pytest.raises(UnknownMemberIdError):
            heartbeat(coordinator, first)
        await works_again(coordinator, first.member_id)


async def test_it_dies_while_a_stable_group_rebalances(log: Any, autojump_clock: Any) -> None:
    with trio.CancelScope() as dead:
        async with running(log) as coordinator, trio.open_nursery() as nursery:
            first = await stable_member(coordinator)
            await commit(coordinator, 7, first)
            await unanswered(nursery, join, coordinator)
            assert coordinator.classic_groups.describe("g").state is ClassicState.PREPARING_REBALANCE
            dead.cancel()
    async with running(log) as coordinator:
        # The rebalance is forgotten, and the generation before it goes on.
        heartbeat(coordinator, first)
        assert await sync(coordinator, first) == b"for " + first.member_id.encode()
        assert committed(coordinator) == 7
        await commit(coordinator, 8, first)
        await works_again(coordinator, first.member_id)


async def test_it_dies_while_the_leader_assigns(log: Any, autojump_clock: Any) -> None:
    async with running(log) as coordinator:
        first = await stable_member(coordinator)
        second = await join(coordinator, first.member_id)
        assert coordinator.classic_groups.describe("g").state is ClassicState.COMPLETING_REBALANCE
    async with running(log) as coordinator:
        with pytest.raises(IllegalGenerationError):
            heartbeat(coordinator, second)
        with pytest.raises(IllegalGenerationError):
            await commit(coordinator, 1, second)
        await works_again(coordinator, first.member_id)


async def test_it_dies_with_a_stable_group_whose_member_never_returns(log: Any, autojump_clock: Any) -> None:
    async with running(log) as coordinator:
        await stable_member(coordinator)
    async with running(log) as coordinator:
        await trio.sleep(11)
        assert coordinator.classic_groups.describe("g").state is ClassicState.EMPTY
        await works_again(coordinator, "")


async def test_it_dies_when_everybody_has_left(log: Any, autojump_clock: Any) -> None:
    async with running(log) as coordinator:
        first = await stable_member(coordinator)
        await commit(coordinator, 7, first)
        await coordinator.classic_groups.leave("g", first.member_id, None)
        await trio.testing.wait_all_tasks_blocked()
    async with running(log) as coordinator:
        assert coordinator.classic_groups.describe("g").state is ClassicState.EMPTY
        assert committed(coordinator) == 7
        await works_again(coordinator, first.member_id)


class Deadly:
    """A log whose append is stored, and whose answer never comes."""

    def __init__(self, log: Any) -> None:
        self._log = log
        self.turn = log.turn
        self.is_deadly = False

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        base_offset: int = yield partial(self.append, partition, records)
        return base_offset

    async def append(self, partition: int, records: bytes) -> int:
        offset: int = await self._log.append(partition, records)
        if self.is_deadly:
            await trio.sleep_forever()
        return offset

    def read(self, partition: int) -> AsyncIterator[memoryview]:
        batches: AsyncIterator[memoryview] = self._log.read(partition)
        return batches


async def test_a_commit_that_was_appended_and_not_answered_counts(log: Any) -> None:
    deadly = Deadly(log)
    with trio.CancelScope() as dead:
        async with running(deadly) as coordinator, trio.open_nursery() as nursery:
            await commit(coordinator, 7)
            deadly.is_deadly = True
            await unanswered(nursery, commit, coordinator, 8)
            assert committed(coordinator) == 7  # what is answered is stored, so 8 is not answered yet
            dead.cancel()
    async with running(log) as coordinator:
        assert committed(coordinator) == 8
        await commit(coordinator, 8)  # as the client, that has no answer, does
        assert committed(coordinator) == 8


async def test_a_commit_that_was_not_appended_never_counts(log: Any) -> None:
    with trio.CancelScope() as dead:
        async with running(log) as coordinator, trio.open_nursery() as nursery:
            await commit(coordinator, 7)
            log.gate = trio.Event()
            await unanswered(nursery, commit, coordinator, 8)
            dead.cancel()
    log.gate.set()
    async with running(log) as coordinator:
        assert committed(coordinator) == 7


async def test_a_group_that_somebody_was_joining_is_there_and_empty(log: Any, autojump_clock: Any) -> None:
    with trio.CancelScope() as dead:
        async with running(log) as coordinator, trio.open_nursery() as nursery:
            joined = await join(coordinator)
            nursery.start_soon(join, coordinator, "")
            await trio.testing.wait_all_tasks_blocked()
            dead.cancel()
    async with running(log) as coordinator:
        group = coordinator.classic_groups.describe("g")
        assert (group.state, group.generation_id, dict(group.members)) == (ClassicState.EMPTY, 0, {})
        with pytest.raises(UnknownMemberIdError):
            heartbeat(coordinator, joined)
        # Its place is taken by a group of the consumer protocol, and after that by none.
        first = await beat(coordinator, "a", 0, frozenset(), joins=True)
        assert first.member_epoch == 2
    async with running(log) as coordinator:
        assert list(coordinator.consumer_groups.describe("g").members) == ["a"]


async def test_an_assignment_that_was_appended_and_not_answered_stands(log: Any, autojump_clock: Any) -> None:
    deadly = Deadly(log)
    with trio.CancelScope() as dead:
        async with running(deadly) as coordinator, trio.open_nursery() as nursery:
            joined = await join(coordinator)
            await trio.testing.wait_all_tasks_blocked()  # That there is a group is stored.
            deadly.is_deadly = True
            await unanswered(nursery, sync, coordinator, joined)
            dead.cancel()
    async with running(log) as coordinator:
        heartbeat(coordinator, joined)
        assert await sync(coordinator, joined) == b"for " + joined.member_id.encode()


# The consumer protocol


async def beat(
    coordinator: GroupCoordinator, member_id: str, epoch: int, owned: frozenset[int], *, joins: bool = False
) -> HeartbeatResult:
    return await coordinator.consumer_groups.heartbeat(
        "g",
        Heartbeat(
            member_id=member_id,
            member_epoch=epoch,
            instance_id=None,
            rack_id=None,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000 if joins else -1,
            topic_names=frozenset({"t"}) if joins else None,
            topic_regex=None,
            server_assignor=None,
            owned={T: owned} if owned else {},
        ),
    )


async def test_it_dies_while_a_consumer_group_reconciles(log: Any, autojump_clock: Any) -> None:
    async with running(log) as coordinator:
        first = await beat(coordinator, "a", 0, frozenset(), joins=True)
        assert first.assignment is not None
        mine = first.assignment[T]
        await beat(coordinator, "b", 0, frozenset(), joins=True)
        assert coordinator.consumer_groups.describe("g").state is ConsumerGroupState.RECONCILING
    async with running(log) as coordinator:
        assert coordinator.consumer_groups.describe("g").state is ConsumerGroupState.RECONCILING
        told = await beat(coordinator, "a", first.member_epoch, mine)
        assert told.assignment is not None
        assert len(told.assignment[T]) == 2
        kept = told.assignment[T]
        done = await beat(coordinator, "a", told.member_epoch, kept)
        epoch = coordinator.consumer_groups.describe("g").members["b"].current.epoch
        other = await beat(coordinator, "b", epoch, frozenset())
        assert other.assignment is not None
        assert other.assignment[T] == mine - kept
        await beat(coordinator, "a", done.member_epoch, kept)
        assert coordinator.consumer_groups.describe("g").state is ConsumerGroupState.STABLE


async def test_a_heartbeat_that_was_stored_and_not_answered_may_be_repeated(log: Any, autojump_clock: Any) -> None:
    deadly = Deadly(log)
    with trio.CancelScope() as dead:
        async with running(deadly) as coordinator, trio.open_nursery() as nursery:
            first = await beat(coordinator, "a", 0, frozenset(), joins=True)
            assert first.assignment is not None
            mine = first.assignment[T]
            await beat(coordinator, "b", 0, frozenset(), joins=True)
            told = await beat(coordinator, "a", first.member_epoch, mine)
            assert told.assignment is not None
            kept = told.assignment[T]
            deadly.is_deadly = True
            # It says that it has revoked; the new epoch is stored, and the answer is lost.
            await unanswered(nursery, beat, coordinator, "a", told.member_epoch, kept)
            dead.cancel()
    async with running(log) as coordinator:
        again = await beat(coordinator, "a", told.member_epoch, kept)
        assert again.member_epoch > told.member_epoch
        with pytest.raises(FencedMemberEpochError):
            await beat(coordinator, "a", again.member_epoch + 1, kept)
