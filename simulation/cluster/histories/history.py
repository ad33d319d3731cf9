"""What clients did and saw of the records of each partition, and what of it contradicts what they were promised."""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

import trio

from ottla.simulation.cluster.histories.attempts import Attempt, Move, Partition, Transaction
from ottla.simulation.cluster.histories.moves import contradiction

__all__ = ["History"]


class Findings(Protocol):
    """Where it goes that the cluster did what it must not do."""

    def fail(self, finding: str, cause: BaseException | None = None) -> None: ...

    def check(self, condition: bool, finding: str) -> None: ...


class History:
    """The records of one seed, or of one run."""

    def __init__(self, world: Findings) -> None:
        self._world = world
        self.attempts: dict[bytes, Attempt] = {}
        #: What any reader has seen at an offset: below the high watermark a log never changes.
        self.seen: defaultdict[Partition, dict[int, bytes]] = defaultdict(dict)
        self.acknowledged = 0
        #: The next one.
        self.acknowledgement = trio.Event()
        self.moves: list[Move] = []

    def begin(
        self,
        producer: str,
        partition: Partition,
        number: int,
        transaction: Transaction | None = None,
        *,
        value: bytes | None = None,
    ) -> Attempt:
        """A record is about to be sent; without a value it gets one that says which it is."""
        attempt = Attempt(producer, partition, number, transaction, value)
        self.attempts[attempt.value] = attempt
        return attempt

    def acknowledge(self, attempt: Attempt, offset: int) -> None:
        """It was acknowledged at an offset, or (-1) without one."""
        attempt.offset, attempt.acknowledged_at_s = offset, trio.current_time()
        self.acknowledged += 1
        self.acknowledgement.set()
        self.acknowledgement = trio.Event()
        if offset >= 0:
            self._found(attempt.partition, offset, attempt.value, "was acknowledged")

    def saw(self, reader: str, partition: Partition, offset: int, value: bytes, *, is_committed: bool) -> None:
        """A reader has found a record; if `is_committed`, a reader of committed records only."""
        attempt = self.attempts.get(value)
        if attempt is None or attempt.partition != partition:
            self._world.fail(f"{reader} sees {value!r} at {_at(partition, offset)}, which nobody has sent there")
            return
        transaction = attempt.transaction
        if is_committed and transaction is not None and transaction.outcome is False:
            self._world.fail(f"{reader} sees {value!r} at {_at(partition, offset)}, and its transaction was aborted")
        self._found(partition, offset, value, f"is seen by {reader}")

    def _found(self, partition: Partition, offset: int, value: bytes, how: str) -> None:
        before = self.seen[partition].setdefault(offset, value)
        if before != value:
            self._world.fail(f"{value!r} {how} at {_at(partition, offset)}, where {before!r} was before")

    def check_log(self, partition: Partition, records: dict[int, bytes]) -> None:
        """Compare with all that a reader of uncommitted records sees of a partition in the end."""
        fail = self._world.fail
        for offset, value in self.seen[partition].items():
            if records.get(offset) != value:
                fail(f"{value!r} was at {_at(partition, offset)}, and {records.get(offset)!r} is there in the end")
        places: dict[bytes, int] = {}
        last: dict[str, int] = {}
        for offset, value in sorted(records.items()):
            if value in places:
                fail(f"{value!r} is twice in {partition}: at {places[value]} and at {offset}")
            places[value] = offset
            attempt = self.attempts.get(value)
            if attempt is None or attempt.partition != partition:
                fail(f"{value!r} is in {partition}, and nobody has sent it there")
                return
            if attempt.number < last.get(attempt.producer, -1):
                fail(f"{value!r} at {_at(partition, offset)} comes behind number {last[attempt.producer]}")
            last[attempt.producer] = attempt.number
        for attempt in self.attempts.values():
            if attempt.partition == partition and attempt.offset is not None and attempt.value not in places:
                fail(f"{attempt.value!r} was acknowledged at {_at(partition, attempt.offset)} and is lost")

    def check_committed(self, logs: dict[Partition, dict[int, bytes]]) -> None:
        """Compare with what readers of committed records see in the end: whole transactions, and no aborted one."""
        visible = {value for records in logs.values() for value in records.values()}
        shown: dict[Transaction, set[bool]] = {}
        for attempt in self.attempts.values():
            is_visible = attempt.value in visible
            if attempt.transaction is None:
                if attempt.offset is not None and not is_visible:
                    self._world.fail(f"{attempt.value!r} was acknowledged and readers of committed records miss it")
                continue
            if is_visible and attempt.transaction.outcome is False:
                self._world.fail(f"{attempt.value!r} is visible, and {attempt.transaction.name} was aborted")
            if attempt.offset is not None:
                if attempt.transaction.outcome is True and not is_visible:
                    self._world.fail(f"{attempt.value!r} is missing, and {attempt.transaction.name} was committed")
                shown.setdefault(attempt.transaction, set()).add(is_visible)
        for transaction, kinds in shown.items():
            if len(kinds) > 1:
                self._world.fail(f"half of {transaction.name} is visible")
        finding = contradiction(self.moves, logs, self.attempts)
        self._world.check(not finding, finding)


def _at(partition: Partition, offset: int) -> str:
    return f"{partition[0]}-{partition[1]} offset {offset}"
