"""Whether a transaction has ended while somebody asked its coordinator, which may be another broker, if it is open.

An offset that is written behind its transaction's marker would wait for another one forever. For other partitions the
log has such guards (`producer_verification`); a coordinator's writes have an order of their own, so it has its own.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.server.coordinator.errors import CoordinatorLoadInProgressError


class TransactionGuard:
    """Of one commit under way."""

    __slots__ = ("has_ended",)

    def __init__(self) -> None:
        self.has_ended = False

    def check(self) -> None:
        """Raises CoordinatorLoadInProgressError, after which clients ask again, if a marker was written meanwhile."""
        if self.has_ended:
            raise CoordinatorLoadInProgressError("the end of a transaction came in between")


class TransactionGuards:
    """The guards of the commits under way, by the partition of `__consumer_offsets` and the producer."""

    def __init__(self) -> None:
        self._guards: dict[tuple[int, int], list[TransactionGuard]] = {}

    @contextmanager
    def watch(self, partition: int, producer_id: int) -> Iterator[TransactionGuard]:
        """Begun before the coordinator is asked; checked, without an await in between, when the offsets are written."""
        key = (partition, producer_id)
        guard = TransactionGuard()
        self._guards.setdefault(key, []).append(guard)
        try:
            yield guard
        finally:
            self._guards[key].remove(guard)
            if not self._guards[key]:
                del self._guards[key]

    def end(self, partition: int, producer_id: int) -> None:
        """A marker of the producer gets its place in the partition."""
        for guard in self._guards.get((partition, producer_id), ()):
            guard.has_ended = True
