"""Placement of new partitions' replicas (org.apache.kafka.metadata.placement.StripedReplicaPlacer)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from random import Random

from ottla.metadata.errors import InvalidReplicaAssignmentError, InvalidReplicationFactorError
from ottla.metadata.image import BrokerImage, PartitionState
from ottla.runtime.time_slice import TimeSlice


async def place_replicas(
    brokers: Collection[BrokerImage],
    partitions: int,
    replication_factor: int,
    *,
    seed: int,
    existing: Sequence[PartitionState] = (),
) -> list[tuple[int, ...]]:
    """Replicas for each of `partitions` new partitions, the first of each is the leader.

    The racks are served in turn, and in each rack its brokers, so that leaders and replicas are spread evenly and those
    of one partition lie in different racks as far as there are any. Fenced brokers only get what the others have no
    room for, and never lead. `seed` decides where it begins, unless there are `existing` partitions to go on from.
    """
    live = [broker.node_id for broker in brokers if not broker.fenced]
    if not live:
        raise InvalidReplicationFactorError("All brokers are currently fenced.")
    if replication_factor > len(brokers):
        raise InvalidReplicationFactorError(
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(brokers)} broker(s) are registered or some "
            "brokers have all their log directories cordoned."
        )
    if len(brokers) == 1:
        return [(live[0],)] * partitions
    placer = _Placer(brokers, Random(seed), existing)
    placed: list[tuple[int, ...]] = []
    time_slice = TimeSlice()
    for _ in range(partitions):
        await time_slice.maybe_yield()
        placed.append(placer.place(replication_factor))
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


class _Turn:
    """Some brokers of a rack: each partition takes them in turn, and begins one further on than the one before."""

    def __init__(self) -> None:
        self.brokers: list[int] = []
        self._index = 0
        self._offset = 0
        self._partition = 0

    def begin(self, offset: int) -> None:
        self.brokers.sort()
        self._offset = offset % len(self.brokers) if self.brokers else 0

    def next(self, partition: int) -> int | None:
        """The next broker for a partition, None if it has had all of them."""
        if not self.brokers:
            return None
        if self._partition != partition:
            self._partition, self._index = partition, 0
            self._offset = (self._offset + 1) % len(self.brokers)
        if self._index >= len(self.brokers):
            return None
        broker = self.brokers[(self._index + self._offset) % len(self.brokers)]
        self._index += 1
        return broker


class _Rack:
    def __init__(self) -> None:
        self.live = _Turn()
        self.fenced = _Turn()

    def next(self, partition: int) -> int | None:
        broker = self.live.next(partition)
        return self.fenced.next(partition) if broker is None else broker


class _Placer:
    """Places one partition after the other. After as many as there are living brokers the order is shuffled: so no two
    brokers share all of their partitions, and if one is lost the others take over evenly."""

    def __init__(self, brokers: Iterable[BrokerImage], random: Random, existing: Sequence[PartitionState]) -> None:
        self._random = random
        racks: dict[str | None, _Rack] = {}
        rack_of: dict[int, str | None] = {}
        for broker in brokers:
            rack = racks.setdefault(broker.rack, _Rack())
            (rack.fenced if broker.fenced else rack.live).brokers.append(broker.node_id)
            rack_of[broker.node_id] = broker.rack
        names = sorted(racks, key=lambda name: (name is not None, name or ""))
        for name in names:
            live = racks[name].live
            live.begin(_after_last(sorted(live.brokers), existing) or random.randrange(len(live.brokers) or 1))
            racks[name].fenced.begin(random.randrange(len(racks[name].fenced.brokers) or 1))
        last = existing[-1].replicas[0] if existing else None
        begins = random.randrange(len(names)) if last not in rack_of else names.index(rack_of[last]) + 1
        self._racks = [racks[name] for name in names]
        self._live_count = sum(len(rack.live.brokers) for rack in self._racks)
        self._partition = 0
        self._offset = begins % len(names)

    def place(self, replication_factor: int) -> tuple[int, ...]:
        if self._partition and not self._partition % self._live_count:
            self._shuffle()
        first = self._offset
        while (leader := self._racks[first].live.next(self._partition)) is None:
            first = (first + 1) % len(self._racks)
        placed = [leader]
        index = self._offset
        leads_here: int | None = first
        while len(placed) < replication_factor:
            if index == leads_here:
                leads_here = None
            else:
                follower = self._racks[index].next(self._partition)
                if follower is not None:
                    placed.append(follower)
            index = (index + 1) % len(self._racks)
        self._partition += 1
        self._offset = (self._offset + 1) % len(self._racks)
        return tuple(placed)

    def _shuffle(self) -> None:
        self._random.shuffle(self._racks)
        for rack in self._racks:
            self._random.shuffle(rack.live.brokers)
            self._random.shuffle(rack.fenced.brokers)


def _after_last(brokers: Sequence[int], existing: Sequence[PartitionState]) -> int | None:
    """The place after the one of these brokers that the last of the existing partitions is on."""
    for state in reversed(existing):
        for replica in state.replicas:
            if replica in brokers:
                return brokers.index(replica) + 1
    return None
