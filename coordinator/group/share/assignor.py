"""The assignor of share groups, `simple`: which members fetch from which partitions (KIP-932).

Every partition of a subscribed topic gets as many members as any other, one at least, and every member as many
partitions as any other, give or take one; if subscriptions differ, that holds for each topic by itself. Within that,
members keep what they have. Kafka's counterpart is SimpleAssignor: the balance is the same; which of several equals
gets what may differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.group.assignment import Assignment

Partition = tuple[UUID, int]


class ShareMemberSpec(NamedTuple):
    """A member as the assignor sees it."""

    member_id: str
    topic_ids: frozenset[UUID]
    current: Assignment


def simple_assignor(members: list[ShareMemberSpec], partitions: Mapping[UUID, frozenset[int]]) -> dict[str, Assignment]:
    """Assign the partitions; members that subscribe to the same topics share those together."""
    assigned: dict[str, dict[UUID, set[int]]] = {member.member_id: {} for member in members}
    if len({member.topic_ids for member in members}) == 1:
        _share(members, _of(members[0].topic_ids, partitions), assigned)
    else:
        for topic_id in sorted(partitions):
            subscribers = [member for member in members if topic_id in member.topic_ids]
            _share(subscribers, _of({topic_id}, partitions), assigned)
    return {
        member_id: {topic_id: frozenset(indexes) for topic_id, indexes in topics.items()}
        for member_id, topics in assigned.items()
    }


def _of(topic_ids: frozenset[UUID] | set[UUID], partitions: Mapping[UUID, frozenset[int]]) -> list[Partition]:
    return [
        (topic_id, index) for topic_id in sorted(topic_ids) for index in sorted(partitions.get(topic_id, frozenset()))
    ]


def _share(
    members: list[ShareMemberSpec], partitions: list[Partition], assigned: dict[str, dict[UUID, set[int]]]
) -> None:
    if not members or not partitions:
        return
    ordered = sorted(members, key=lambda member: member.member_id)
    sharing = -(-len(ordered) // len(partitions))
    quota, extra = divmod(sharing * len(partitions), len(ordered))
    quotas = {member.member_id: quota + (place < extra) for place, member in enumerate(ordered)}
    room = dict.fromkeys(partitions, sharing)
    mine: dict[str, set[Partition]] = {member.member_id: set() for member in ordered}
    for member in ordered:
        held = {(topic_id, index) for topic_id, indexes in member.current.items() for index in indexes}
        for partition in partitions:
            if partition in held and room[partition] and len(mine[member.member_id]) < quotas[member.member_id]:
                mine[member.member_id].add(partition)
                room[partition] -= 1
    for member in ordered:
        wanted = quotas[member.member_id] - len(mine[member.member_id])
        # Members with most room first, so that none is left with partitions that it already has.
        free = sorted((p for p in partitions if room[p] and p not in mine[member.member_id]), key=lambda p: -room[p])
        for partition in free[:wanted]:
            mine[member.member_id].add(partition)
            room[partition] -= 1
    for member_id, held in mine.items():
        for topic_id, index in held:
            assigned[member_id].setdefault(topic_id, set()).add(index)
