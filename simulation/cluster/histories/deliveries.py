"""What members of a share group were given, how they have acknowledged it, and what contradicts that."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING, Final, Protocol

import trio

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["ACCEPT", "GAP", "REJECT", "RELEASE", "RENEW", "Deliveries", "Delivery", "Giver", "ShareSession"]

GAP: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_LAST: Final = (ACCEPT, REJECT)
"""After these a record is not delivered again."""


class Giver(Protocol):
    """The leader of a share partition in one leader epoch, as long as it has the partition in memory."""

    leader_epoch: int


class ShareSession:
    """A member's session with a node, as the member knows it."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        #: The session epoch of the next request.
        self.epoch = 0
        self.partitions: list[Partition] = []
        #: When the request was sent that was answered last: the session had not ended then.
        self.alive_s = 0.0


class Delivery:
    """A record that a member was given. `giver` is who gave it, if that is certain."""

    __slots__ = (
        "asked_s",
        "count",
        "ends_s",
        "giver",
        "lock_ends_s",
        "member",
        "offset",
        "partition",
        "received_s",
        "session",
    )

    def __init__(
        self,
        member: str,
        partition: Partition,
        offset: int,
        count: int,
        *,
        asked_s: float,
        lock_s: float,
        giver: Giver | None,
        session: ShareSession,
    ) -> None:
        self.member = member
        self.partition = partition
        self.offset = offset
        self.count = count
        self.asked_s = asked_s
        self.received_s = trio.current_time()
        self.giver = giver
        self.session = session
        #: Until then the leader lets nobody else have it, unless the member's session ends before.
        self.lock_ends_s = asked_s + lock_s
        #: Until then the member holds it: it may have said before what becomes of it.
        self.ends_s = self.lock_ends_s

    @property
    def place(self) -> tuple[Partition, int]:
        return self.partition, self.offset

    def __str__(self) -> str:
        topic, index = self.partition
        return f"{topic}-{index} offset {self.offset} (delivery {self.count} to {self.member})"


class Deliveries:
    """The account of one group.

    A leader that does not know yet that another one leads may, as in Kafka, deliver what was accepted there. Neither
    a later leader may do that, nor the one that has accepted it.
    """

    def __init__(self, world: ClientEnvironment, group: str, *, limit: int, lock_s: float, is_committed: bool) -> None:
        self._world = world
        self.group = group
        self.limit = limit
        self.lock_s = lock_s
        self.is_committed = is_committed
        #: When the last record was delivered.
        self.last_s = 0.0
        self._all: dict[tuple[Partition, int], list[Delivery]] = {}
        #: When a member said what ends a record, and in which leader epoch at the latest that was accepted.
        self._over: dict[tuple[Partition, int], tuple[float, int]] = {}
        #: How often somebody has said what makes a record over, and was not refused, by what was said.
        self._perhaps_over: dict[int, Counter[tuple[Partition, int]]] = {kind: Counter() for kind in _LAST}
        #: What has become of a record for certain: its holder has said so in time, and who gave it has agreed.
        self._certain: dict[tuple[Partition, int], tuple[int, Delivery]] = {}
        #: Fetches without an answer: each may have delivered any record of the partition once more.
        self._unanswered: Counter[Partition] = Counter()

    def deliver(self, delivery: Delivery) -> None:
        """A member was given a record."""
        check = self._world.check
        check(
            1 <= delivery.count <= self.limit,
            f"{self.group} is given {delivery}, and no record is to be delivered more than {self.limit} times",
        )
        self._all.setdefault(delivery.place, []).append(delivery)
        self.last_s = trio.current_time()
        over = self._over.get(delivery.place)
        if over is not None and delivery.giver is not None:
            at_s, epoch = over
            check(
                delivery.asked_s < at_s or delivery.giver.leader_epoch < epoch,
                f"{self.group} is given {delivery} in epoch {delivery.giver.leader_epoch}, which was over since "
                f"{at_s:.4f} in epoch {epoch}",
            )

    def lose(self, partitions: Iterable[Partition]) -> None:
        """A fetch of these was not answered."""
        self._unanswered.update(partitions)

    def say(self, delivery: Delivery, kind: int) -> None:
        """A member is about to acknowledge a record."""
        if kind != RENEW:
            delivery.ends_s = min(delivery.ends_s, trio.current_time())
        if kind in _LAST:
            self._perhaps_over[kind][delivery.place] += 1

    def settle(self, delivery: Delivery, kind: int, *, is_done: bool, said_s: float, leader: Giver | None) -> None:
        """An acknowledgement was answered for certain; `leader` leads there then, if anybody does."""
        if kind == RENEW:
            # What is over cannot be renewed; but before the group's start Ottla, like Kafka, does not say so.
            if is_done and not self._is_excused(delivery.place, is_certain=True):
                delivery.lock_ends_s = max(delivery.lock_ends_s, said_s + self.lock_s)
                delivery.ends_s = max(delivery.ends_s, said_s + self.lock_s)
        elif kind in _LAST:
            if not is_done:
                self._perhaps_over[kind][delivery.place] -= 1
            elif leader is not None:
                self._over.setdefault(delivery.place, (trio.current_time(), leader.leader_epoch))
                # Later it may be over for another reason, of which a member that is late is not told.
                if leader is delivery.giver and trio.current_time() < delivery.lock_ends_s:
                    self._certain.setdefault(delivery.place, (kind, delivery))

    def missing(self, logs: Mapping[Partition, Collection[int]], *, is_certain: bool = True) -> list[str]:
        """The records at these offsets that are still to be delivered.

        If it need not be certain, also those that may be over because of fetches that were not answered.
        """
        return [
            f"{topic}-{index} offset {offset}"
            for (topic, index), offsets in logs.items()
            for offset in sorted(offsets)
            if not self._is_excused(((topic, index), offset), is_certain=is_certain)
        ]

    def _is_excused(self, place: tuple[Partition, int], *, is_certain: bool) -> bool:
        """Whether a record may be over: somebody has said so, or it was delivered as often as it may be."""
        unanswered = self._unanswered[place[0]] if is_certain else 0
        is_over = any(said[place] > 0 for said in self._perhaps_over.values())
        return is_over or len(self._all.get(place, ())) + unanswered >= self.limit

    # What becomes of a record

    def may_be(self, kind: int, partition: Partition, offset: int) -> bool:
        """Whether somebody has said this of a record, and was not refused."""
        return self._perhaps_over[kind][partition, offset] > 0

    def certainly(self, partition: Partition, offset: int) -> int | None:
        """ACCEPT or REJECT if that is what has become of a record for certain, and nothing else can."""
        kind, _ = self._certain.get((partition, offset), (None, None))
        return kind

    def may_be_exhausted(self, partition: Partition, offset: int) -> bool:
        """Whether a record may have been delivered as often as it may be, and not accepted in time by who had it then.

        A delivery that was accepted in time does not count, nor does any other by the same leader before it.
        """
        if self._unanswered[partition]:
            return True
        kind, held = self._certain.get((partition, offset), (None, None))
        giver = None if held is None or kind != ACCEPT or held.giver is None else held.giver
        return any(
            each.count >= self.limit and (giver is None or each.giver is not giver)
            for each in self._all.get((partition, offset), ())
        )

    def check_holders(self) -> None:
        """A record has one holder at a time: it is given again once it was given back, and its count rises by one."""
        for deliveries in self._all.values():
            by_giver: defaultdict[int, list[Delivery]] = defaultdict(list)
            for delivery in deliveries:
                if delivery.giver is not None:
                    by_giver[id(delivery.giver)].append(delivery)
            for given in by_giver.values():
                for former, latter in pairwise(sorted(given, key=lambda each: (each.count, each.received_s))):
                    self._check_pair(former, latter)

    def _check_pair(self, former: Delivery, latter: Delivery) -> None:
        check = self._world.check
        check(former.count != latter.count, f"{former} is {latter} as well")
        ends_s = min(former.ends_s, former.session.alive_s)
        check(
            latter.received_s >= ends_s,
            f"{former} is given as {latter} at {latter.received_s:.4f}, and is held until {ends_s:.4f} at least",
        )
