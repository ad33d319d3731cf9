"""The share coordinator: who may write, what a load brings back, and how batches of records are put together."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.errors import (
    CoordinatorNotAvailableError,
    FencedShareLeaderError,
    FencedStateEpochError,
    InvalidRequestError,
    NotCoordinatorError,
    UninitializedShareError,
    UnknownSharePartitionError,
)
from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.share.assignor import ShareMemberSpec, simple_assignor
from ottla.coordinator.share.coordinator import ShareCoordinator, ShareCoordinatorConfig
from ottla.coordinator.share.persister import Initialization
from ottla.coordinator.share.records import SHARE_GROUP_STATE, snapshot
from ottla.coordinator.share.state import (
    MAX_BATCHES,
    SharePartitionKey,
    ShareState,
    StateBatch,
    StateChange,
    combine,
)
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.storage.clock import ManualClock

TOPIC = UUID(int=7)
KEY = SharePartitionKey("g", TOPIC, 0)
STATE = PartitionState.initial((1,))
EMPTY = ShareState(1, 0, 0, 0)


class World:
    """A coordinator over a log in memory, which may be made again over the same log."""

    def __init__(self, log: Any, nursery: trio.Nursery, updates_per_snapshot: int) -> None:
        self.topics = SimpleNamespace(
            is_living=lambda topic_id: topic_id == TOPIC,
            has_partition=lambda topic_id, index: topic_id == TOPIC and index < 2,
        )
        self.coordinator = ShareCoordinator(
            node_id=1,
            config=ShareCoordinatorConfig(topic_partitions=1, updates_per_snapshot=updates_per_snapshot),
            clock=ManualClock(1_000),
            log=log,
            topics=self.topics,  # type: ignore[arg-type]
            nursery=nursery,
        )
        topic = TopicImage(name=SHARE_GROUP_STATE, topic_id=UUID(int=9), partitions=(STATE,))
        change = PartitionChange(topic, 0, None, STATE)
        self.coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=[change]))

    async def load(self) -> None:
        while self.coordinator.runtime.loading():
            await trio.lowlevel.checkpoint()

    async def begin(self, state_epoch: int = 1, start_offset: int = 0) -> None:
        outcomes = await self.coordinator.initialize([Initialization(KEY, state_epoch, start_offset)])
        error = outcomes[KEY]
        if error is not None:
            raise error


@pytest.fixture(params=[500, 2], ids=["updates", "snapshots"])
async def world(log: Any, request: pytest.FixtureRequest) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, request.param)
        await world.load()
        yield world
        world.coordinator.runtime.close()
        nursery.cancel_scope.cancel()


def change(
    *batches: StateBatch, start: int = 0, state_epoch: int = 1, leader_epoch: int = 1, complete: int = 0
) -> StateChange:
    return StateChange(state_epoch, leader_epoch, start, complete, batches)


async def test_what_was_written_is_read_and_loaded(world: World, log: Any) -> None:
    coordinator = world.coordinator
    await world.begin(start_offset=-1)
    assert (await coordinator.read(KEY, 1)).start_offset == -1
    await coordinator.write(KEY, change(StateBatch(0, 9, 2, 1)))
    await coordinator.write(KEY, change(StateBatch(12, 14, 0, 2), start=5))
    await coordinator.write(KEY, change(StateBatch(13, 13, 4, 2), start=5))
    wanted = ShareState(
        1,
        1,
        5,
        0,
        (StateBatch(5, 9, 2, 1), StateBatch(12, 12, 0, 2), StateBatch(13, 13, 4, 2), StateBatch(14, 14, 0, 2)),
    )
    assert await coordinator.read(KEY, 1) == wanted
    assert coordinator.read_summary(KEY) == wanted

    async with trio.open_nursery() as nursery:
        again = World(log, nursery, 500)
        await again.load()
        assert await again.coordinator.read(KEY, 1) == wanted
        again.coordinator.runtime.close()
        nursery.cancel_scope.cancel()


async def test_who_may_have_been_replaced_tells_no_leader_what_it_remembers(world: World, log: Any) -> None:
    """Another coordinator may have stored more: what was accepted there would be delivered again."""
    await world.begin()
    assert (await world.coordinator.read(KEY, 1)).leader_epoch == 1

    async def confirm(partitions: Iterable[int]) -> None:
        raise NotCoordinatorError(f"{list(partitions)} may be led by another node")

    log.confirm = confirm
    with pytest.raises(NotCoordinatorError, match=r"\[0\] may be led"):
        await world.coordinator.read(KEY, 1)


async def test_what_could_not_be_pruned_is_pruned_the_next_time(
    log: Any, autojump_clock: trio.testing.MockClock
) -> None:
    asked: list[int] = []

    async def delete_below(partition: int, offset: int) -> None:
        asked.append(offset)
        if len(asked) == 1:
            raise CoordinatorNotAvailableError("the disk is full")

    log.delete_below = delete_below
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, 2)
        await world.load()
        for state_epoch in (1, 2):
            await world.begin(state_epoch)
        await trio.sleep(1_000)
        assert asked == [1, 1]
        world.coordinator.runtime.close()
        nursery.cancel_scope.cancel()


async def test_a_partition_that_moves_away_while_another_is_pruned_is_left_alone(
    log: Any, autojump_clock: trio.testing.MockClock
) -> None:
    """What is forgotten here is not what the log can do without."""
    asked: list[tuple[int, int]] = []
    goes_on = trio.Event()

    async def delete_below(partition: int, offset: int) -> None:
        asked.append((partition, offset))
        await goes_on.wait()

    log.delete_below = delete_below
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, 2)
        runtime = world.coordinator.runtime
        runtime.elect(1)
        await world.load()
        for shard in runtime.loaded_shards():
            shard.replay(0, None, snapshot(KEY, EMPTY, snapshot_epoch=0, created_ms=0, now_ms=0))
            shard.replay(1, None, snapshot(KEY, EMPTY, snapshot_epoch=1, created_ms=0, now_ms=0))
        await trio.sleep(301)
        ((first, end),) = asked
        assert end == 1
        runtime.resign(1 - first)
        goes_on.set()
        await trio.sleep(1)
        assert asked == [(first, 1)]
        runtime.close()
        nursery.cancel_scope.cancel()


async def test_the_state_of_a_deleted_topic_that_could_not_be_removed_is_removed_later(
    log: Any, autojump_clock: trio.testing.MockClock
) -> None:
    async def delete_below(partition: int, offset: int) -> None:
        pass

    log.delete_below = delete_below
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, 500)
        await world.load()
        await world.begin()
        world.topics.is_living = lambda topic_id: False
        log.error = CoordinatorNotAvailableError("the disk is full")
        deleted = TopicImage(name="t", topic_id=TOPIC, partitions=(STATE,))
        world.coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), deleted_topics=[deleted]))
        await trio.testing.wait_all_tasks_blocked()
        log.error = None
        assert [set(shard.entries) for shard in world.coordinator.runtime.shards()] == [{KEY}]
        await trio.sleep(1_000)
        assert [set(shard.entries) for shard in world.coordinator.runtime.shards()] == [set()]
        world.coordinator.runtime.close()
        nursery.cancel_scope.cancel()


async def test_a_later_leader_shuts_out_the_earlier_one(world: World) -> None:
    await world.begin()
    await world.coordinator.read(KEY, 3)
    with pytest.raises(FencedShareLeaderError):
        await world.coordinator.write(KEY, change(leader_epoch=2))
    with pytest.raises(FencedShareLeaderError):
        await world.coordinator.read(KEY, 2)
    await world.coordinator.write(KEY, change(leader_epoch=3))


async def test_nothing_of_an_earlier_leader_comes_behind_what_the_later_one_is_told(world: World) -> None:
    await world.begin()
    outcomes: list[object] = []

    async def write(number: int) -> None:
        try:
            await world.coordinator.write(KEY, change(StateBatch(number, number, 2, 1)))
            outcomes.append(number)
        except FencedShareLeaderError:
            pass

    async with trio.open_nursery() as nursery:
        for number in range(5):
            nursery.start_soon(write, number)
        await trio.lowlevel.checkpoint()
        told = await world.coordinator.read(KEY, 2)
        for number in range(5, 10):
            nursery.start_soon(write, number)
    stored = {offset for first, last, _, _ in told.batches for offset in range(first, last + 1)}
    assert stored == set(outcomes)


async def test_what_was_begun_anew_shuts_out_those_of_before(world: World) -> None:
    await world.begin(state_epoch=2)
    await world.coordinator.write(KEY, change(StateBatch(0, 3, 2, 1), state_epoch=2))
    await world.begin(state_epoch=5, start_offset=1)
    with pytest.raises(FencedStateEpochError):
        await world.coordinator.write(KEY, change(state_epoch=2))
    with pytest.raises(FencedStateEpochError):
        await world.begin(state_epoch=4)
    assert world.coordinator.read_summary(KEY) == ShareState(5, 0, 1, 0)


async def test_epochs_are_not_negative(world: World) -> None:
    await world.begin(state_epoch=1)
    for refused in (
        partial(world.coordinator.read, KEY, -1),
        partial(world.coordinator.write, KEY, change(leader_epoch=-1)),
        partial(world.coordinator.write, KEY, change(state_epoch=-1)),
        partial(world.begin, state_epoch=-1),
    ):
        with pytest.raises(InvalidRequestError, match=r"The (leader|state) epoch cannot be a negative number\."):
            await refused()


async def test_what_is_complete_only_grows_behind_one_start(world: World) -> None:
    await world.begin(start_offset=3)
    for start, complete, expected in ((3, 5, 5), (3, 4, 5), (2, 9, 5), (-1, 9, 5), (4, 1, 1)):
        await world.coordinator.write(KEY, change(start=start, complete=complete))
        assert world.coordinator.read_summary(KEY).delivery_complete_count == expected


async def test_what_is_complete_grows_before_there_is_a_start(world: World) -> None:
    await world.begin(start_offset=-1)
    for complete, expected in ((3, 3), (2, 3), (4, 4)):
        await world.coordinator.write(KEY, change(start=-1, complete=complete))
        assert world.coordinator.read_summary(KEY).delivery_complete_count == expected


async def test_a_beginning_that_is_asked_for_again_resets_nothing(world: World) -> None:
    """The group's coordinator asks again while its first request is slow; records were delivered meanwhile."""
    await world.begin(start_offset=-1)
    await world.coordinator.read(KEY, 1)
    await world.coordinator.write(KEY, change(StateBatch(0, 3, 2, 1), start=0))
    before = world.coordinator.read_summary(KEY)
    await world.begin(start_offset=-1)
    assert world.coordinator.read_summary(KEY) == before
    # Where an offset is named, it is to begin there; and what was deleted begins anew.
    await world.begin(start_offset=2)
    assert world.coordinator.read_summary(KEY) == ShareState(1, 0, 2, 0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.coordinator.delete, [KEY])
        nursery.start_soon(partial(world.begin, start_offset=-1))
    await world.begin(start_offset=-1)
    assert world.coordinator.read_summary(KEY).start_offset == -1


async def test_an_earlier_beginning_that_comes_behind_the_later_one_changes_nothing(world: World, log: Any) -> None:
    """A former coordinator of the group asks while the first beginning is on its way: there is nothing to refuse it."""
    outcomes: dict[int, object] = {}

    async def begin(state_epoch: int, start_offset: int) -> None:
        wanted = [Initialization(KEY, state_epoch, start_offset)]
        outcomes[state_epoch] = (await world.coordinator.initialize(wanted))[KEY]

    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(begin, 2, 7)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(begin, 1, -1)
        await trio.testing.wait_all_tasks_blocked()
        log.gate.set()
    assert (outcomes[2], type(outcomes[1])) == (None, FencedStateEpochError)

    async with trio.open_nursery() as nursery:
        again = World(log, nursery, 500)
        await again.load()
        for coordinator in (world.coordinator, again.coordinator):
            state = await coordinator.read(KEY, 1)
            assert (state.state_epoch, state.start_offset) == (2, 7)
            await coordinator.write(KEY, change(start=8, state_epoch=state.state_epoch))
        again.coordinator.runtime.close()
        nursery.cancel_scope.cancel()


async def test_a_beginning_that_could_not_be_stored_shuts_nobody_out(world: World, log: Any) -> None:
    await world.begin(state_epoch=1)
    for state_epoch in (2, 3):
        log.error = CoordinatorNotAvailableError("too few replicas")
        with pytest.raises(CoordinatorNotAvailableError):
            await world.begin(state_epoch, start_offset=5)
        log.error = None
        state = await world.coordinator.read(KEY, 1)
        await world.coordinator.write(KEY, change(start=1, state_epoch=state.state_epoch))
    await world.begin(state_epoch=2, start_offset=7)
    with pytest.raises(FencedStateEpochError):
        await world.coordinator.write(KEY, change(start=8, state_epoch=1))


async def test_a_beginning_on_its_way_shuts_out_those_of_before(world: World, log: Any) -> None:
    await world.begin(state_epoch=1)
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.begin, 2, 7)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(FencedStateEpochError):
            await world.coordinator.write(KEY, change(start=8, state_epoch=1))
        log.gate.set()
    assert world.coordinator.read_summary(KEY) == ShareState(2, 0, 7, 0)


async def test_what_was_forgotten_takes_no_writes(world: World) -> None:
    await world.begin()
    assert await world.coordinator.delete([KEY]) == {KEY: None}
    assert await world.coordinator.delete([KEY]) == {KEY: None}
    with pytest.raises(UninitializedShareError):
        await world.coordinator.write(KEY, change())
    with pytest.raises(UninitializedShareError):
        await world.coordinator.read(KEY, 1)
    assert world.coordinator.read_summary(KEY).start_offset == -1


async def test_what_is_forgotten_while_its_beginning_is_on_its_way_is_forgotten(world: World, log: Any) -> None:
    outcomes: list[object] = []

    async def forget() -> None:
        outcomes.append(await world.coordinator.delete([KEY]))

    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(world.begin, 9)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(forget)
        await trio.testing.wait_all_tasks_blocked()
        log.gate.set()
    assert outcomes == [{KEY: None}]
    with pytest.raises(UninitializedShareError):
        await world.coordinator.read(KEY, 1)
    await world.begin(state_epoch=1)  # as another group of this name would


async def test_what_could_not_be_forgotten_is_served_still(world: World, log: Any) -> None:
    await world.begin()
    log.error = CoordinatorNotAvailableError("too few replicas")
    outcomes = await world.coordinator.delete([KEY])
    assert isinstance(outcomes[KEY], CoordinatorNotAvailableError)
    log.error = None
    await world.coordinator.write(KEY, change())
    assert (await world.coordinator.read(KEY, 1)).state_epoch == 1


async def test_what_does_not_exist_is_refused(world: World) -> None:
    with pytest.raises(UninitializedShareError):  # this is looked at first
        await world.coordinator.read(KEY._replace(partition=2), 1)
    with pytest.raises(UnknownSharePartitionError):
        world.coordinator.read_summary(KEY._replace(partition=2))
    with pytest.raises(InvalidRequestError):
        await world.coordinator.read(KEY._replace(partition=-1), 1)
    outcomes = await world.coordinator.initialize([Initialization(KEY._replace(topic_id=UUID(int=1)), 1, 0)])
    assert [type(error) for error in outcomes.values()] == [UnknownSharePartitionError]


async def test_more_batches_than_anybody_holds_are_refused(world: World) -> None:
    await world.coordinator.initialize([Initialization(KEY, 1, 0)])
    for count in (MAX_BATCHES, MAX_BATCHES + 1):
        # They are nested, so that each of them counts somewhere.
        batches = [StateBatch(n, 3 * MAX_BATCHES - n, 0, n + 1) for n in range(count)]
        change = StateChange(1, 1, 0, 0, batches)
        if count > MAX_BATCHES:
            with pytest.raises(InvalidRequestError):
                await world.coordinator.write(KEY, change)
        else:
            await world.coordinator.write(KEY, change)
    state = await world.coordinator.read(KEY, 1)
    assert len(state.batches) == 2 * MAX_BATCHES - 1
    with pytest.raises(InvalidRequestError):
        await world.coordinator.write(KEY, StateChange(1, 1, 0, 0, ()))


state_batches = st.lists(
    st.builds(
        lambda first, count, state, times: StateBatch(first, first + count, state, times),
        st.integers(0, 30),
        st.integers(0, 8),
        st.sampled_from([0, 2, 4]),
        st.integers(1, 4),
    ),
    max_size=8,
)


@given(state_batches, state_batches, st.integers(0, 40))
def test_batches_are_put_together_offset_by_offset(
    former: list[StateBatch], newer: list[StateBatch], start: int
) -> None:
    wanted: dict[int, tuple[int, int]] = {}
    for first, last, state, count in (*former, *newer):
        for offset in range(max(first, start), last + 1):
            wanted[offset] = max(wanted.get(offset, (0, 0)), (count, state))
    combined = combine(former, newer, start)
    found = {offset: (count, state) for first, last, state, count in combined for offset in range(first, last + 1)}
    assert found == wanted
    assert sum(last - first + 1 for first, last, _, _ in combined) == len(wanted)
    assert list(combined) == sorted(combined)
    for before, after in pairwise(combined):
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "two batches that are one"


TOPICS = [UUID(int=number) for number in range(1, 4)]


@given(
    st.lists(st.frozensets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=12),
    st.fixed_dictionaries({topic: st.frozensets(st.integers(0, 8)) for topic in TOPICS}),
)
def test_every_partition_has_a_member_and_every_member_its_share(
    subscribed: list[frozenset[UUID]], partitions: dict[UUID, frozenset[int]]
) -> None:
    def specs(before: dict[str, Assignment]) -> list[ShareMemberSpec]:
        return [
            ShareMemberSpec(f"m{number:02}", topics, before.get(f"m{number:02}", {}))
            for number, topics in enumerate(subscribed)
        ]

    first = simple_assignor(specs({}), partitions)
    held = {(topic, index) for assigned in first.values() for topic, indexes in assigned.items() for index in indexes}
    wanted = {(topic, index) for topic in frozenset().union(*subscribed) for index in partitions[topic]}
    assert held == wanted
    for number, topics in enumerate(subscribed):
        assert first[f"m{number:02}"].keys() <= topics
    if len(set(subscribed)) == 1 and wanted:
        sizes = [sum(map(len, assigned.values())) for assigned in first.values()]
        assert max(sizes) - min(sizes) <= 1
        assert min(sizes) >= 1
    assert simple_assignor(specs(first), partitions) == first
