"""The consumer protocol (KIP-848) over a log in memory and on the mock clock."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_DNS, UUID, uuid5

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    InconsistentGroupProtocolError,
    InvalidRegularExpressionError,
    NonEmptyGroupError,
    StaleMemberEpochError,
    UnknownMemberIdError,
    UnreleasedInstanceIdError,
)
from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.classic.member import Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerGroupState
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.modern.heartbeat import HeartbeatResult
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.topics import GroupTopics, compile_regex
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock

STATE = PartitionState.initial((1,))


class Topics(GroupTopics):
    """Topics that a test adds to, grows and removes."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        super().__init__(self)

    def set(self, **partitions: int) -> None:
        image = MetadataImage(revision=self.image.revision + 1)
        for name, count in partitions.items():
            topic = TopicImage(name=name, topic_id=topic_id(name), partitions=(STATE,) * count)
            image = MetadataImage(
                revision=image.revision,
                topics=image.topics.set(name, topic),
                topics_by_id=image.topics_by_id.set(topic.topic_id, topic),
            )
        self.image = image


def topic_id(name: str) -> UUID:
    return uuid5(NAMESPACE_DNS, name)


class Consumer:
    """One member as a client plays it: it owns what it was last assigned, unless a test says otherwise."""

    def __init__(self, world: "World", member_id: str, *names: str, **changes: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.names = frozenset(names)
        self.changes = changes
        self.epoch = 0
        self.owned: Assignment = {}

    async def join(self) -> HeartbeatResult:
        self.epoch, self.owned = 0, {}
        return await self.beat(topic_names=self.names, owned={}, rebalance_timeout_ms=60_000)

    async def beat(self, **changes: Any) -> HeartbeatResult:
        beat = Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=None,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=-1,
            topic_names=None,
            topic_regex=None,
            server_assignor=None,
            owned=self.owned,
        )._replace(**self.changes)
        answer = await self.world.coordinator.consumer_groups.heartbeat("g", beat._replace(**changes))
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment
        return answer

    @property
    def partitions(self) -> int:
        return sum(map(len, self.owned.values()))


class World:
    def __init__(self, log: Any, nursery: trio.Nursery, **config: Any) -> None:
        self.topics = Topics()
        self.topics.set(t=6)
        self.coordinator = GroupCoordinator(
            node_id=1,
            config=GroupConfig(offsets_topic_partitions=1, initial_rebalance_delay_ms=0)._replace(**config),
            clock=ManualClock(1_000),
            log=log,
            topics=self.topics,
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        offsets = TopicImage(name=OFFSETS_TOPIC, topic_id=topic_id(OFFSETS_TOPIC), partitions=(STATE,))
        change = PartitionChange(offsets, 0, None, STATE)
        self.coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=[change]))

    def state_now(self) -> ConsumerGroupState:
        return self.coordinator.consumer_groups.describe("g").state

    async def settle(self, *consumers: Consumer) -> None:
        """Heartbeat in turn until nothing moves any more. No partition may ever have two owners."""
        for _ in range(10):
            for consumer in consumers:
                await consumer.beat()
                owned = [
                    (topic, index) for each in consumers for topic, indexes in each.owned.items() for index in indexes
                ]
                assert len(owned) == len(set(owned))
            if self.state_now() is ConsumerGroupState.STABLE:
                return
        raise AssertionError("the group does not settle")


@pytest.fixture
async def world(log: Any) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(log, nursery)
        await trio.testing.wait_all_tasks_blocked()
        yield world
        nursery.cancel_scope.cancel()


async def test_the_first_member_gets_everything_at_once(world: World) -> None:
    consumer = Consumer(world, "a", "t")
    answer = await consumer.join()
    assert answer.member_epoch == 2
    assert answer.heartbeat_interval_ms == 5_000
    assert answer.assignment == {topic_id("t"): frozenset(range(6))}
    assert world.state_now() is ConsumerGroupState.STABLE
    assert (await consumer.beat()).assignment is None


async def test_a_second_member_waits_until_the_first_has_revoked(world: World) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    joined = await second.join()
    assert joined.assignment == {}
    assert world.state_now() is ConsumerGroupState.RECONCILING
    before = dict(first.owned)
    revoking = await first.beat()
    assert revoking.member_epoch == 2
    assert first.partitions == 3
    assert (await second.beat()).assignment is None
    still_owned = await first.beat(owned=before)
    assert still_owned.member_epoch == 2
    revoked = await first.beat()
    assert revoked.member_epoch == 3
    await second.beat()
    assert second.partitions == 3
    assert world.state_now() is ConsumerGroupState.STABLE


async def test_a_member_that_leaves_hands_its_partitions_on(world: World) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    await second.join()
    await world.settle(first, second)
    answer = await second.beat(member_epoch=-1)
    assert answer.member_epoch == -1
    await world.settle(first)
    assert first.partitions == 6


async def test_a_member_that_is_silent_is_removed(
    world: World, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    await second.join()
    await world.settle(first, second)
    for _ in range(5):
        await trio.sleep(10)
        await first.beat()
    await world.settle(first)
    assert first.partitions == 6
    with pytest.raises(UnknownMemberIdError):
        await second.beat()
    assert f"{second.member_id} (client.id 'client' at " in caplog.text


async def test_a_member_that_does_not_revoke_in_time_is_removed(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    everything = dict(first.owned)
    await second.join()
    for _ in range(7):
        await first.beat(owned=everything)
        await second.beat()
        await trio.sleep(9)
    with pytest.raises(UnknownMemberIdError):
        await first.beat(owned=everything)
    await world.settle(second)
    assert second.partitions == 6


async def test_an_answer_that_was_lost_may_be_asked_for_again(world: World) -> None:
    consumer = Consumer(world, "a", "t")
    await consumer.join()
    world.topics.set(t=8)
    await consumer.beat()
    assert consumer.epoch == 3
    again = await consumer.beat(member_epoch=2, owned={topic_id("t"): frozenset(range(6))})
    assert again.member_epoch == 3
    with pytest.raises(FencedMemberEpochError):
        await consumer.beat(member_epoch=2, owned={topic_id("t"): frozenset({99})})
    with pytest.raises(FencedMemberEpochError):
        await consumer.beat(member_epoch=7)


async def test_a_topic_that_grows_or_goes_changes_the_assignment(world: World) -> None:
    consumer = Consumer(world, "a", "t")
    await consumer.join()
    world.topics.set(t=9)
    await world.settle(consumer)
    assert consumer.partitions == 9
    world.topics.set(u=1)
    await world.settle(consumer)
    assert consumer.partitions == 0
    assert world.state_now() is ConsumerGroupState.STABLE


async def test_a_changed_subscription_changes_the_assignment(world: World) -> None:
    world.topics.set(t=2, u=3)
    consumer = Consumer(world, "a", "t")
    await consumer.join()
    await consumer.beat(topic_names=frozenset({"u"}))
    await world.settle(consumer)
    assert consumer.owned == {topic_id("u"): frozenset(range(3))}


async def test_a_regular_expression_matches_only_what_the_member_may_describe(world: World) -> None:
    world.topics.set(t1=1, t2=2, secret=4)
    allowed = {"t1"}
    consumer = Consumer(world, "a", may_describe=lambda name: name in allowed)
    await consumer.beat(topic_regex=".*", owned={}, rebalance_timeout_ms=60_000)
    assert set(consumer.owned) == {topic_id("t1")}
    allowed.add("t2")
    world.topics.image = replace(world.topics.image, revision=world.topics.image.revision + 1)  # as an entry raises it
    await world.settle(consumer)
    assert set(consumer.owned) == {topic_id("t1"), topic_id("t2")}


async def test_a_regular_expression_follows_the_topics(world: World) -> None:
    world.topics.set(t1=1, t2=2, u=4)
    consumer = Consumer(world, "a")
    await consumer.beat(topic_regex="t[0-9]", owned={}, rebalance_timeout_ms=60_000)
    assert consumer.owned == {topic_id("t1"): frozenset({0}), topic_id("t2"): frozenset({0, 1})}
    world.topics.set(t1=1, t2=2, t3=3, xt4=1, u=4)
    await world.settle(consumer)
    assert set(consumer.owned) == {topic_id("t1"), topic_id("t2"), topic_id("t3")}
    await consumer.beat(topic_regex="", topic_names=frozenset({"u"}))
    await world.settle(consumer)
    assert set(consumer.owned) == {topic_id("u")}


async def test_a_regular_expression_is_matched_again_when_the_metadata_was_moved(world: World, log: Any) -> None:
    """The revisions of the metadata store to which it was moved begin anew."""
    for _ in range(9):
        world.topics.set(t1=1)
    consumer = Consumer(world, "a")
    await consumer.beat(topic_regex="t[0-9]", owned={}, rebalance_timeout_ms=60_000)
    world.coordinator.runtime.close()
    async with trio.open_nursery() as nursery:
        consumer.world = World(log, nursery)
        consumer.world.topics.set(t1=1, t2=2)
        await trio.testing.wait_all_tasks_blocked()
        await consumer.world.settle(consumer)
        assert set(consumer.owned) == {topic_id("t1"), topic_id("t2")}
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("regex", ["(", "a{1,100000}", "x" * 5_000, "(?!look)ahead"])
def test_expressions_that_re2_refuses_are_refused(regex: str) -> None:
    with pytest.raises(InvalidRegularExpressionError):
        compile_regex(regex)


async def test_an_expression_is_read_when_it_is_known_whose_it_is(world: World) -> None:
    consumer, stranger = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await consumer.join()
    with pytest.raises(InvalidRegularExpressionError):
        await consumer.beat(topic_regex="(")
    with pytest.raises(FencedMemberEpochError):
        await consumer.beat(topic_regex="(", member_epoch=9)
    with pytest.raises(UnknownMemberIdError):
        await stranger.beat(topic_regex="(", member_epoch=1)
    assert (await consumer.beat(topic_regex="(", member_epoch=-1)).member_epoch == -1


async def test_the_assignor_that_most_prefer_is_used(world: World) -> None:
    world.topics.set(t=3, u=3)
    consumers = [Consumer(world, name, "t", "u", server_assignor="range") for name in ("a", "b")]
    for consumer in consumers:
        await consumer.join()
    await world.settle(*consumers)
    assert consumers[0].owned == {topic_id("t"): frozenset({0, 1}), topic_id("u"): frozenset({0, 1})}
    assert world.coordinator.consumer_groups.describe("g").assignor(("uniform", "range")) == "range"


async def test_a_restart_of_the_broker_changes_nothing(world: World, log: Any) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    await second.join()
    async with trio.open_nursery() as nursery:
        again = World(log, nursery)
        await trio.testing.wait_all_tasks_blocked()
        before = world.coordinator.consumer_groups.describe("g")
        after = again.coordinator.consumer_groups.describe("g")
        for name in ("group_epoch", "target_epoch", "target", "owners", "metadata_hash", "static_members"):
            assert getattr(after, name) == getattr(before, name)
        for member_id, member in before.members.items():
            assert after.members[member_id].subscription == member.subscription
            assert after.members[member_id].current == member.current
        first.world = second.world = again
        await again.settle(first, second)
        assert (first.partitions, second.partitions) == (3, 3)
        nursery.cancel_scope.cancel()


async def test_a_heartbeat_that_cannot_be_stored_changes_nothing(world: World, log: Any) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    log.error = CoordinatorNotAvailableError("the disk is full")
    with pytest.raises(CoordinatorNotAvailableError):
        await second.join()
    log.error = None
    assert list(world.coordinator.consumer_groups.describe("g").members) == ["a"]
    await second.join()
    await world.settle(first, second)


async def test_a_group_whose_first_join_fails_does_not_exist(world: World, log: Any) -> None:
    log.error = CoordinatorNotAvailableError("the disk is full")
    with pytest.raises(CoordinatorNotAvailableError):
        await Consumer(world, "a", "t").join()
    with pytest.raises(GroupIdNotFoundError):
        world.coordinator.consumer_groups.describe("g")


async def test_members_that_nobody_knows_are_refused(world: World) -> None:
    with pytest.raises(GroupIdNotFoundError):
        await Consumer(world, "a", "t").beat(member_epoch=3)
    await Consumer(world, "a", "t").join()
    with pytest.raises(UnknownMemberIdError):
        await Consumer(world, "b", "t").beat(member_epoch=3)
    with pytest.raises(UnknownMemberIdError):
        await Consumer(world, "b", "t").beat(member_epoch=-1)


async def test_a_full_group_takes_no_more(log: Any) -> None:
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, consumer_max_size=1)
        await trio.testing.wait_all_tasks_blocked()
        await Consumer(world, "a", "t").join()
        with pytest.raises(GroupMaxSizeReachedError):
            await Consumer(world, "b", "t").join()
        nursery.cancel_scope.cancel()


class TestStaticMembers:
    async def test_one_that_left_for_a_while_gets_its_partitions_back(self, world: World) -> None:
        first, second = Consumer(world, "a", "t", instance_id="i"), Consumer(world, "b", "t")
        await first.join()
        await second.join()
        await world.settle(first, second)
        before = first.owned
        assert (await first.beat(member_epoch=-2)).member_epoch == -2
        await second.beat()
        assert second.partitions == 3
        again = Consumer(world, "c", "t", instance_id="i")
        await again.join()
        assert again.owned == before
        assert world.state_now() is ConsumerGroupState.STABLE

    async def test_an_instance_id_that_is_held_is_refused(self, world: World) -> None:
        await Consumer(world, "a", "t", instance_id="i").join()
        with pytest.raises(UnreleasedInstanceIdError):
            await Consumer(world, "b", "t", instance_id="i").join()
        with pytest.raises(FencedInstanceIdError):
            await Consumer(world, "b", "t", instance_id="i").beat(member_epoch=1)


class TestOffsets:
    async def test_the_epoch_of_a_commit_is_checked(self, world: World) -> None:
        consumer = Consumer(world, "a", "t")
        await consumer.join()
        partition = TopicPartition("t", 0)
        offsets: Mapping[TopicPartition, OffsetToCommit] = {partition: OffsetToCommit(5, -1, "")}
        await world.coordinator.offsets.commit("g", offsets, member_id="a", generation_id=2)
        with pytest.raises(StaleMemberEpochError):
            await world.coordinator.offsets.commit("g", offsets, member_id="a", generation_id=0)
        with pytest.raises(UnknownMemberIdError):
            await world.coordinator.offsets.commit("g", offsets, member_id="b", generation_id=2)
        with pytest.raises(UnknownMemberIdError):
            await world.coordinator.offsets.commit("g", offsets)
        with pytest.raises(StaleMemberEpochError):
            world.coordinator.offsets.fetch("g", None, require_stable=False, member_id="a", member_epoch=7)
        found = world.coordinator.offsets.fetch("g", None, require_stable=False, member_id="a", member_epoch=2)
        assert list(found) == [partition]


class TestTwoProtocols:
    def classic(self) -> JoinRequest:
        return JoinRequest(
            member_id="",
            group_instance_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=[Protocol("range", b"")],
            known_member_id_required=False,
            supports_skipping_assignment=True,
        )

    async def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(self, world: World) -> None:
        joined = await world.coordinator.classic_groups.join("g", self.classic())
        with pytest.raises(GroupIdNotFoundError):
            await Consumer(world, "a", "t").join()
        await world.coordinator.classic_groups.leave("g", joined.member_id, None)
        await trio.testing.wait_all_tasks_blocked()
        await world.coordinator.offsets.commit("g", {TopicPartition("t", 0): OffsetToCommit(5, -1, "")})
        await Consumer(world, "a", "t").join()
        assert [each.group_type for each in world.coordinator.list_groups()] == ["consumer"]
        assert list(world.coordinator.offsets.fetch("g", None, require_stable=False)) == [TopicPartition("t", 0)]

    async def test_an_empty_consumer_group_becomes_a_classic_one(self, world: World, log: Any) -> None:
        consumer = Consumer(world, "a", "t")
        await consumer.join()
        with pytest.raises(InconsistentGroupProtocolError):
            await world.coordinator.classic_groups.join("g", self.classic())
        await consumer.beat(member_epoch=-1)
        await world.coordinator.classic_groups.join("g", self.classic())
        assert [each.group_type for each in world.coordinator.list_groups()] == ["classic"]

    async def test_only_an_empty_group_is_deleted_and_stays_so(self, world: World, log: Any) -> None:
        consumer = Consumer(world, "a", "t")
        await consumer.join()
        with pytest.raises(NonEmptyGroupError):
            await world.coordinator.delete_group("g")
        await consumer.beat(member_epoch=-1)
        assert world.state_now() is ConsumerGroupState.EMPTY
        await world.coordinator.delete_group("g")
        async with trio.open_nursery() as nursery:
            again = World(log, nursery)
            await trio.testing.wait_all_tasks_blocked()
            assert list(again.coordinator.list_groups()) == []
            nursery.cancel_scope.cancel()


async def test_a_static_member_that_goes_away_in_a_rebalance_has_its_session_to_come_back(
    world: World, autojump_clock: trio.testing.MockClock
) -> None:
    """Also if its rebalance timeout, for what it was to revoke, is shorter."""
    first, second = Consumer(world, "a", "t", instance_id="i"), Consumer(world, "b", "t")
    await first.beat(topic_names=first.names, owned={}, rebalance_timeout_ms=5_000)
    await second.join()
    assert (await first.beat()).member_epoch == 2
    assert first.partitions == 3
    await first.beat(member_epoch=-2)
    await trio.sleep(20)
    await second.beat()
    group = world.coordinator.consumer_groups.describe("g")
    assert set(group.members) == {"a", "b"}
    back = Consumer(world, "c", "t", instance_id="i")
    assert (await back.join()).member_epoch == 3
    assert back.partitions == 3
    await trio.sleep(40)
    await second.beat()
    assert set(group.members) == {"b", "c"}


async def test_the_epoch_before_is_good_for_a_lost_answer_alone(world: World) -> None:
    first, second = Consumer(world, "a", "t"), Consumer(world, "b", "t")
    await first.join()
    await second.join()
    await world.settle(first, second)
    assert (await first.beat(member_epoch=2)).member_epoch == 3
    # It was told to revoke at epoch 3: it knows that epoch.
    await Consumer(world, "c", "t").join()
    await first.beat()
    for owned in (first.owned, None, {}):
        with pytest.raises(FencedMemberEpochError):
            await first.beat(member_epoch=2, owned=owned)


async def test_a_static_member_that_comes_back_needs_no_place_of_its_own(log: Any) -> None:
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, consumer_max_size=1)
        await trio.testing.wait_all_tasks_blocked()
        first = Consumer(world, "a", "t", instance_id="i")
        await first.join()
        with pytest.raises(GroupMaxSizeReachedError):
            await Consumer(world, "b", "t", instance_id="j").join()
        await first.beat(member_epoch=-2)
        assert (await Consumer(world, "b", "t", instance_id="i").join()).member_epoch == 2
        nursery.cancel_scope.cancel()
