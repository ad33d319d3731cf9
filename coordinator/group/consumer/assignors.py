"""Server-side assignors of KIP-848: who gets which partition.

An assignor is a pure, deterministic function of the members' subscriptions, the topics' partition counts and the
previous assignment. Every partition of a subscribed topic goes to exactly one member.
"""

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heapreplace
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordinator.group.assignment import Assignment


class MemberSpec(NamedTuple):
    """A member as an assignor sees it. A static member keeps its place by its instance id."""

    member_id: str
    instance_id: str | None
    topic_ids: frozenset[UUID]
    current: Assignment

    @property
    def order(self) -> tuple[bool, str]:
        return (self.instance_id is None, self.instance_id or self.member_id)


Assignor = Callable[[list[MemberSpec], Mapping[UUID, int]], dict[str, Assignment]]


def range_assignor(members: list[MemberSpec], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """Each topic's partitions in contiguous ranges over its subscribers in a fixed order.

    Topics with the same subscribers and partition count are assigned alike, so that they can be joined.
    """
    assigned: dict[str, dict[UUID, frozenset[int]]] = {member.member_id: {} for member in members}
    ordered = sorted(members, key=lambda member: member.order)
    for topic_id in sorted(_subscribed(members, partition_counts)):
        subscribers = [member for member in ordered if topic_id in member.topic_ids]
        quota, extra = divmod(partition_counts[topic_id], len(subscribers))
        start = 0
        for index, member in enumerate(subscribers):
            end = start + quota + (index < extra)
            if end > start:
                assigned[member.member_id][topic_id] = frozenset(range(start, end))
            start = end
    return dict(assigned)


def uniform_assignor(members: list[MemberSpec], partition_counts: Mapping[UUID, int]) -> dict[str, Assignment]:
    """All partitions spread as evenly as the subscriptions allow; members keep what they have within their share."""
    ordered = sorted(members, key=lambda member: member.order)
    topics = sorted(_subscribed(members, partition_counts))
    total = sum(partition_counts[topic_id] for topic_id in topics)
    shares = _shares(ordered, total)
    owned: dict[str, set[tuple[UUID, int]]] = {member.member_id: set() for member in ordered}
    taken: set[tuple[UUID, int]] = set()
    for member in ordered:
        for partition in _kept(member, partition_counts, taken, shares[member.member_id]):
            owned[member.member_id].add(partition)
            taken.add(partition)
    for topic_id in topics:
        # The least loaded first; of equals the first in order.
        loads = [(len(owned[m.member_id]), place) for place, m in enumerate(ordered) if topic_id in m.topic_ids]
        heapify(loads)
        for index in range(partition_counts[topic_id]):
            if (topic_id, index) not in taken:
                load, place = loads[0]
                owned[ordered[place].member_id].add((topic_id, index))
                heapreplace(loads, (load + 1, place))
    if len({member.topic_ids for member in ordered}) > 1:
        _balance(ordered, owned)
    return {member_id: _grouped(partitions) for member_id, partitions in owned.items()}


def _subscribed(members: list[MemberSpec], partition_counts: Mapping[UUID, int]) -> set[UUID]:
    return {topic_id for member in members for topic_id in member.topic_ids if partition_counts.get(topic_id)}


def _shares(ordered: list[MemberSpec], total: int) -> dict[str, int]:
    """How many partitions each may keep: the remainder goes to those who own most, so that least moves."""
    quota, extra = divmod(total, max(1, len(ordered)))
    by_load = sorted(ordered, key=lambda member: -sum(map(len, member.current.values())))
    return {member.member_id: quota + (index < extra) for index, member in enumerate(by_load)}


def _kept(
    member: MemberSpec, partition_counts: Mapping[UUID, int], taken: set[tuple[UUID, int]], share: int
) -> list[tuple[UUID, int]]:
    mine = [
        (topic_id, index)
        for topic_id in sorted(member.current)
        if topic_id in member.topic_ids
        for index in sorted(member.current[topic_id])
        if index < partition_counts.get(topic_id, 0) and (topic_id, index) not in taken
    ]
    return mine[:share]


def _balance(ordered: list[MemberSpec], owned: dict[str, set[tuple[UUID, int]]]) -> None:
    """With differing subscriptions: hand partitions on while somebody owns two more than one who could take it."""
    while True:
        for giver in sorted(ordered, key=lambda member: -len(owned[member.member_id])):
            move = _move(giver, ordered, owned)
            if move is not None:
                partition, taker = move
                owned[giver.member_id].remove(partition)
                owned[taker].add(partition)
                break
        else:
            return


def _move(
    giver: MemberSpec, ordered: list[MemberSpec], owned: dict[str, set[tuple[UUID, int]]]
) -> tuple[tuple[UUID, int], str] | None:
    mine = owned[giver.member_id]
    for taker in sorted(ordered, key=lambda member: len(owned[member.member_id])):
        if len(mine) - len(owned[taker.member_id]) < 2:
            return None
        for partition in sorted(mine):
            if partition[0] in taker.topic_ids:
                return partition, taker.member_id
    return None


def _grouped(partitions: set[tuple[UUID, int]]) -> Assignment:
    grouped: dict[UUID, set[int]] = {}
    for topic_id, index in partitions:
        grouped.setdefault(topic_id, set()).add(index)
    return {topic_id: frozenset(indexes) for topic_id, indexes in grouped.items()}


ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform_assignor, "range": range_assignor}


def assignor_names(configured: Iterable[str]) -> tuple[str, ...]:
    """`group.consumer.assignors`, or those of share groups, by short names: the settings may name Kafka's classes."""
    return tuple(word.rpartition(".")[2].removesuffix("Assignor").lower() for word in configured)
