"""Two things happen to a group at once: nothing that was acknowledged is lost, and nothing half is left behind."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    TopicDeletedError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.member import JoinResult, Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.coordinator.group.offsets.commits import Commit, commit_records
from ottla.coordinator.group.streams.assignor import TaskSet
from ottla.coordinator.group.streams.heartbeat import StreamsGroupConfig, StreamsHeartbeat
from ottla.coordinator.group.streams.member import Endpoint
from ottla.coordinator.group.streams.topology import Topology
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.replay import Producer
from ottla.kproto.internal_records.streams_group import Subtopology
from ottla.kproto.records import BatchBuilder, EndTxnMarker
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock

STATE = PartitionState.initial((1,))
T0 = TopicPartition("t", 0)
DAY_MS = 24 * 3_600_000
CHECK_S = 600
FIRST, SECOND = "g0", "g1"
"""Two groups, each in a partition of its own of `__consumer_offsets`."""


class AtOnce(GroupConfigs):
    """Streams groups assign without delay."""

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig:
        return StreamsGroupConfig(assignment_interval_ms=0, initial_rebalance_delay_ms=0)


class World:
    """What brokers come and go in: topics, a log, a clock."""

    def __init__(self, log: Any) -> None:
        self.log = log
        self.clock = ManualClock()
        self.image = MetadataImage(revision=1)
        self.coordinator: Any = None
        #: What else brokers are made with.
        self.options: dict[str, Any] = {}
        self.made = 0

    def create_topic(self, name: str = "t") -> UUID:
        self.made += 1
        topic = TopicImage(name, UUID(int=0x1000 + self.made), (STATE,) * 2)
        before = self.image
        self.image = MetadataImage(
            revision=before.revision + 1,
            topics=before.topics.set(name, topic),
            topics_by_id=before.topics_by_id.set(topic.topic_id, topic),
        )
        if self.coordinator is not None:
            self.coordinator.apply(MetadataDelta(before, self.image, created_topics=[topic]))
        return topic.topic_id

    def grow_topic(self, name: str, partitions: int) -> None:
        before, topic = self.image, self.image.topics[name]
        grown = topic._replace(partitions=(STATE,) * partitions)
        self.image = MetadataImage(
            revision=before.revision + 1,
            topics=before.topics.set(name, grown),
            topics_by_id=before.topics_by_id.set(topic.topic_id, grown),
        )

    def delete_topic(self, name: str = "t") -> None:
        before, topic = self.image, self.image.topics[name]
        self.image = MetadataImage(
            revision=before.revision + 1,
            topics=before.topics.remove(name),
            topics_by_id=before.topics_by_id.remove(topic.topic_id),
        )
        self.coordinator.apply(MetadataDelta(before, self.image, deleted_topics=[topic]))

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[GroupCoordinator]:
        """One that begins on the log as it is, and is killed in the end."""
        async with trio.open_nursery() as nursery:
            self.coordinator = GroupCoordinator(
                node_id=1,
                config=GroupConfig(offsets_topic_partitions=2, initial_rebalance_delay_ms=0),
                clock=self.clock,
                log=self.log,
                topics=GroupTopics(self),
                purgatory=Purgatory("group"),
                nursery=nursery,
                **self.options,
            )
            topic = TopicImage(OFFSETS_TOPIC, UUID(int=1), (STATE,) * 2)
            changes = [PartitionChange(topic, index, None, STATE) for index in range(2)]
            self.coordinator.apply(MetadataDelta(self.image, self.image, changed_partitions=changes))
            await trio.testing.wait_all_tasks_blocked()
            yield self.coordinator
            nursery.cancel_scope.cancel()

    # What clients do

    def begin_commit(self, offset: int, group: str = FIRST, producer: Producer | None = None) -> Commit:
        topic = self.image.topics["t"]
        commit: Commit = self.coordinator.offsets.begin_commit(
            group,
            {T0: OffsetToCommit(offset, -1, "", topic_id=topic.topic_id)},
            member_id="",
            group_instance_id=None,
            generation_id=-1,
            producer=producer,
            knows_epochs=True,
        )
        return commit

    async def commit(self, offset: int, group: str = FIRST) -> None:
        commit = self.begin_commit(offset, group)
        await commit.write.wait()
        assert not commit.refused

    def committed(self, group: str = FIRST) -> int | None:
        found = self.coordinator.offsets.fetch(group, [T0], require_stable=False)[T0]
        assert found is None or isinstance(found, CommittedOffset)
        return None if found is None else found.offset

    def groups(self) -> list[tuple[str, str]]:
        return [(listing.group_id, listing.group_type) for listing in self.coordinator.list_groups()]

    def kept(self) -> int:
        """How many offsets are in memory, answered or not."""
        return sum(
            shard.offsets.count(group) for shard in self.coordinator.runtime.shards() for group in (FIRST, SECOND)
        )

    async def beat(self, member_id: str, epoch: int = 0) -> HeartbeatResult:
        beat = Heartbeat(member_id, epoch, None, None, "c", "/h", 60_000, frozenset({"t"}), None, None, {})
        result: HeartbeatResult = await self.coordinator.consumer_groups.heartbeat(FIRST, beat)
        return result

    async def join(self, member_id: str = "", **changes: Any) -> JoinResult:
        protocols = [Protocol("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")]
        request = JoinRequest(member_id, None, "c", "/h", 60_000, 10_000, "consumer", protocols, False, True)
        result: JoinResult = await self.coordinator.classic_groups.join(FIRST, request._replace(**changes))
        return result

    async def sync(self, joined: JoinResult) -> None:
        await self.coordinator.classic_groups.sync(
            FIRST,
            member_id=joined.member_id,
            group_instance_id=None,
            generation_id=joined.generation_id,
            protocol_type=None,
            protocol_name=None,
            assignments={joined.member_id: b"a"},
        )

    async def empty_classic_group(self) -> None:
        """One that had a member: its record is in the log."""
        joined = await self.join()
        await self.sync(joined)
        await self.coordinator.classic_groups.leave(FIRST, joined.member_id, None)
        await trio.testing.wait_all_tasks_blocked()

    async def empty_consumer_group(self) -> None:
        await self.beat("first")
        await self.beat("first", -1)


@pytest.fixture
def world(log: Any) -> World:
    made = World(log)
    made.create_topic()
    return made


async def ignoring(call: Any, *arguments: Any) -> None:
    """Ask for something that may be refused."""
    with suppress(CoordinatorError):
        await call(*arguments)


# Retention and deletion beside a commit


async def test_retention_spares_what_is_being_committed(world: World, autojump_clock: Any) -> None:
    async with world.broker():
        await world.commit(10)
        world.clock.advance(8 * DAY_MS)
        world.log.gate = trio.Event()
        commit = world.begin_commit(99)
        await trio.sleep(1.5 * CHECK_S)
        world.log.gate.set()
        await commit.write.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert world.committed() == 99
        assert world.groups() == [(FIRST, "classic")]
    async with world.broker():
        assert world.committed() == 99


async def test_what_is_committed_before_a_deletion_goes_with_it(world: World) -> None:
    async with world.broker() as coordinator, trio.open_nursery() as nursery:
        await world.commit(10)
        world.log.gate = trio.Event()
        before = world.begin_commit(11)
        nursery.start_soon(coordinator.delete_group, FIRST)
        await trio.testing.wait_all_tasks_blocked()
        world.log.gate.set()
        await before.write.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert (world.committed(), world.groups()) == (None, [])
        await world.commit(12)
        assert world.committed() == 12


async def test_an_offset_is_deleted_that_was_on_its_way(world: World) -> None:
    async with world.broker() as coordinator, trio.open_nursery() as nursery:
        await world.commit(1, SECOND)
        await world.beat("member")  # a group without offsets yet
        await world.beat("member", -1)
        world.log.gate = trio.Event()
        commit = world.begin_commit(10)
        nursery.start_soon(coordinator.offsets.delete, FIRST, [T0])
        await trio.testing.wait_all_tasks_blocked()
        world.log.gate.set()
        await commit.write.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert world.committed() is None


# One id, one group


@pytest.mark.parametrize("classic_first", [False, True])
async def test_two_protocols_that_meet_on_an_empty_group_make_one_group(world: World, *, classic_first: bool) -> None:
    async with world.broker():
        await world.empty_classic_group()
        world.log.gate = trio.Event()
        async with trio.open_nursery() as nursery:

            async def classic() -> None:
                await ignoring(world.join)

            async def consumer() -> None:
                await ignoring(world.beat, "member")

            for ask in (classic, consumer) if classic_first else (consumer, classic):
                nursery.start_soon(ask)
                await trio.testing.wait_all_tasks_blocked()
            world.log.gate.set()
            await trio.testing.wait_all_tasks_blocked()
            assert len(world.groups()) == 1
            nursery.cancel_scope.cancel()
        listed = world.groups()
    async with world.broker():
        assert [group for group, _ in world.groups()] == [group for group, _ in listed]


async def test_who_joins_a_group_that_is_being_deleted_is_watched(world: World, autojump_clock: Any) -> None:
    async with world.broker() as coordinator:
        await world.empty_consumer_group()
        world.log.gate = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ignoring, coordinator.delete_group, FIRST)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(ignoring, world.beat, "second")
            await trio.testing.wait_all_tasks_blocked()
            world.log.gate.set()
        await trio.sleep(60)  # longer than its session
        assert all(not coordinator.consumer_groups.describe(group).members for group, _ in world.groups())


async def test_a_deletion_that_nobody_waits_for_any_more_still_keeps_others_out(world: World) -> None:
    async with world.broker() as coordinator, trio.open_nursery() as nursery:
        await world.empty_classic_group()
        await world.commit(7)
        world.log.gate = trio.Event()
        connection = trio.CancelScope()

        async def delete() -> None:
            with connection:
                await coordinator.delete_group(FIRST)

        nursery.start_soon(delete)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(world.join)
        connection.cancel()
        await trio.testing.wait_all_tasks_blocked()
        world.log.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        group = coordinator.classic_groups.describe(FIRST)
        assert len(group.members) == 1
        assert group.generation_id == 1
        assert world.committed() is None
        nursery.cancel_scope.cancel()


async def test_an_empty_generation_is_stored_before_the_groups_end(world: World) -> None:
    async with world.broker() as coordinator:
        joined = await world.join()
        await world.sync(joined)
        await coordinator.classic_groups.leave(FIRST, joined.member_id, None)
        await coordinator.delete_group(FIRST)
        await trio.testing.wait_all_tasks_blocked()
    async with world.broker():
        assert world.groups() == []


async def test_locks_are_there_while_somebody_needs_them(autojump_clock: Any) -> None:
    locks = GroupLocks()
    order: list[int] = []

    async def work(number: int) -> None:
        async with locks.exclusively("g"):
            order.append(number)
            await trio.sleep(1)
            order.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(work, number)
            await trio.testing.wait_all_tasks_blocked(0.001)
        with trio.move_on_after(0.1):
            await work(9)
        assert len(locks) == 1
    assert order == [0, 0, 1, 1, 2, 2]
    assert len(locks) == 0


# Topics that are made again


async def test_what_is_committed_for_a_topic_that_was_made_again_stays(world: World) -> None:
    async with world.broker():
        for group in (FIRST, SECOND):
            await world.commit(7, group)
        world.log.gate = trio.Event()
        world.delete_topic()
        await trio.testing.wait_all_tasks_blocked()
        world.create_topic()
        commits = [world.begin_commit(42, group) for group in (FIRST, SECOND)]
        await trio.testing.wait_all_tasks_blocked()
        world.log.gate.set()
        for commit in commits:
            await commit.write.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert [world.committed(group) for group in (FIRST, SECOND)] == [42, 42]
    async with world.broker():
        assert [world.committed(group) for group in (FIRST, SECOND)] == [42, 42]


async def test_a_partition_that_refuses_does_not_keep_the_others_from_forgetting(
    world: World, autojump_clock: Any
) -> None:
    async with world.broker() as coordinator:
        for group in (FIRST, SECOND):
            await world.commit(7, group)
        refusing = coordinator.partition_for(FIRST)
        append = world.log.append

        async def refuse(partition: int, batch: bytes) -> int:
            if partition == refusing:
                raise CoordinatorNotAvailableError("no")
            offset: int = await append(partition, batch)
            return offset

        world.log.append = refuse
        world.delete_topic()
        await trio.testing.wait_all_tasks_blocked()
        assert world.kept() == 1
        world.log.append = append
        await trio.sleep(1.5 * CHECK_S)
        assert world.kept() == 0


@pytest.mark.parametrize("made_again", [False, True])
async def test_offsets_of_a_topic_that_was_deleted_before_a_kill_are_gone_after_it(
    world: World, *, made_again: bool
) -> None:
    async with world.broker():
        await world.commit(7)
        world.log.gate = trio.Event()
        world.delete_topic()
        if made_again:
            world.create_topic()
        assert world.committed() is None
    async with world.broker():
        assert world.committed() is None
        world.log.gate.set()
        await trio.testing.wait_all_tasks_blocked()
        assert world.kept() == 0


async def test_a_commit_that_comes_with_its_topics_deletion_goes_with_it_or_is_refused(world: World) -> None:
    async with world.broker() as coordinator:
        topic_id = world.image.topics["t"].topic_id
        world.log.gate = trio.Event()
        before = world.begin_commit(7)
        await trio.testing.wait_all_tasks_blocked()
        world.delete_topic()
        late = {T0: OffsetToCommit(8, -1, "", topic_id=topic_id)}
        assert isinstance((await coordinator.offsets.commit(FIRST, late))[T0], TopicDeletedError)
        await trio.testing.wait_all_tasks_blocked()
        world.log.gate.set()
        await before.write.wait()
        await trio.testing.wait_all_tasks_blocked()
        assert world.kept() == 0


async def test_a_deleted_topics_offset_in_an_open_transaction_does_not_take_the_new_ones_along(world: World) -> None:
    async with world.broker() as coordinator:
        await world.begin_commit(7, producer=Producer(5, 0)).write.wait()
        world.delete_topic()
        world.create_topic()
        await world.commit(42)
        await trio.testing.wait_all_tasks_blocked()
        assert world.committed() == 42
        await coordinator.offsets.complete_transaction(coordinator.partition_for(FIRST), EndTxnMarker(5, 0, 0, True))
        assert world.committed() == 42


# Open transactions


async def test_an_offset_of_a_transaction_is_refused_where_another_broker_may_have_ended_it(world: World) -> None:
    """Its marker is in the log already, and no other would come."""
    async with world.broker() as coordinator:
        partition = coordinator.partition_for(FIRST)
        with coordinator.offsets.watch_transaction(FIRST, 5) as guard:
            guard.check()
            coordinator.runtime.resign(partition)
            with pytest.raises(CoordinatorError):
                guard.check()
            coordinator.runtime.elect(partition)
            await trio.testing.wait_all_tasks_blocked()
            with pytest.raises(CoordinatorError):
                guard.check()
        with coordinator.offsets.watch_transaction(FIRST, 5) as guard:
            guard.check()


async def test_an_open_transaction_keeps_its_group(world: World, autojump_clock: Any) -> None:
    async with world.broker() as coordinator:
        await world.begin_commit(7, producer=Producer(5, 0)).write.wait()
        await trio.sleep(2.5 * CHECK_S)
        assert world.groups() == [(FIRST, "classic")]
        await coordinator.offsets.complete_transaction(coordinator.partition_for(FIRST), EndTxnMarker(5, 0, 0, True))
        assert (world.committed(), world.groups()) == (7, [(FIRST, "classic")])
        world.clock.advance(8 * DAY_MS)
        await trio.sleep(1.5 * CHECK_S)
        assert (world.committed(), world.groups(), world.kept()) == (None, [], 0)


async def test_a_deletion_takes_what_is_in_an_open_transaction(world: World) -> None:
    async with world.broker() as coordinator:
        await world.begin_commit(7, producer=Producer(5, 0)).write.wait()
        await coordinator.delete_group(FIRST)
        assert world.groups() == []
        await coordinator.offsets.complete_transaction(coordinator.partition_for(FIRST), EndTxnMarker(5, 0, 0, True))
        assert (world.committed(), world.groups()) == (None, [])


async def test_offsets_keep_their_group_when_its_members_kind_ends(world: World, autojump_clock: Any) -> None:
    async with world.broker() as coordinator:
        await world.empty_consumer_group()
        await world.commit(7)
        world.log.error = CoordinatorNotAvailableError("no")
        with pytest.raises(CoordinatorNotAvailableError):
            await world.join()
        world.log.error = None
        assert world.groups() == [(FIRST, "consumer")]
        joined = await world.join()
        await coordinator.classic_groups.leave(FIRST, joined.member_id, None)
        assert world.groups() == [(FIRST, "classic")]
    async with world.broker():
        assert (world.committed(), world.groups()) == (7, [(FIRST, "classic")])


# Members that do not do what they have to


async def test_who_does_not_revoke_is_removed_though_it_could_not_be_at_once(world: World, autojump_clock: Any) -> None:
    world.options = {"configs": AtOnce(GroupConfig())}
    topology = Topology(1, [Subtopology(subtopology_id="0", source_topics=["t"])])
    both = TaskSet({"0": frozenset({0, 1})})

    async with world.broker() as coordinator:

        async def beat(member_id: str, epoch: int, owned: TaskSet | None) -> int:
            given = None if epoch else topology
            said = StreamsHeartbeat(member_id, epoch, 0, None, "c", "/h", 5_000, given, owned, member_id, None, None)
            return int((await coordinator.streams_groups.heartbeat(FIRST, said)).member_epoch)

        epoch = await beat("a", 0, TaskSet())
        await beat("b", 0, TaskSet())
        epoch = await beat("a", epoch, both)
        world.log.error = CoordinatorNotAvailableError("the disk is full")
        await trio.sleep(6)
        world.log.error = None

        async def live_on() -> None:
            while True:
                await beat("a", epoch, both)
                await trio.sleep(1)

        with trio.fail_after(100), pytest.raises(UnknownMemberIdError):
            await live_on()


async def test_members_are_told_of_endpoints_though_two_coordinators_counted_alike(world: World) -> None:
    world.options = {"configs": AtOnce(GroupConfig())}
    said = StreamsHeartbeat(
        "a",
        0,
        0,
        None,
        "c",
        "/h",
        5_000,
        Topology(1, [Subtopology(subtopology_id="0", source_topics=["t"])]),
        TaskSet(),
        "a",
        Endpoint("h", 1),
        None,
    )
    async with world.broker() as coordinator:
        told = await coordinator.streams_groups.heartbeat(FIRST, said)
        said = said._replace(topology=None, owned=None)
        for _ in range(2):
            said = said._replace(member_epoch=told.member_epoch, endpoint_epoch=told.endpoint_epoch)
            told = await coordinator.streams_groups.heartbeat(FIRST, said)
        assert told.endpoints is None
    async with world.broker() as coordinator:
        # Others have moved as often as before, and this member has not.
        for _ in range(told.endpoint_epoch):
            coordinator.streams_groups.describe(FIRST).endpoints_changed()
        said = said._replace(endpoint_epoch=told.endpoint_epoch)
        assert (await coordinator.streams_groups.heartbeat(FIRST, said)).endpoints is not None


# The offsets' topic


async def test_a_topic_of_offsets_that_was_deleted_and_made_again_is_coordinated(world: World) -> None:
    """Both in one change: this node was cut off from the metadata store."""
    async with world.broker() as coordinator:
        await world.commit(7)
        former, made = (TopicImage(OFFSETS_TOPIC, UUID(int=number), (STATE,) * 2) for number in (1, 2))
        world.log.batches.clear()
        changes = [PartitionChange(made, index, None, STATE) for index in range(2)]
        coordinator.apply(
            MetadataDelta(
                world.image, world.image, deleted_topics=[former], created_topics=[made], changed_partitions=changes
            )
        )
        await trio.testing.wait_all_tasks_blocked()
        assert (world.committed(), world.groups()) == (None, [])


async def test_what_another_node_wrote_is_replayed_though_its_time_was_never_seen(world: World) -> None:
    """This node was cut off from the metadata store: it led before, it leads again, and hears of both at once."""
    async with world.broker() as coordinator:
        await world.commit(7)
        partition = coordinator.partition_for(FIRST)
        topic_id = world.image.topics["t"].topic_id
        (record,), _ = commit_records(
            FIRST,
            {T0: OffsetToCommit(9, -1, "", topic_id=topic_id)},
            metadata_max_size=0,
            now_ms=0,
            is_living=lambda topic_id: True,
        )
        batch = BatchBuilder()
        batch.append(key=record.key, value=record.value, timestamp_ms=0)
        world.log.store(partition, batch.build())
        topic = TopicImage(OFFSETS_TOPIC, UUID(int=1), (STATE,) * 2)
        again = STATE._replace(leader_epoch=STATE.leader_epoch + 2)
        change = PartitionChange(topic, partition, STATE, again)
        coordinator.apply(MetadataDelta(world.image, world.image, changed_partitions=[change]))
        await trio.testing.wait_all_tasks_blocked()
        assert world.committed() == 9


async def test_a_later_leader_epoch_alone_costs_a_coordinator_nothing(world: World) -> None:
    async with world.broker() as coordinator:
        shards = coordinator.runtime.shards()
        topic = TopicImage(OFFSETS_TOPIC, UUID(int=1), (STATE,) * 2)
        again = STATE._replace(leader_epoch=STATE.leader_epoch + 1)
        changes = [PartitionChange(topic, index, STATE, again) for index in range(2)]
        coordinator.apply(MetadataDelta(world.image, world.image, changed_partitions=changes))
        assert coordinator.runtime.shards() == shards
