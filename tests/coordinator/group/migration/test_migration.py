"""Online migration between the protocols (KIP-848), over a log in memory and on the mock clock."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorNotAvailableError,
    FencedInstanceIdError,
    GroupIdNotFoundError,
    GroupMaxSizeReachedError,
    IllegalGenerationError,
    InconsistentGroupProtocolError,
    InvalidRegularExpressionError,
    MemberIdRequiredError,
    RebalanceInProgressError,
    StaleMemberEpochError,
    UnknownMemberIdError,
)
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.classic.member import Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.consumer.group import ConsumerGroupState
from ottla.coordinator.group.consumer.protocol import Heartbeat
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.migration.policy import MigrationPolicy
from ottla.coordinator.group.offset_and_metadata import OffsetToCommit, TopicPartition
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records.consumer_protocol import (
    AssignedTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    build_consumer_protocol,
    parse_consumer_protocol,
)
from ottla.kproto.internal_records.consumer_protocol import (
    TopicPartition as OwnedPartitions,
)
from ottla.kproto.records import iter_batches, iter_records
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock

STATE = PartitionState.initial((1,))
T = uuid5(NAMESPACE_DNS, "t")
PARTITIONS = 6


class World:
    """A coordinator that leads one partition of `__consumer_offsets`, and a topic `t`."""

    def __init__(self, log: Any, nursery: trio.Nursery, **config: Any) -> None:
        topic = TopicImage(name="t", topic_id=T, partitions=(STATE,) * PARTITIONS)
        image = MetadataImage(revision=1)
        image = MetadataImage(
            revision=1, topics=image.topics.set("t", topic), topics_by_id=image.topics_by_id.set(T, topic)
        )
        self.log = log
        self.clock = ManualClock(1_000)
        self.coordinator = GroupCoordinator(
            node_id=1,
            config=GroupConfig(offsets_topic_partitions=1, initial_rebalance_delay_ms=0)._replace(**config),
            clock=self.clock,
            log=log,
            topics=GroupTopics(CoordinatorMetadata(image)),
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        offsets = TopicImage(name=OFFSETS_TOPIC, topic_id=uuid5(NAMESPACE_DNS, "o"), partitions=(STATE,))
        change = PartitionChange(offsets, 0, None, STATE)
        self.coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=[change]))

    def kind(self) -> str:
        """The type of the group, as ListGroups says it."""
        return next(listing.group_type for listing in self.coordinator.list_groups() if listing.group_id == "g")

    def stored(self, first: int = 0) -> Iterator[tuple[str, bool]]:
        """What lies in the log from a batch on: the name of each record's key, and whether it is a tombstone."""
        for batch in self.log.batches[0][first:]:
            for position, header in iter_batches(batch):
                for record in iter_records(batch, position, header):
                    assert record.key is not None
                    key, value = record_types(OFFSETS_TOPIC).parse(record.key, record.value)
                    yield type(key).__name__, value is None


@asynccontextmanager
async def running(log: Any, **config: Any) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(log, nursery, **config)
        await trio.testing.wait_all_tasks_blocked()
        yield world
        nursery.cancel_scope.cancel()


@pytest.fixture
async def world(log: Any) -> AsyncIterator[World]:
    async with running(log) as world:
        yield world


class Native:
    """A member of the consumer protocol; it owns what it was last assigned."""

    def __init__(self, world: World, member_id: str = "native", instance_id: str | None = None) -> None:
        self.world = world
        self.member_id = member_id
        self.instance_id = instance_id
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()

    async def join(self) -> None:
        self.epoch, self.owned = 0, frozenset()
        await self.beat(topic_names=frozenset({"t"}), rebalance_timeout_ms=60_000, owned={})

    async def beat(self, **changes: Any) -> None:
        beat = Heartbeat(
            member_id=self.member_id,
            member_epoch=self.epoch,
            instance_id=self.instance_id,
            rack_id=None,
            client_id="client",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=-1,
            topic_names=None,
            topic_regex=None,
            server_assignor=None,
            owned={T: self.owned} if self.owned else {},
        )
        answer = await self.world.coordinator.consumer_groups.heartbeat("g", beat._replace(**changes))
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.get(T, frozenset())

    async def leave(self) -> None:
        await self.beat(member_epoch=-1)
        self.owned = frozenset()


class Classic:
    """A consumer of the classic protocol, cooperative unless it is told to be eager."""

    def __init__(self, world: World, instance_id: str | None = None, *, eager: bool = False) -> None:
        self.world = world
        self.instance_id = instance_id
        self.eager = eager
        self.member_id = ""
        self.generation = -1
        self.owned: frozenset[int] = frozenset()
        self.revoked = False

    @property
    def protocols(self) -> list[Protocol]:
        owned = [OwnedPartitions(topic="t", partitions=sorted(self.owned))] if self.owned and not self.eager else []
        said = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
        return [Protocol("range" if self.eager else "cooperative-sticky", build_consumer_protocol(said, 1))]

    def request(self, **changes: Any) -> JoinRequest:
        request = JoinRequest(
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            client_id="classic",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=self.protocols,
            known_member_id_required=self.instance_id is None,
            supports_skipping_assignment=True,
        )
        return request._replace(**changes)

    async def join(self) -> Any:
        """JoinGroup; the leader's answer has members."""
        try:
            answer = await self.world.coordinator.classic_groups.join("g", self.request())
        except MemberIdRequiredError as required:
            self.member_id = required.member_id
            answer = await self.world.coordinator.classic_groups.join("g", self.request())
        self.member_id, self.generation = answer.member_id, answer.generation_id
        return answer

    async def sync(self, assignments: dict[str, bytes] | None = None) -> None:
        answer = await self.world.coordinator.classic_groups.sync(
            "g",
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id=self.generation,
            protocol_type="consumer",
            protocol_name=self.protocols[0].name,
            assignments=assignments or {},
        )
        topics = parse_consumer_protocol(ConsumerProtocolAssignment, answer.assignment).assigned_partitions
        assigned = frozenset(topics[0].partitions if topics else ())
        self.revoked = bool(self.owned - assigned)
        self.owned = assigned

    async def start(self) -> None:
        """Join a classic group as its only, or leading, member and take everything."""
        answer = await self.join()
        await self.sync(shares(answer))

    def beat(self) -> None:
        self.world.coordinator.classic_groups.heartbeat(
            "g", member_id=self.member_id, group_instance_id=self.instance_id, generation_id=self.generation
        )

    async def turn(self) -> bool:
        """What a client does when it is time to heartbeat; says whether it had to rejoin."""
        try:
            self.beat()
            if not self.revoked:
                return False
        except RebalanceInProgressError:
            pass
        if self.eager:
            self.owned = frozenset()
        await self.join()
        await self.sync()
        return True

    async def leave(self) -> None:
        await self.world.coordinator.classic_groups.leave("g", self.member_id, self.instance_id)

    async def commit(self, generation: int | None = None, partition: int = 0, offset: int = 7) -> None:
        where = TopicPartition("t", partition)
        refused = await self.world.coordinator.offsets.commit(
            "g",
            {where: OffsetToCommit(offset, -1, "", topic_id=T)},
            member_id=self.member_id,
            group_instance_id=self.instance_id,
            generation_id=self.generation if generation is None else generation,
            knows_epochs=False,
        )
        assert not refused


def shares(answer: Any) -> dict[str, bytes]:
    """The leader's assignment: the partitions in turn."""
    members = [member.member_id for member in answer.members]
    return {
        member_id: build_consumer_protocol(
            ConsumerProtocolAssignment(
                assigned_partitions=[
                    AssignedTopicPartition(topic="t", partitions=list(range(index, PARTITIONS, len(members))))
                ]
            ),
            1,
        )
        for index, member_id in enumerate(members)
    }


async def settle(world: World, *members: Native | Classic) -> None:
    """Everyone in turn until nothing moves. No partition has two owners, and in the end each has one."""
    for _ in range(12):
        moved = False
        for member in members:
            if isinstance(member, Native):
                before = member.epoch, member.owned
                await member.beat()
                moved |= before != (member.epoch, member.owned)
            else:
                moved |= await member.turn()
            held = [index for each in members for index in each.owned]
            assert len(held) == len(set(held))
        if not moved:
            assert sorted(held) == list(range(PARTITIONS))
            return
    raise AssertionError("the group does not settle")


async def upgraded(world: World, *, eager: bool = False) -> tuple[Classic, Native]:
    """A classic consumer with everything, then one of the consumer protocol; both have their half."""
    classic, native = Classic(world, eager=eager), Native(world)
    await classic.start()
    assert len(classic.owned) == PARTITIONS
    assert world.kind() == "classic"
    await native.join()
    assert world.kind() == "consumer"
    await settle(world, classic, native)
    assert (len(classic.owned), len(native.owned)) == (3, 3)
    return classic, native


@pytest.mark.parametrize("eager", [False, True])
async def test_there_and_back(world: World, eager: bool) -> None:
    classic, native = await upgraded(world, eager=eager)
    await classic.commit()
    await native.leave()
    assert world.kind() == "classic"
    group = world.coordinator.classic_groups.describe("g")
    assert group.state is ClassicState.PREPARING_REBALANCE
    with pytest.raises(RebalanceInProgressError):
        classic.beat()
    before = classic.generation
    await classic.start()
    assert classic.generation > before
    assert len(classic.owned) == PARTITIONS
    classic.beat()
    stored = world.coordinator.offsets.fetch("g", [TopicPartition("t", 0)], require_stable=True)
    assert [offset.offset for offset in stored.values()] == [7]  # type: ignore[union-attr]


async def test_the_members_keep_working_until_they_rejoin(world: World) -> None:
    classic, native = Classic(world), Native(world)
    await classic.start()
    await native.join()
    assert native.owned == frozenset()  # everything is still the classic member's
    await classic.commit()
    with pytest.raises(RebalanceInProgressError):
        classic.beat()
    await classic.commit()


async def test_a_conversion_is_one_batch_of_kafkas_records(world: World) -> None:
    classic, native = Classic(world), Native(world)
    await classic.start()
    batches = len(world.log.batches[0])
    await native.join()
    upgrade = len(list(world.log.batches[0][batches:]))
    assert upgrade == 2  # the conversion, then the member for whose sake it was done
    assert list(world.stored(batches))[:6] == [
        ("GroupMetadataKey", True),
        ("ConsumerGroupMemberMetadataKey", False),
        ("ConsumerGroupMetadataKey", False),
        ("ConsumerGroupTargetAssignmentMemberKey", False),
        ("ConsumerGroupTargetAssignmentMetadataKey", False),
        ("ConsumerGroupCurrentMemberAssignmentKey", False),
    ]
    await settle(world, classic, native)
    batches = len(world.log.batches[0])
    world.log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(native.leave)
        await trio.testing.wait_all_tasks_blocked()
        assert world.kind() == "consumer"
        world.log.gate.set()
    *tombstones, last = list(world.stored(batches))
    assert last == ("GroupMetadataKey", False)
    assert all(is_tombstone for _, is_tombstone in tombstones)
    assert [name for name, _ in tombstones].count("ConsumerGroupMemberMetadataKey") == 2
    assert tombstones[-1] == ("ConsumerGroupMetadataKey", True)
    assert len(world.log.batches[0]) == batches + 1


async def test_a_restart_in_the_middle(log: Any) -> None:
    async with running(log) as world:
        classic, native = await upgraded(world)
    async with running(log) as world:
        assert world.kind() == "consumer"
        group = world.coordinator.consumer_groups.describe("g")
        assert {member.member_id: member.classic is not None for member in group.members.values()} == {
            classic.member_id: True,
            "native": False,
        }
        classic.world = native.world = world
        classic.beat()
        await native.beat()
        await classic.commit()
        await native.leave()
        assert world.kind() == "classic"
    async with running(log) as world:
        assert world.kind() == "classic"
        classic.world = world
        answer = await classic.join()
        assert answer.leader == classic.member_id
        await classic.sync(shares(answer))
        assert len(classic.owned) == PARTITIONS


@pytest.mark.parametrize("policy", [MigrationPolicy.DISABLED, MigrationPolicy.DOWNGRADE])
async def test_no_upgrade_where_the_policy_forbids_it(log: Any, policy: MigrationPolicy) -> None:
    async with running(log, consumer_migration_policy=policy) as world:
        classic = Classic(world)
        await classic.start()
        with pytest.raises(GroupIdNotFoundError):
            await Native(world).join()
        assert world.kind() == "classic"
        classic.beat()


async def test_no_downgrade_where_the_policy_forbids_it(log: Any) -> None:
    async with running(log, consumer_migration_policy=MigrationPolicy.UPGRADE) as world:
        classic, native = await upgraded(world)
        await native.leave()
        assert world.kind() == "consumer"
        await settle(world, classic)
        assert len(classic.owned) == PARTITIONS


async def test_other_groups_than_those_of_consumers_are_not_upgraded(world: World) -> None:
    classic = Classic(world)
    request = classic.request(protocol_type="connect", known_member_id_required=False)
    await world.coordinator.classic_groups.join("g", request)
    with pytest.raises(GroupIdNotFoundError):
        await Native(world).join()
    assert world.kind() == "classic"


async def test_a_subscription_that_cannot_be_read_is_not_upgraded(world: World) -> None:
    classic = Classic(world)
    request = classic.request(protocols=[Protocol("range", b"?")], known_member_id_required=False)
    await world.coordinator.classic_groups.join("g", request)
    with pytest.raises(GroupIdNotFoundError):
        await Native(world).join()


async def test_a_member_that_is_refused_leaves_a_classic_group_behind(log: Any) -> None:
    async with running(log, consumer_max_size=1) as world:
        classic = Classic(world)
        await classic.start()
        with pytest.raises(GroupMaxSizeReachedError):
            await Native(world).join()
        assert world.kind() == "classic"
        classic.beat()
        await classic.commit()


async def test_a_refused_member_leaves_a_classic_group_whatever_the_policy(log: Any) -> None:
    async with running(log, consumer_max_size=1, consumer_migration_policy=MigrationPolicy.UPGRADE) as world:
        classic = Classic(world)
        await classic.start()
        with pytest.raises(GroupMaxSizeReachedError):
            await Native(world).join()
        assert world.kind() == "classic"
        classic.beat()


async def test_an_expression_that_cannot_be_read_disturbs_no_classic_group(world: World) -> None:
    classic = Classic(world)
    await classic.start()
    written = len(world.log.batches[0])
    with pytest.raises(InvalidRegularExpressionError):
        await Native(world).beat(topic_regex="(", rebalance_timeout_ms=60_000, owned={})
    assert len(world.log.batches[0]) == written
    classic.beat()


async def test_a_member_that_goes_while_the_group_is_upgraded_leaves_a_classic_group(world: World) -> None:
    classic = Classic(world)
    await classic.start()
    world.log.gate = trio.Event()
    scope = trio.CancelScope()

    async def join() -> None:
        with scope:
            await Native(world).beat(topic_regex="t.*", rebalance_timeout_ms=60_000, owned={})
        assert scope.cancelled_caught

    async with trio.open_nursery() as nursery:
        nursery.start_soon(join)
        await trio.testing.wait_all_tasks_blocked()
        scope.cancel()
        world.log.gate.set()
    assert world.kind() == "classic"
    classic.beat()
    await classic.commit()
    # The next one upgrades it after all.
    native = Native(world)
    await native.join()
    await settle(world, classic, native)


async def test_a_group_too_large_for_the_other_protocol_stays_as_it_is(log: Any) -> None:
    async with running(log, max_size=1, consumer_max_size=3) as world:
        classic, native = await upgraded(world)
        other = Classic(world)
        await other.join()
        await other.sync()
        await settle(world, classic, other, native)
        await native.leave()
        assert world.kind() == "consumer"
        await settle(world, classic, other)


async def test_whoever_waits_for_a_classic_rebalance_is_told_to_rejoin(log: Any) -> None:
    async with running(log) as world:
        first, second, native = Classic(world), Classic(world), Native(world)
        await first.start()
        told: list[Exception] = []

        async def join() -> None:
            try:
                await second.join()
            except CoordinatorError as error:
                told.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(join)  # waits for the first one, which does not come
            await trio.testing.wait_all_tasks_blocked()
            await native.join()
        assert [type(error) for error in told] == [RebalanceInProgressError]
        assert world.kind() == "consumer"
        await second.join()
        await second.sync()
        await settle(world, first, second, native)
        assert {len(member.owned) for member in (first, second, native)} == {2}


async def test_a_failed_upgrade_leaves_the_classic_group(world: World) -> None:
    classic = Classic(world)
    await classic.start()
    world.log.error = CoordinatorNotAvailableError("no")
    with pytest.raises(CoordinatorNotAvailableError):
        await Native(world).join()
    world.log.error = None
    assert world.kind() == "classic"
    classic.beat()
    await classic.commit()


async def test_a_failed_downgrade_leaves_the_consumer_group(world: World) -> None:
    classic, native = await upgraded(world)
    world.log.error = CoordinatorNotAvailableError("no")
    with pytest.raises(CoordinatorNotAvailableError):
        await native.leave()
    world.log.error = None
    assert world.kind() == "consumer"
    classic.beat()
    await native.beat()
    await native.leave()
    assert world.kind() == "classic"


async def test_a_native_member_that_vanishes_lets_the_group_go_back(world: World, autojump_clock: Any) -> None:
    classic, _ = await upgraded(world)
    for _ in range(50):
        await trio.sleep(1)
        if world.kind() == "classic":
            break
        await classic.turn()
    assert world.kind() == "classic"
    await classic.start()
    assert len(classic.owned) == PARTITIONS


async def test_a_classic_member_that_vanishes_is_removed_after_its_own_session(
    world: World, autojump_clock: Any
) -> None:
    classic, native = await upgraded(world)
    for _ in range(9):
        await trio.sleep(1)
        await native.beat()
    assert len(world.coordinator.consumer_groups.describe("g").members) == 2
    await trio.sleep(2)
    assert len(world.coordinator.consumer_groups.describe("g").members) == 1
    await settle(world, native)
    with pytest.raises(UnknownMemberIdError):
        classic.beat()


async def still_a_member(native: Native, classic: Classic) -> bool:
    """A second passes in which both heartbeat, and the classic member does nothing else."""
    await trio.sleep(1)
    await native.beat()
    try:
        with suppress(RebalanceInProgressError):
            classic.beat()
    except UnknownMemberIdError:
        return False
    return True


async def test_a_classic_member_that_never_rejoins_is_removed(world: World, autojump_clock: Any) -> None:
    classic, native = Classic(world), Native(world)
    await classic.start()
    await native.join()
    while await still_a_member(native, classic):
        assert trio.current_time() < 70
    assert trio.current_time() > 60
    await settle(world, native)


async def test_a_classic_member_that_never_syncs_is_removed(world: World, autojump_clock: Any) -> None:
    _, native = await upgraded(world)
    other = Classic(world)
    await other.join()
    while await still_a_member(native, other):
        assert trio.current_time() < 70
    assert trio.current_time() > 59


async def test_classic_members_leave_with_leave_group(world: World) -> None:
    classic, native = await upgraded(world)
    await classic.leave()
    assert world.kind() == "consumer"
    await settle(world, native)
    with pytest.raises(UnknownMemberIdError):
        await classic.leave()


async def test_what_classic_members_are_refused(world: World) -> None:
    classic, native = await upgraded(world)
    for member_id, generation, refusal in (
        ("stranger", classic.generation, UnknownMemberIdError),
        ("native", native.epoch, UnknownMemberIdError),
        (classic.member_id, classic.generation - 1, IllegalGenerationError),
        (classic.member_id, classic.generation + 1, IllegalGenerationError),
    ):
        with pytest.raises(refusal):
            world.coordinator.classic_groups.heartbeat(
                "g", member_id=member_id, group_instance_id=None, generation_id=generation
            )
        for protocol_type, name in (("consumer", "cooperative-sticky"), (None, None)):
            with pytest.raises(refusal):
                await world.coordinator.classic_groups.sync(
                    "g",
                    member_id=member_id,
                    group_instance_id=None,
                    generation_id=generation,
                    protocol_type=protocol_type,
                    protocol_name=name,
                    assignments={},
                )
    for protocol_type, name in (("connect", "cooperative-sticky"), ("consumer", "range")):
        with pytest.raises(InconsistentGroupProtocolError):
            await world.coordinator.classic_groups.sync(
                "g",
                member_id=classic.member_id,
                group_instance_id=None,
                generation_id=classic.generation,
                protocol_type=protocol_type,
                protocol_name=name,
                assignments={},
            )
    other = Classic(world, eager=True)  # has only range, and the other one only cooperative-sticky
    with pytest.raises(InconsistentGroupProtocolError):
        await world.coordinator.classic_groups.join("g", other.request())
    with pytest.raises(InconsistentGroupProtocolError):
        await world.coordinator.classic_groups.join("g", classic.request(protocol_type="connect"))
    with pytest.raises(InconsistentGroupProtocolError):
        await world.coordinator.classic_groups.join(
            "g", classic.request(protocols=[Protocol("cooperative-sticky", b"?")], known_member_id_required=False)
        )
    with pytest.raises(UnknownMemberIdError):
        await world.coordinator.classic_groups.join("g", classic.request(group_instance_id="i"))


async def test_commits_of_classic_members_in_a_consumer_group(world: World) -> None:
    classic, native = Classic(world), Native(world)
    await classic.start()
    first = classic.generation
    await native.join()
    await settle(world, classic, native)
    held = min(classic.owned)
    await classic.commit(partition=held)
    await classic.commit(generation=first, partition=held)  # held since then (KIP-1251)
    with pytest.raises(IllegalGenerationError):
        await classic.commit(generation=first, partition=min(native.owned))
    with pytest.raises(IllegalGenerationError):
        await classic.commit(generation=classic.generation + 1)


async def test_commits_with_an_epoch_before_the_current_one(world: World) -> None:
    """KIP-1251: good for the partitions that the member has held since."""
    native = Native(world)
    await native.join()
    first = native.epoch
    other = Native(world, "other")
    await other.join()
    await settle(world, native, other)
    assert native.epoch > first

    async def commit(member: Native, epoch: int, partition: int) -> None:
        await world.coordinator.offsets.commit(
            "g",
            {TopicPartition("t", partition): OffsetToCommit(1, -1, "", topic_id=T)},
            member_id=member.member_id,
            generation_id=epoch,
        )

    await commit(native, first, min(native.owned))
    for member, epoch, partition in (
        (native, first, min(other.owned)),
        (native, native.epoch + 1, min(native.owned)),
        (other, first, min(other.owned)),
    ):
        with pytest.raises(StaleMemberEpochError):
            await commit(member, epoch, partition)


async def test_a_static_classic_member_restarts(world: World) -> None:
    classic, native = Classic(world, "i"), Native(world)
    await classic.start()
    await native.join()
    await settle(world, classic, native)
    again = Classic(world, "i")
    again.owned = frozenset()
    await again.join()
    assert again.member_id != classic.member_id
    await again.sync()
    assert again.owned == classic.owned
    with pytest.raises(FencedInstanceIdError):
        classic.beat()
    with pytest.raises(FencedInstanceIdError):
        await world.coordinator.classic_groups.join("g", classic.request())
    await settle(world, again, native)


async def test_the_last_native_member_comes_back_as_a_classic_one(world: World) -> None:
    """As when static members are rolled back one after the other."""
    classic, native = Classic(world), Native(world, instance_id="i")
    await classic.start()
    await native.join()
    await settle(world, classic, native)
    await native.beat(member_epoch=-2)
    assert world.kind() == "consumer"
    rolled_back = Classic(world, "i")
    await rolled_back.join()
    assert world.kind() == "classic"
    await rolled_back.sync()
    assert rolled_back.owned == native.owned
    classic.beat()
    rolled_back.beat()


async def test_a_group_that_goes_back_with_an_outdated_target_rebalances(log: Any) -> None:
    async with running(log, consumer_assignment_interval_ms=1_000) as world:
        classic, native = Classic(world), Native(world, instance_id="i")
        await classic.start()
        await native.join()
        await settle(world, classic, native)
        await native.beat(member_epoch=-2)
        await Classic(world).join()
        group = world.coordinator.consumer_groups.describe("g")
        assert group.group_epoch > group.target_epoch
        rolled_back = Classic(world, "i")
        await rolled_back.join()
        assert world.kind() == "classic"
        assert world.coordinator.classic_groups.describe("g").is_in(ClassicState.PREPARING_REBALANCE)


async def test_a_classic_member_becomes_a_native_one(world: World) -> None:
    classic, native = await upgraded(world)
    same = Native(world, classic.member_id)
    await same.join()
    group = world.coordinator.consumer_groups.describe("g")
    assert all(member.classic is None for member in group.members.values())
    await settle(world, same, native)
    assert group.state is ConsumerGroupState.STABLE


async def test_members_that_join_in_quick_succession_share_one_target(log: Any) -> None:
    """`group.consumer.assignment.interval.ms` lies between two assignments."""
    async with running(log, consumer_assignment_interval_ms=1_000) as world:
        members = [Native(world, f"m{number}") for number in range(3)]
        await members[0].join()
        assert len(members[0].owned) == PARTITIONS
        for member in members[1:]:
            await member.join()
            await members[0].beat()
        group = world.coordinator.consumer_groups.describe("g")
        assert group.state is ConsumerGroupState.ASSIGNING
        assert len(members[0].owned) == PARTITIONS
        world.clock.advance(1_000)
        await settle(world, *members)
        assert {len(member.owned) for member in members} == {2}
        world.clock.advance(-1_000_000)  # set back: nobody waits until it has caught up
        await members[0].leave()
        await settle(world, *members[1:])


async def test_classic_members_rejoin_when_there_is_a_new_target_or_may_be_one(log: Any) -> None:
    async with running(
        log, consumer_assignment_interval_ms=1_000, consumer_migration_policy=MigrationPolicy.UPGRADE
    ) as world:
        classic, native = Classic(world), Native(world)
        await classic.start()
        await native.join()
        await settle(world, classic, native)
        await native.leave()
        assert world.kind() == "consumer"
        classic.beat()
        world.clock.advance(1_000)
        with pytest.raises(RebalanceInProgressError):
            classic.beat()
        await settle(world, classic)
        assert len(classic.owned) == PARTITIONS
