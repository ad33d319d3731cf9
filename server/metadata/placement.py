"""Where the replicas of new partitions go."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.server.metadata.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from ottla.server.metadata.image import BrokerImage


def place_replicas(
    brokers: Sequence[BrokerImage], partitions: int, replication_factor: int, *, start: int
) -> list[tuple[int, ...]]:
    """Replicas for each of `partitions` new partitions, the first of each is the leader.

    Leaders go round the brokers from `start`, racks in turn, so that each broker leads about as many and a
    partition's replicas lie in different racks as long as there are enough of them. Each round shifts the
    followers, so that no two brokers share all of their partitions.
    """
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered or some "
            "brokers have all their log directories cordoned."
        )
    order = _racks_in_turn(brokers)
    if replication_factor == 1:
        return [(order[(start + number) % len(order)],) for number in range(partitions)]
    placed = []
    for number in range(partitions):
        leader = (start + number) % len(order)
        shift = (number // len(order)) % (len(order) - 1)
        others = [order[(leader + 1 + step) % len(order)] for step in range(len(order) - 1)]
        followers = (others[shift:] + others[:shift])[: replication_factor - 1]
        placed.append((order[leader], *followers))
    return placed


def check_assignment(replicas: Sequence[int], brokers: Sequence[int], expected: int | None) -> tuple[int, ...]:
    """Check one partition's manual assignment; `expected` is the number of replicas of earlier ones."""
    if not replicas:
        raise InvalidReplicaAssignmentError("The manual partition assignment includes an empty replica list.")
    seen: set[int] = set()
    for broker in replicas:
        if broker not in brokers:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes broker {broker}, but no such broker is registered."
            )
        if broker in seen:
            raise InvalidReplicaAssignmentError(
                f"The manual partition assignment includes the broker {broker} more than once."
            )
        seen.add(broker)
    if expected is not None and len(replicas) != expected:
        raise InvalidReplicaAssignmentError(
            f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is not "
            f"consistent with previous partitions, which have {expected} replica(s)."
        )
    return tuple(replicas)


def _racks_in_turn(brokers: Sequence[BrokerImage]) -> list[int]:
    racks: dict[str, list[int]] = {}
    for broker in sorted(brokers, key=lambda broker: (broker.rack or "", broker.node_id)):
        racks.setdefault(broker.rack or "", []).append(broker.node_id)
    order: list[int] = []
    depth = max(map(len, racks.values()), default=0)
    for position in range(depth):
        order += [members[position] for members in racks.values() if position < len(members)]
    return order
