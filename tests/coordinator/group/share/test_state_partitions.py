"""Where a share group's delivery state is set up: what the group says and what is kept never part for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError, FencedStateEpochError
from ottla.coordinator.group.config import GroupConfig
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.share.config import ShareGroupConfig
from ottla.coordinator.group.share.protocol import ShareHeartbeat
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.share.cluster import MAX_PAUSE_SECONDS, RETRIES, ClusterPersister
from ottla.coordinator.share.persister import Initialization
from ottla.coordinator.share.state import SharePartitionKey, StateChange
from tests.coordinator.group.test_overlaps import CHECK_S, FIRST, World

TOPIC = "t"
Outcomes = dict[SharePartitionKey, CoordinatorError | None]


class Keeper:
    """Implements what groups need of a Persister, in memory. `told` holds back what a beginning is answered with."""

    def __init__(self) -> None:
        #: Where each share partition begins, and the state epoch that it was begun in.
        self.starts: dict[SharePartitionKey, int] = {}
        self.epochs: dict[SharePartitionKey, int] = {}
        self.refused: set[int] = set()
        self.told = trio.Event()
        self.told.set()

    async def initialize(
        self, wanted: Sequence[Initialization], is_wanted: Any = None
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        outcomes: Outcomes = {}
        for key, state_epoch, start_offset in wanted:
            is_refused = key.partition in self.refused
            outcomes[key] = CoordinatorNotAvailableError("not now") if is_refused else None
            if not is_refused:
                self.starts[key] = start_offset
                self.epochs[key] = state_epoch
        await self.told.wait()
        for key, state_epoch, _ in wanted:
            if state_epoch < self.epochs.get(key, state_epoch):
                outcomes[key] = FencedStateEpochError("a later beginning came before it")
        return outcomes

    async def delete(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        for key in keys:
            self.starts.pop(key, None)
            self.epochs.pop(key, None)
        return dict.fromkeys(keys)


class AtOnce(GroupConfigs):
    """Share groups assign without delay."""

    def of_share_group(self, group_id: str) -> ShareGroupConfig:
        return ShareGroupConfig(assignment_interval_ms=0)


class Shares:
    """Brokers with share groups, and one member of one of them."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.keeper = Keeper()
        self.epoch = 0
        self.assigned: set[int] = set()
        world.options = {"share_state": self, "configs": AtOnce(GroupConfig())}

    @property
    def persister(self) -> Keeper:
        return self.keeper

    @property
    def groups(self) -> Any:
        return self.world.coordinator.share_groups

    @property
    def group(self) -> Any:
        return self.groups.describe(FIRST)

    async def beat(self, epoch: int | None = None) -> None:
        """One heartbeat, and everything that follows from it by itself."""
        epoch = self.epoch if epoch is None else epoch
        names = None if epoch else frozenset({TOPIC})
        beat = ShareHeartbeat("m", epoch, None, "c", "/h", names)
        result: HeartbeatResult = await self.groups.heartbeat(FIRST, beat)
        self.epoch = max(0, result.member_epoch)
        if result.assignment is not None:
            self.assigned = {index for indexes in result.assignment.values() for index in indexes}
        await wait_all_tasks_blocked()

    async def begin_another_partition(self) -> None:
        """All is set up, then the topic grows; how the new partition's beginning ended is not told yet."""
        for _ in range(2):
            await self.beat()
        self.world.grow_topic(TOPIC, 3)
        self.keeper.told = trio.Event()
        await self.beat()
        await self.beat(-1)

    def assert_whole(self) -> None:
        """Each partition that the group takes for set up is so."""
        begun = self.group.state_partitions.initialized
        said = {(topic_id, index) for topic_id, (_, indexes) in begun.items() for index in indexes}
        assert said <= {(key.topic_id, key.partition) for key in self.keeper.starts}


@pytest.fixture
def shares(log: Any) -> Shares:
    world = World(log)
    world.create_topic(TOPIC)
    return Shares(world)


async def test_an_offset_that_was_altered_stays_where_another_one_was_refused(shares: Shares) -> None:
    async with shares.world.broker():
        shares.keeper.refused = {1}
        outcomes = await shares.groups.alter_offsets(FIRST, {TOPIC: {0: 5, 1: 7}})
        assert outcomes[TOPIC, 0] is None
        assert outcomes[TOPIC, 1] is not None
        shares.keeper.refused = set()
        await shares.beat()
        # It comes to a topic that the group has already: it begins with its first record.
        assert {key.partition: start for key, start in shares.keeper.starts.items()} == {0: 5, 1: 0}


async def test_offsets_that_are_deleted_while_they_are_set_up_are_set_up_again(shares: Shares) -> None:
    async with shares.world.broker():
        await shares.begin_another_partition()
        assert await shares.groups.delete_offsets(FIRST, [TOPIC]) == {TOPIC: None}
        shares.keeper.told.set()
        await wait_all_tasks_blocked()
        shares.assert_whole()
        for _ in range(3):
            await shares.beat()
        assert shares.assigned == {0, 1, 2}
        shares.assert_whole()


@pytest.mark.parametrize("is_former_first", [True, False])
async def test_what_is_set_up_twice_at_the_same_time_stays(shares: Shares, *, is_former_first: bool) -> None:
    """The first beginning has taken too long, and the second one's epoch is later. It was undone, though entered."""
    async with shares.world.broker():
        former = shares.keeper.told = trio.Event()
        await shares.beat()
        await shares.beat(-1)
        shares.world.clock.advance(ShareGroupConfig().initialize_retry_interval_ms + 1)
        later = shares.keeper.told = trio.Event()
        await shares.beat(0)
        assert len(shares.group.attempts) == 2
        for told in (former, later) if is_former_first else (later, former):
            told.set()
            await wait_all_tasks_blocked()
        for _ in range(2):
            await shares.beat()
        assert shares.assigned == {0, 1}
        shares.assert_whole()


async def test_state_that_is_set_up_behind_its_deletion_goes(shares: Shares) -> None:
    """The coordinator was asked again and again, and the last time only after the offsets were deleted."""
    async with shares.world.broker():
        await shares.begin_another_partition()
        late = {key: start for key, start in shares.keeper.starts.items() if key.partition == 2}
        assert await shares.groups.delete_offsets(FIRST, [TOPIC]) == {TOPIC: None}
        shares.keeper.starts.update(late)
        shares.keeper.told.set()
        await wait_all_tasks_blocked()
        assert not shares.keeper.starts


def persister_of(**coordinator: Any) -> ClusterPersister:
    """One that asks this broker's own coordinator."""

    async def exists(topic: str) -> None:
        await trio.lowlevel.checkpoint()

    return ClusterPersister(
        1,
        SimpleNamespace(partition_for=lambda key: 0, **coordinator),  # type: ignore[arg-type]
        None,  # type: ignore[arg-type]
        SimpleNamespace(leader_of=lambda topic, partition: 1),
        SimpleNamespace(ensure_topic=exists),
    )


def ask_again(shares: Shares) -> None:
    """The keeper is asked as others are: what it refuses for the moment is asked again."""
    persister = persister_of(initialize=shares.keeper.initialize, delete=shares.keeper.delete)
    shares.world.options["share_state"] = SimpleNamespace(persister=persister)


async def test_a_stop_does_not_wait_to_ask_again(autojump_clock: MockClock) -> None:
    async def refuse(key: SharePartitionKey, change: StateChange) -> None:
        await trio.lowlevel.checkpoint()
        raise CoordinatorNotAvailableError("the disk is full")

    async def write() -> None:
        with pytest.raises(CoordinatorNotAvailableError):
            await persister.write(SharePartitionKey(FIRST, UUID(int=1), 0), StateChange(0, 0, 0, 0, ()))

    persister = persister_of(write=refuse)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        await trio.sleep(1)
        persister.close()
    await write()
    assert trio.current_time() - began == 1


async def test_a_group_that_is_made_again_is_not_begun_again_for_the_former_one(
    shares: Shares, autojump_clock: MockClock
) -> None:
    """Its state epoch would be one that the new group reaches much later: its leaders may not write meanwhile."""
    ask_again(shares)
    keeper = shares.keeper
    async with shares.world.broker():
        shares.world.delete_topic(TOPIC)
        for _ in range(3):
            await shares.beat(0)
            await shares.beat(-1)
        await shares.beat(0)
        topic_id = shares.world.create_topic(TOPIC)
        keeper.refused = {0, 1}
        await shares.beat()
        assert shares.group.group_epoch > 3
        await shares.beat(-1)
        await shares.world.coordinator.delete_group(FIRST)
        keeper.refused = set()
        for _ in range(3):
            await shares.beat()
        assert shares.assigned == {0, 1}
        await trio.sleep(RETRIES * MAX_PAUSE_SECONDS)
        assert keeper.epochs == {SharePartitionKey(FIRST, topic_id, index): 2 for index in (0, 1)}


async def test_a_coordinator_that_has_resigned_begins_nothing_any_more(
    shares: Shares, autojump_clock: MockClock
) -> None:
    """The next one may have deleted the group by now, and made it again."""
    ask_again(shares)
    async with shares.world.broker() as coordinator:
        shares.keeper.refused = {0, 1}
        await shares.beat()
        coordinator.runtime.resign(coordinator.partition_for(FIRST))
        shares.keeper.refused = set()
        await trio.sleep(RETRIES * MAX_PAUSE_SECONDS)
        assert not shares.keeper.epochs


async def test_what_is_set_up_for_a_topic_that_is_deleted_meanwhile_is_not_entered(shares: Shares) -> None:
    async with shares.world.broker():
        shares.keeper.told = trio.Event()
        await shares.beat()
        shares.world.delete_topic(TOPIC)
        await wait_all_tasks_blocked()
        shares.keeper.told.set()
        await wait_all_tasks_blocked()
        assert not shares.group.state_partitions.topics()


async def test_a_heartbeat_that_is_not_stored_puts_nothing_off(shares: Shares) -> None:
    """A former coordinator had begun to set up the partitions; who takes that up has its first heartbeat refused."""
    async with shares.world.broker():
        shares.keeper.told = trio.Event()
        await shares.beat()
    shares.keeper = Keeper()
    async with shares.world.broker():
        shares.world.log.error = CoordinatorNotAvailableError("the disk is full")
        with pytest.raises(CoordinatorNotAvailableError):
            await shares.beat()
        shares.world.log.error = None
        for _ in range(2):
            await shares.beat()
        assert shares.assigned == {0, 1}


async def test_a_deleted_topic_that_cannot_be_forgotten_now_is_forgotten_later(
    shares: Shares, autojump_clock: MockClock
) -> None:
    async with shares.world.broker():
        for _ in range(2):
            await shares.beat()
        assert shares.assigned == {0, 1}
        shares.world.log.error = CoordinatorNotAvailableError("the disk is full")
        shares.world.delete_topic(TOPIC)
        await wait_all_tasks_blocked()
        shares.world.log.error = None
        epochs = set()
        for _ in range(4):
            await shares.beat()
            epochs.add(shares.epoch)
        assert len(epochs) <= 2  # it has one partition less, once
        for _ in range(CHECK_S):
            await trio.sleep(1)
            await shares.beat()
        assert not shares.group.state_partitions.topics()


async def test_a_heartbeat_that_changes_nothing_looks_at_no_topic(
    shares: Shares, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group may subscribe to thousands of topics, and each of its members asks every few seconds."""
    looked = []

    def noted(method: Any) -> Any:
        def note(topics: GroupTopics, names: Any) -> Any:
            looked.append(names)
            return method(topics, names)

        return note

    for method in (GroupTopics.ids, GroupTopics.metadata_hash, GroupTopics.partition_counts):
        monkeypatch.setattr(GroupTopics, method.__name__, noted(method))
    async with shares.world.broker():
        for _ in range(3):
            await shares.beat()
        assert shares.assigned == {0, 1}
        looked.clear()
        for _ in range(3):
            await shares.beat()
        assert not looked
        shares.world.grow_topic(TOPIC, 3)
        for _ in range(3):
            await shares.beat()
        assert shares.assigned == {0, 1, 2}
