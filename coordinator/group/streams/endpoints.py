"""The addresses at which members of a streams group answer queries, by partition (`application.server`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.coordinator.group.streams.group import StreamsGroup
    from ottla.coordinator.group.streams.member import Endpoint, StreamsMember
    from ottla.coordinator.group.topics import GroupTopics


class EndpointTasks(NamedTuple):
    """An application's endpoint, and the partitions whose state can be asked for there, by topic."""

    endpoint: Endpoint
    active: Sequence[tuple[str, Sequence[int]]]
    standby: Sequence[tuple[str, Sequence[int]]]


def endpoints(group: StreamsGroup, topics: GroupTopics, *, last: StreamsMember) -> list[EndpointTasks]:
    """The endpoints of all members that have one; that of the member that is answered comes last."""
    members = [member for member in group.members.values() if member is not last]
    return [
        EndpointTasks(endpoint, _partitions(group, topics, held.active), _partitions(group, topics, held.standby))
        for member in (*members, last)
        if (endpoint := member.subscription.user_endpoint) is not None
        for held in (member.current.assigned.without_epochs(),)
    ]


def _partitions(
    group: StreamsGroup, topics: GroupTopics, tasks: Mapping[str, frozenset[int]]
) -> list[tuple[str, Sequence[int]]]:
    """The partitions of the source topics of tasks; for a topic with fewer partitions, the first of them."""
    configured = {} if group.configured is None else group.configured.subtopologies
    found: list[tuple[str, Sequence[int]]] = []
    for name, indexes in tasks.items():
        subtopology = configured.get(name)
        if subtopology is None:
            continue
        for topic in sorted({*subtopology.source_topics, *subtopology.repartition_sources}):
            count = topics.partition_count(topic)
            if count is not None:
                found.append((topic, sorted(indexes)[:count]))
    return found
