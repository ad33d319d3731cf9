"""The server-side assignors: everything is assigned once, evenly, and little moves."""

from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator.group.assignment import Assignment
from ottla.coordinator.group.consumer.assignors import ASSIGNORS, MemberSpec, range_assignor, uniform_assignor

TOPICS = [UUID(int=number) for number in range(1, 5)]

partition_counts = st.fixed_dictionaries({topic: st.integers(0, 20) for topic in TOPICS})
subscriptions = st.lists(st.frozensets(st.sampled_from(TOPICS)), min_size=1, max_size=8)


def specs(subscribed: list[frozenset[UUID]], before: Mapping[str, Assignment] | None = None) -> list[MemberSpec]:
    return [
        MemberSpec(f"m{index}", None, topics, (before or {}).get(f"m{index}", {}))
        for index, topics in enumerate(subscribed)
    ]


def load(assignment: Assignment) -> int:
    return sum(map(len, assignment.values()))


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
@given(subscribed=subscriptions, counts=partition_counts)
def test_every_subscribed_partition_has_exactly_one_owner(
    name: str, subscribed: list[frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    members = specs(subscribed)
    assigned = ASSIGNORS[name](members, counts)
    owned = [
        (topic, index) for assignment in assigned.values() for topic, indexes in assignment.items() for index in indexes
    ]
    wanted = frozenset().union(*subscribed)
    assert sorted(owned) == sorted((topic, index) for topic in wanted for index in range(counts[topic]))
    for member in members:
        assert set(assigned[member.member_id]) <= member.topic_ids
        assert all(assigned[member.member_id].values())


@given(members=st.integers(1, 10), counts=partition_counts)
def test_uniform_spreads_evenly_among_equals(members: int, counts: dict[UUID, int]) -> None:
    assigned = uniform_assignor(specs([frozenset(TOPICS)] * members), counts)
    loads = [load(each) for each in assigned.values()]
    assert max(loads) - min(loads) <= 1


@given(before=st.integers(1, 8), after=st.integers(1, 8), counts=partition_counts)
def test_uniform_moves_only_what_it_must(before: int, after: int, counts: dict[UUID, int]) -> None:
    everyone = frozenset(TOPICS)
    first = uniform_assignor(specs([everyone] * before), counts)
    second = uniform_assignor(specs([everyone] * after, first), counts)
    loads = [load(each) for each in second.values()]
    assert max(loads) - min(loads) <= 1
    kept = sum(
        len(indexes & second[member].get(topic, frozenset()))
        for member, assignment in first.items()
        if member in second
        for topic, indexes in assignment.items()
    )
    total = sum(counts.values())
    stayed = min(before, after)
    # A member that stays keeps as much as its new share holds.
    assert (
        kept
        >= sum(sorted((load(first[f"m{i}"]) for i in range(stayed)), reverse=True))
        - total
        + sum(sorted(loads)[:stayed])
        - stayed
    )


@given(subscribed=subscriptions, counts=partition_counts)
def test_uniform_leaves_no_pair_that_could_be_evened_out(
    subscribed: list[frozenset[UUID]], counts: dict[UUID, int]
) -> None:
    members = specs(subscribed)
    assigned = uniform_assignor(members, counts)
    for giver in members:
        for taker in members:
            movable = set(assigned[giver.member_id]) & taker.topic_ids
            if movable:
                assert load(assigned[giver.member_id]) - load(assigned[taker.member_id]) <= 1


def test_range_gives_contiguous_parts_and_joins_topics_of_one_size() -> None:
    one, two = TOPICS[:2]
    assigned = range_assignor(specs([frozenset({one, two})] * 3), {one: 7, two: 7})
    assert [sorted(assigned[f"m{index}"][one]) for index in range(3)] == [[0, 1, 2], [3, 4], [5, 6]]
    assert all(each[one] == each[two] for each in assigned.values())


def test_static_members_keep_their_place_under_a_new_id() -> None:
    topics, counts = frozenset(TOPICS[:1]), {TOPICS[0]: 5}

    def place(member_id: str) -> Assignment:
        spec = [MemberSpec(member_id, "b", topics, {}), MemberSpec("x", "a", topics, {})]
        return range_assignor(spec, counts)[member_id]

    assert place("old") == place("a-new-one") == {TOPICS[0]: frozenset({3, 4})}
