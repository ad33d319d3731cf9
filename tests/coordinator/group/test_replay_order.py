"""Compaction leaves the last record of each key where it was written: groups come out the same in whatever order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import permutations
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest

from ottla.coordinator.group.consumer import records as consumer_records
from ottla.coordinator.group.consumer.member import Current, MemberState, ResolvedRegex, Subscription
from ottla.coordinator.group.modern.group import ModernGroup, ModernMember
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.group.share import records as share_records
from ottla.coordinator.group.share.member import ShareCurrent, ShareSubscription
from ottla.coordinator.group.share.state_partitions import StatePartitions, TopicPartitions
from ottla.coordinator.group.streams import records as streams_records
from ottla.coordinator.group.streams.assignor import TaskSet
from ottla.coordinator.group.streams.member import (
    Endpoint,
    HeldTasks,
    StreamsCurrent,
    StreamsMemberState,
    StreamsSubscription,
)
from ottla.coordinator.group.streams.owners import Owners
from ottla.coordinator.group.streams.records import GroupMetadata
from ottla.coordinator.group.streams.topology import Topology
from ottla.coordinator.replay import CoordinatorRecord
from ottla.kproto.internal_records.streams_group import Subtopology
from tests.coordinator.group.shards import still_shard

Records = list[CoordinatorRecord]
TOPIC = UUID(int=1)


def of_consumer_group() -> Records:
    about = Subscription("instance", "rack", "client", "/host", frozenset({"t"}), "t.*", 1000, "uniform")
    stands = Current(
        3,
        2,
        MemberState.UNREVOKED_PARTITIONS,
        {TOPIC: frozenset({0})},
        {TOPIC: frozenset({1})},
        {(TOPIC, 0): 1, (TOPIC, 1): 2},
    )
    return [
        consumer_records.group_epoch("g", 4, 77),
        consumer_records.target_epoch("g", 4, 1000),
        consumer_records.resolved_regex("g", "t.*", ResolvedRegex(frozenset({"t"}), 5, 6)),
        consumer_records.member_subscription("g", "a", about),
        consumer_records.target_assignment("g", "a", {TOPIC: frozenset({0, 2})}),
        consumer_records.current_assignment("g", "a", stands),
    ]


def of_share_group() -> Records:
    known = StatePartitions(initialized={TOPIC: TopicPartitions("t", frozenset({0, 1}))})
    return [
        share_records.group_epoch("g", 4, 77),
        share_records.target_epoch("g", 4, 1000),
        share_records.state_partitions("g", known),
        share_records.member_subscription("g", "a", ShareSubscription("rack", "client", "/host", frozenset({"t"}))),
        share_records.target_assignment("g", "a", {TOPIC: frozenset({0, 1})}),
        share_records.current_assignment("g", "a", ShareCurrent(3, 2, {TOPIC: frozenset({0})})),
    ]


def of_streams_group() -> Records:
    about = StreamsSubscription("rack", "client", "/host", 1000, 1, "process", Endpoint("h", 1), {"k": "v"}, "i")
    stands = StreamsCurrent(
        3,
        2,
        StreamsMemberState.UNREVOKED_TASKS,
        HeldTasks({"0": {0: 1}}, {"0": frozenset({1})}),
        HeldTasks({"0": {2: 2}}),
    )
    return [
        streams_records.group_metadata("g", GroupMetadata(4, 77, 1, {"num.standby.replicas": "1"}, 1)),
        streams_records.target_epoch("g", 4, 1000),
        streams_records.topology("g", Topology(1, [Subtopology(subtopology_id="0", source_topics=["t"])]), b"said"),
        streams_records.member_subscription("g", "a", about),
        streams_records.target_assignment("g", "a", TaskSet({"0": frozenset({0})})),
        streams_records.current_assignment("g", "a", stands),
    ]


KINDS = {
    "consumer": (of_consumer_group, consumer_records),
    "share": (of_share_group, share_records),
    "streams": (of_streams_group, streams_records),
}


def replayed(written: Sequence[CoordinatorRecord]) -> GroupShard:
    """A partition while it is loaded."""
    shard = still_shard()
    for offset, record in enumerate(written):
        shard.replay(offset, None, record)
    return shard


def state(value: Any) -> Any:
    """All that is to be known of a group, to be compared."""
    if isinstance(value, ModernGroup | ModernMember | Owners):
        names = [name for each in type(value).__mro__ for name in getattr(each, "__slots__", ())]
        return {name: state(getattr(value, name)) for name in names}
    if isinstance(value, dict | MappingProxyType):
        return {key: state(each) for key, each in value.items()}
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_the_same_in_whatever_order_its_records_come(kind: str) -> None:
    make: Callable[[], Records] = KINDS[kind][0]
    written = make()
    (group,) = replayed(written).groups.values()
    assert isinstance(group, ModernGroup)
    (member,) = group.members.values()
    assert (member.current.epoch, member.subscription.client_id) == (3, "client")
    expected = state(group)
    for order in permutations(written):
        assert state(replayed(order).groups["g"]) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_a_member_may_come_alone(kind: str) -> None:
    make, records = KINDS[kind]
    *whole, about, target, stands = make()
    for order in permutations(records.RECORDS.member_tombstones("g", "a")):
        assert replayed(order).groups == {}
        shard = replayed([*whole, about, target, stands, *order])
        group: Any = shard.groups["g"]
        assert state(group) == state(replayed(whole).groups["g"])


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_removed_and_came_again_is_as_it_came(kind: str) -> None:
    make: Callable[[], Records] = KINDS[kind][0]
    written = make()
    group: Any = replayed(written).groups["g"]
    ended = group.tombstones()
    assert replayed([*written, *ended]).groups == {}
    assert replayed(ended).groups == {}
    assert state(replayed([*written, *ended, *written]).groups["g"]) == state(group)
