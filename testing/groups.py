"""Consumer groups as tests see them."""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.client.admin.group_state import SHARE, Coordinator, committed_offsets, find_group
from ottla.client.admin.group_state import Group as FoundGroup
from ottla.client.admin.share_state import share_positions
from ottla.client.client import Client
from ottla.client.offsets import LATEST, TopicPartition, offsets_at
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest


@dataclass(frozen=True, slots=True)
class Group:
    """A group as it is now. Offsets, lag and assignments are by (topic, partition)."""

    name: str
    state: str
    """Empty, PreparingRebalance, CompletingRebalance, Stable; of the consumer protocol also Assigning, Reconciling."""
    protocol: str
    """`classic`, `consumer` (KIP-848), `share` (KIP-932) or `streams` (KIP-1071)."""
    members: dict[str, list[tuple[str, int]]] = field(default_factory=dict)
    """What each member has been assigned, by member id; for a streams group, what its active tasks read."""
    offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """What the group has committed; for a share group, the first unfinished record."""
    lag: dict[tuple[str, int], int] = field(default_factory=dict)
    """How many records of each of these partitions are not committed."""


def list_groups(client: Client, timeout_seconds: float) -> dict[str, Group]:
    """Every group of the cluster, by name."""
    coordinator = Coordinator(client, timeout_seconds)
    names = sorted(listed.group_id for listed in client.call(ListGroupsRequest()).groups)
    groups = {}
    for name in names:
        found = find_group(coordinator, name)
        if found is None:
            continue  # it was deleted meanwhile
        if found.group_type == SHARE:
            groups[name] = _share_group(coordinator, found)
            continue
        committed = committed_offsets(coordinator, name)
        ends = offsets_at(client, committed, LATEST)
        groups[name] = Group(
            name,
            found.state,
            found.group_type,
            {member.member_id: [_pair(partition) for partition in member.assignment] for member in found.members},
            {_pair(partition): offset for partition, offset in committed.items()},
            {_pair(partition): end - committed[partition] for partition, end in ends.items()},
        )
    return groups


def _share_group(coordinator: Coordinator, found: FoundGroup) -> Group:
    positions = share_positions(coordinator, found.group_id)
    return Group(
        found.group_id,
        found.state,
        found.group_type,
        {member.member_id: [_pair(partition) for partition in member.assignment] for member in found.members},
        {_pair(partition): position.start_offset for partition, position in positions.items()},
        {_pair(partition): position.lag for partition, position in positions.items() if position.lag is not None},
    )


def _pair(partition: TopicPartition) -> tuple[str, int]:
    return partition.topic, partition.partition
