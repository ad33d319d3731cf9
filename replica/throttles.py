"""Which replicas are copied under a throttle (`leader|follower.replication.throttled.replicas`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence


class ReplicaQuota(Protocol):
    """How fast throttled replicas may be copied."""

    total_bytes: int

    def record(self, size_bytes: int) -> None:
        """So much was copied."""

    def throttle_seconds(self) -> float:
        """How long to copy nothing; 0 if anything may be copied now."""


class Unthrottled:
    """Lets everything be copied."""

    total_bytes = 0

    def record(self, size_bytes: int) -> None:
        """Nobody counts it."""

    def throttle_seconds(self) -> float:
        return 0.0


class ReplicaQuotas(NamedTuple):
    """Of what throttled replicas are sent from here, and of what those here fetch."""

    leader: ReplicaQuota
    follower: ReplicaQuota


UNTHROTTLED: Final = ReplicaQuotas(Unthrottled(), Unthrottled())


class Throttled(NamedTuple):
    """The partitions of a topic that one node sends, and those that it fetches, under a throttle; None: all of them."""

    as_leader: frozenset[int] | None
    as_follower: frozenset[int] | None


NO_PARTITIONS: Final[frozenset[int]] = frozenset()
NO_THROTTLES: Final = Throttled(NO_PARTITIONS, NO_PARTITIONS)


def throttled_partitions(replicas: Sequence[str], node_id: int) -> frozenset[int] | None:
    """What a topic's setting says of one node: it is `*`, or has pairs `partition:broker` and empty ones."""
    if not replicas:
        return NO_PARTITIONS
    if tuple(replicas) == ("*",):
        return None
    pairs = (replica.partition(":") for replica in replicas if replica)
    return frozenset(int(partition) for partition, _, broker in pairs if int(broker) == node_id)
