"""The group coordinator over a log in memory: offsets, restarts, retention, deletion."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    IllegalGenerationError,
    InvalidGroupIdError,
    InvalidSessionTimeoutError,
    NonEmptyGroupError,
    NotCoordinatorError,
    OffsetMetadataTooLargeError,
    UnknownMemberIdError,
    UnstableOffsetCommitError,
)
from ottla.coordinator.group import coordinator as group_coordinator
from ottla.coordinator.group.classic.group import ClassicState
from ottla.coordinator.group.classic.member import JoinResult, Protocol
from ottla.coordinator.group.classic.protocol import JoinRequest
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.listing import GroupListing, listing_of
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.coordinator.partitioning import coordinator_partition
from ottla.coordinator.replay import Producer
from ottla.kproto.records import EndTxnMarker, parse_batch_header
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.storage.clock import ManualClock

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
DAY_MS = 24 * 3_600_000
INTERNAL_MAX_MESSAGE_BYTES = 1_048_588
HERE, ELSEWHERE = 1, 2
# version 1, one topic "t", no user data, no owned partitions
SUBSCRIPTION = b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff\x00\x00\x00\x00"


def topic(name: str, partitions: int, leader: int = HERE) -> TopicImage:
    state = PartitionState.initial((leader,))
    return TopicImage(name=name, topic_id=uuid5(NAMESPACE_DNS, name), partitions=(state,) * partitions)


def image(*topics: TopicImage) -> MetadataImage:
    return MetadataImage(topics=MetadataImage().topics.update({each.name: each for each in topics}))


TOPICS = image(topic("t", 2), topic("kept", 1))


def elected(leader: int = HERE) -> MetadataDelta:
    offsets = topic(OFFSETS_TOPIC, 2, leader)
    changes = [PartitionChange(offsets, index, None, offsets.partitions[index]) for index in range(2)]
    return MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=changes)


@asynccontextmanager
async def coordinating(log: Any, clock: ManualClock, **config: Any) -> AsyncIterator[GroupCoordinator]:
    settings = GroupConfig(offsets_topic_partitions=2, initial_rebalance_delay_ms=0)._replace(**config)
    async with trio.open_nursery() as nursery:
        coordinator = GroupCoordinator(
            node_id=HERE,
            config=settings,
            clock=clock,
            log=log,
            topics=GroupTopics(CoordinatorMetadata(TOPICS)),
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        coordinator.apply(elected())
        await trio.testing.wait_all_tasks_blocked()
        yield coordinator
        nursery.cancel_scope.cancel()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(1_000)


@pytest.fixture
async def coordinator(log: Any, clock: ManualClock) -> AsyncIterator[GroupCoordinator]:
    async with coordinating(log, clock) as running:
        yield running


def offset(number: int, metadata: str = "") -> OffsetToCommit:
    return OffsetToCommit(offset=number, leader_epoch=3, metadata=metadata)


def committed(coordinator: GroupCoordinator, partition: TopicPartition = T0, group: str = "g") -> int | None:
    found = coordinator.offsets.fetch(group, [partition], require_stable=False)[partition]
    return found.offset if isinstance(found, CommittedOffset) else None


async def join(coordinator: GroupCoordinator, group: str = "g", **changes: Any) -> JoinResult:
    request = JoinRequest(
        member_id="",
        group_instance_id=None,
        client_id="client",
        client_host="/127.0.0.1",
        rebalance_timeout_ms=60_000,
        session_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[Protocol("range", SUBSCRIPTION)],
        known_member_id_required=False,
        supports_skipping_assignment=True,
    )
    joined = await coordinator.classic_groups.join(group, request._replace(**changes))
    await coordinator.classic_groups.sync(
        group,
        member_id=joined.member_id,
        group_instance_id=request.group_instance_id,
        generation_id=joined.generation_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments={joined.member_id: b"all"},
    )
    return joined


def test_a_group_lives_where_java_hashes_it() -> None:
    # Java: ("my-group".hashCode() & 0x7FFFFFFF) % 50, and of strings beyond the basic plane
    assert coordinator_partition("", 50) == 0
    assert coordinator_partition("a", 50) == 97 % 50
    assert coordinator_partition("ab", 50) == (97 * 31 + 98) % 50
    assert coordinator_partition("\U0001f600", 50) == ((0xD83D * 31 + 0xDE00) & 0x7FFFFFFF) % 50
    assert coordinator_partition("polygenelubricants", 50) == 0  # Integer.MIN_VALUE


async def test_offsets_come_back_with_epoch_and_metadata(coordinator: GroupCoordinator) -> None:
    assert await coordinator.offsets.commit("g", {T0: offset(7, "mine"), T1: offset(9)}) == {}
    found = coordinator.offsets.fetch("g", None, require_stable=False)
    assert list(found) == [T0, T1]
    value = found[T0]
    assert isinstance(value, CommittedOffset)
    assert (value.offset, value.leader_epoch, value.metadata) == (7, 3, "mine")
    assert committed(coordinator, TopicPartition("t", 5)) is None
    assert committed(coordinator, group="other") is None


async def test_an_offset_is_in_the_cache_only_when_it_is_committed(coordinator: GroupCoordinator, log: Any) -> None:
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(coordinator.offsets.commit, "g", {T0: offset(7)})
        await trio.testing.wait_all_tasks_blocked()
        assert committed(coordinator) is None
        log.gate.set()
    assert committed(coordinator) == 7


async def test_a_commit_that_fails_leaves_the_older_offset(coordinator: GroupCoordinator, log: Any) -> None:
    await coordinator.offsets.commit("g", {T0: offset(7)})
    log.error = CoordinatorNotAvailableError("the disk is full")
    with pytest.raises(CoordinatorNotAvailableError):
        await coordinator.offsets.commit("g", {T0: offset(8)})
    assert committed(coordinator) == 7


async def test_metadata_that_is_too_long_refuses_its_partition_alone(coordinator: GroupCoordinator) -> None:
    refused = await coordinator.offsets.commit("g", {T0: offset(7, "x" * 4_097), T1: offset(8, "x" * 4_096)})
    assert list(refused) == [T0]
    assert isinstance(refused[T0], OffsetMetadataTooLargeError)
    assert committed(coordinator, T0) is None
    assert committed(coordinator, T1) == 8


async def test_a_restart_keeps_offsets_members_and_generation(
    coordinator: GroupCoordinator, log: Any, clock: ManualClock
) -> None:
    joined = await join(coordinator)
    await coordinator.offsets.commit(
        "g", {T0: offset(7)}, member_id=joined.member_id, generation_id=joined.generation_id
    )
    async with coordinating(log, clock) as again:
        assert committed(again) == 7
        group = again.classic_groups.describe("g")
        assert group.state is ClassicState.STABLE
        assert group.members[joined.member_id].assignment == b"all"
        again.classic_groups.heartbeat(
            "g", member_id=joined.member_id, group_instance_id=None, generation_id=joined.generation_id
        )


async def test_a_member_that_is_gone_after_a_restart_is_removed(
    log: Any, clock: ManualClock, autojump_clock: trio.testing.MockClock
) -> None:
    async with coordinating(log, clock) as coordinator:
        joined = await join(coordinator)
    async with coordinating(log, clock) as again:
        await trio.sleep(71)
        with pytest.raises(UnknownMemberIdError):
            again.classic_groups.heartbeat(
                "g", member_id=joined.member_id, group_instance_id=None, generation_id=joined.generation_id
            )
        assert again.classic_groups.describe("g").state is ClassicState.EMPTY


async def test_while_loading_everything_waits(coordinator: GroupCoordinator, log: Any, clock: ManualClock) -> None:
    await coordinator.offsets.commit("g", {T0: offset(7)})
    async with trio.open_nursery() as nursery:
        again = GroupCoordinator(
            node_id=HERE,
            config=coordinator.config,
            clock=clock,
            log=log,
            topics=GroupTopics(CoordinatorMetadata(TOPICS)),
            purgatory=Purgatory("group"),
            nursery=nursery,
        )
        again.apply(elected())
        with pytest.raises(CoordinatorLoadInProgressError):
            again.list_groups()
        with pytest.raises(CoordinatorLoadInProgressError):
            await again.offsets.commit("g", {T0: offset(8)})
        nursery.cancel_scope.cancel()


async def test_a_group_that_moves_away_is_told_so(coordinator: GroupCoordinator) -> None:
    joined = await join(coordinator)
    coordinator.apply(elected(ELSEWHERE))
    with pytest.raises(NotCoordinatorError):
        coordinator.classic_groups.heartbeat(
            "g", member_id=joined.member_id, group_instance_id=None, generation_id=joined.generation_id
        )


async def test_commits_of_strangers_are_refused(coordinator: GroupCoordinator) -> None:
    with pytest.raises(GroupIdNotFoundError):
        await coordinator.offsets.commit("g", {T0: offset(1)}, member_id="m", generation_id=1)
    joined = await join(coordinator)
    with pytest.raises(UnknownMemberIdError):
        await coordinator.offsets.commit("g", {T0: offset(1)})
    with pytest.raises(IllegalGenerationError):
        await coordinator.offsets.commit("g", {T0: offset(1)}, member_id=joined.member_id, generation_id=7)


async def test_joins_without_sense_are_refused(coordinator: GroupCoordinator) -> None:
    with pytest.raises(InvalidGroupIdError):
        await join(coordinator, "")
    with pytest.raises(InvalidSessionTimeoutError):
        await join(coordinator, session_timeout_ms=200)
    with pytest.raises(InvalidSessionTimeoutError):
        await join(coordinator, session_timeout_ms=2_000_000)
    with pytest.raises(UnknownMemberIdError):
        await join(coordinator, member_id="nobody")


class TestTransactions:
    async def test_pending_offsets_count_when_the_marker_comes(self, coordinator: GroupCoordinator) -> None:
        producer = Producer(7, 0)
        await coordinator.offsets.commit("g", {T0: offset(1)})
        await coordinator.offsets.commit("g", {T0: offset(5)}, producer=producer)
        assert committed(coordinator) == 1
        stable = coordinator.offsets.fetch("g", [T0, T1], require_stable=True)
        assert isinstance(stable[T0], UnstableOffsetCommitError)
        assert stable[T1] is None
        await coordinator.offsets.complete_transaction(coordinator.partition_for("g"), EndTxnMarker(7, 0, 0, True))
        assert committed(coordinator) == 5

    async def test_an_abort_forgets_them_also_after_a_restart(
        self, coordinator: GroupCoordinator, log: Any, clock: ManualClock
    ) -> None:
        partition = coordinator.partition_for("g")
        await coordinator.offsets.commit("g", {T0: offset(5)}, producer=Producer(7, 0))
        await coordinator.offsets.complete_transaction(partition, EndTxnMarker(7, 0, 0, False))
        await coordinator.offsets.commit("g", {T1: offset(6)}, producer=Producer(7, 0))
        await coordinator.offsets.complete_transaction(partition, EndTxnMarker(7, 0, 0, True))
        await coordinator.offsets.commit("g", {T0: offset(9)}, producer=Producer(8, 0))
        async with coordinating(log, clock) as again:
            assert committed(again, T0) is None
            assert committed(again, T1) == 6
            await again.offsets.complete_transaction(partition, EndTxnMarker(8, 0, 0, True))
            assert committed(again, T0) == 9

    async def test_a_plain_commit_during_the_transaction_is_not_overwritten_by_it(
        self, coordinator: GroupCoordinator
    ) -> None:
        await coordinator.offsets.commit("g", {T0: offset(5)}, producer=Producer(7, 0))
        await coordinator.offsets.commit("g", {T0: offset(8)})
        await coordinator.offsets.complete_transaction(coordinator.partition_for("g"), EndTxnMarker(7, 0, 0, True))
        assert committed(coordinator) == 8


class TestRetention:
    async def expire(self, coordinator: GroupCoordinator) -> None:
        await trio.sleep(coordinator.config.offsets_retention_check_interval_ms / 1000 + 1)

    async def test_offsets_of_a_simple_group_expire_after_their_commit(
        self, log: Any, clock: ManualClock, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with coordinating(log, clock) as coordinator:
            await coordinator.offsets.commit("g", {T0: offset(1)})
            clock.advance(6 * DAY_MS)
            await coordinator.offsets.commit("g", {T1: offset(2)})
            clock.advance(DAY_MS)
            await self.expire(coordinator)
            assert committed(coordinator, T0) is None
            assert committed(coordinator, T1) == 2
            clock.advance(7 * DAY_MS)
            await self.expire(coordinator)
            assert list(coordinator.list_groups()) == []
        async with coordinating(log, clock) as again:
            assert list(again.list_groups()) == []

    async def test_of_many_offsets_only_the_old_ones_expire(
        self, log: Any, clock: ManualClock, autojump_clock: trio.testing.MockClock
    ) -> None:
        partitions = [TopicPartition("t", index) for index in range(100)]
        async with coordinating(log, clock) as coordinator:
            await coordinator.offsets.commit("g", dict.fromkeys(partitions, offset(1)))
            clock.advance(6 * DAY_MS)
            await coordinator.offsets.commit("g", dict.fromkeys(partitions[::2], offset(2)))
            clock.advance(DAY_MS)
            await self.expire(coordinator)
            assert [each for each in partitions if committed(coordinator, each) is not None] == partitions[::2]
            clock.advance(7 * DAY_MS)
            await self.expire(coordinator)
            assert list(coordinator.list_groups()) == []

    async def test_an_active_member_keeps_its_topics_offsets(
        self, log: Any, clock: ManualClock, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with coordinating(log, clock) as coordinator:
            joined = await join(coordinator, session_timeout_ms=1_800_000)
            member: Any = {"member_id": joined.member_id, "generation_id": joined.generation_id}
            other = TopicPartition("unread", 0)
            await coordinator.offsets.commit("g", {T0: offset(1), other: offset(1)}, **member)
            clock.advance(8 * DAY_MS)
            await self.expire(coordinator)
            assert committed(coordinator, T0) == 1
            assert committed(coordinator, other) is None

    async def test_a_group_that_becomes_empty_has_the_whole_retention_from_then_on(
        self, log: Any, clock: ManualClock, autojump_clock: trio.testing.MockClock
    ) -> None:
        async with coordinating(log, clock) as coordinator:
            joined = await join(coordinator)
            member: Any = {"member_id": joined.member_id, "generation_id": joined.generation_id}
            await coordinator.offsets.commit("g", {T0: offset(1)}, **member)
            clock.advance(30 * DAY_MS)
            await coordinator.classic_groups.leave("g", joined.member_id, None)
            await self.expire(coordinator)
            assert committed(coordinator) == 1
            clock.advance(7 * DAY_MS)
            await self.expire(coordinator)
            assert committed(coordinator) is None
            with pytest.raises(GroupIdNotFoundError):
                coordinator.classic_groups.describe("g")


class TestAdministration:
    async def test_groups_are_listed(self, coordinator: GroupCoordinator) -> None:
        await join(coordinator, "members")
        await coordinator.offsets.commit("simple", {T0: offset(1)})
        assert {(each.group_id, each.protocol_type, each.state) for each in coordinator.list_groups()} == {
            ("members", "consumer", "Stable"),
            ("simple", "", "Empty"),
        }

    async def test_only_an_empty_group_is_deleted(
        self, coordinator: GroupCoordinator, log: Any, clock: ManualClock
    ) -> None:
        with pytest.raises(GroupIdNotFoundError):
            await coordinator.delete_group("g")
        joined = await join(coordinator)
        with pytest.raises(NonEmptyGroupError):
            await coordinator.delete_group("g")
        await coordinator.classic_groups.leave("g", joined.member_id, None)
        await trio.testing.wait_all_tasks_blocked()
        await coordinator.offsets.commit("g", {T0: offset(1)})
        await coordinator.delete_group("g")
        assert committed(coordinator) is None
        assert list(coordinator.list_groups()) == []
        async with coordinating(log, clock) as again:
            assert list(again.list_groups()) == []

    async def test_a_group_with_more_offsets_than_one_batch_holds_is_deleted(
        self, coordinator: GroupCoordinator, log: Any
    ) -> None:
        group_id = "g" * 20_000
        for partition in range(60):
            await coordinator.offsets.commit(group_id, {TopicPartition("t", partition): offset(1)})
        await coordinator.delete_group(group_id)
        assert list(coordinator.list_groups()) == []
        assert max(len(batch) for batches in log.batches.values() for batch in batches) < INTERNAL_MAX_MESSAGE_BYTES

    @pytest.mark.parametrize("by", ["group", "topic", "offset"])
    async def test_many_offsets_are_removed_a_few_at_a_time(
        self, coordinator: GroupCoordinator, log: Any, by: str
    ) -> None:
        """What a step plans, appends and replays holds up everybody else."""
        partitions = [TopicPartition("t", index) for index in range(200)]
        await coordinator.offsets.commit("g", dict.fromkeys(partitions, offset(1)))
        before = sum(map(len, log.batches.values()))
        if by == "group":
            await coordinator.delete_group("g")
        elif by == "offset":
            assert await coordinator.offsets.delete("g", partitions) == {}
        else:
            coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), deleted_topics=[topic("t", 2)]))
            await trio.testing.wait_all_tasks_blocked()
        assert all(committed(coordinator, each) is None for each in partitions)
        appended = [batch for batches in log.batches.values() for batch in batches][before:]
        counts = [parse_batch_header(memoryview(batch), 0).record_count for batch in appended]
        assert sum(counts) >= 200
        assert max(counts) <= 65  # with the group's own record

    async def test_offsets_are_deleted_but_not_of_topics_that_are_read(self, coordinator: GroupCoordinator) -> None:
        joined = await join(coordinator)
        other = TopicPartition("unread", 0)
        member: Any = {"member_id": joined.member_id, "generation_id": joined.generation_id}
        await coordinator.offsets.commit("g", {T0: offset(1), other: offset(1)}, **member)
        refused = await coordinator.offsets.delete("g", [T0, other])
        assert isinstance(refused[T0], GroupSubscribedToTopicError)
        assert committed(coordinator, other) is None
        with pytest.raises(GroupIdNotFoundError):
            await coordinator.offsets.delete("nobody", [T0])

    async def test_a_deleted_topic_takes_its_offsets_along(self, coordinator: GroupCoordinator) -> None:
        kept = TopicPartition("kept", 0)
        await coordinator.offsets.commit("g", {T0: offset(1), T1: offset(2), kept: offset(3)})
        coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), deleted_topics=[topic("t", 2)]))
        await trio.testing.wait_all_tasks_blocked()
        assert list(coordinator.offsets.fetch("g", None, require_stable=False)) == [kept]


async def test_groups_are_looked_at_as_they_are_taken(
    coordinator: GroupCoordinator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand of them take 10 ms."""
    looked: list[str] = []

    def look(group: Any) -> GroupListing:
        looked.append(group.group_id)
        return listing_of(group)

    monkeypatch.setattr(group_coordinator, "listing_of", look)
    for group_id in ("g", "h", "i"):
        await coordinator.offsets.commit(group_id, {T0: offset(1)})
    listed = coordinator.list_groups()
    assert not looked
    assert {listing.group_id for listing in listed} == set(looked) == {"g", "h", "i"}
