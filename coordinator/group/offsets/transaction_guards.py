"""Notices a transaction that ends while its coordinator, which may be another broker, is asked whether it is open.

An offset that is written after its transaction's marker would wait for another marker forever. So it is also refused if
the partition was led by another broker in between, which may have written the marker. For other partitions the log has
such guards (`producer_verification`); a coordinator's writes have an order of their own, and so these guards.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from ottla.coordinator.errors import CoordinatorLoadInProgressError
from ottla.coordinator.group.shard.shards import GroupShards


class TransactionGuard:
    """The guard of one commit under way."""

    __slots__ = ("_group_id", "_shard", "_shards", "has_ended")

    def __init__(self, shards: GroupShards, group_id: str) -> None:
        self._shards = shards
        self._group_id = group_id
        self._shard = shards.of(group_id)
        self.has_ended = False

    @property
    def partition(self) -> int:
        """The partition of `__consumer_offsets` that the group lives in."""
        return self._shard.partition

    def check(self) -> None:
        """Raise CoordinatorLoadInProgressError, after which clients ask again, if a marker was, or may have been,
        written meanwhile. Raises what says that the partition is not led here.
        """
        if self.has_ended or self._shards.of(self._group_id) is not self._shard:
            raise CoordinatorLoadInProgressError("the transaction ended meanwhile")


class TransactionGuards:
    """The guards of the commits under way, by the partition of `__consumer_offsets` and the producer."""

    def __init__(self) -> None:
        self._guards: dict[tuple[int, int], list[TransactionGuard]] = {}

    @contextmanager
    def watch(self, shards: GroupShards, group_id: str, producer_id: int) -> Iterator[TransactionGuard]:
        """Enter this before the coordinator is asked; check the guard, with no await after it, to write the offsets.
        Raises what `GroupShards.of` does.
        """
        guard = TransactionGuard(shards, group_id)
        key = (guard.partition, producer_id)
        self._guards.setdefault(key, []).append(guard)
        try:
            yield guard
        finally:
            self._guards[key].remove(guard)
            if not self._guards[key]:
                del self._guards[key]

    def end(self, partition: int, producer_id: int) -> None:
        """A marker of the producer is about to be written to the partition."""
        for guard in self._guards.get((partition, producer_id), ()):
            guard.has_ended = True
