"""Taking a checkpoint of a store while it is written to."""

from __future__ import annotations

from collections.abc import Generator

import trio

from ottla.runtime.time_slice import CHUNK_ELEMENTS, TimeSlice
from ottla.storage.errors import DiskFullError
from ottla.storage.format.checkpoint import PartitionState
from ottla.storage.state.producer_snapshot import write_snapshot, write_snapshot_in_steps
from ottla.storage.state.producer_state import FrozenProducers
from ottla.storage.store.memstore import StoreLog

__all__ = ["CheckpointBuilder"]


class CheckpointBuilder:
    """A checkpoint under way: the states of the partitions that have changed, all as of one block.

    It is armed when a memstore is swapped out: from then on a partition's state is taken before it changes again, by
    `capture`, or in its turn, by `take_all`. What the states speak of is durable only after a sync that begins then.
    `is_abandoned` is set when the store stops.
    """

    __slots__ = ("_as_of", "_remaining", "_unpacked", "armed", "is_abandoned", "taken")

    def __init__(self, changed: dict[StoreLog, None]) -> None:
        self._remaining = changed
        self._as_of = -1
        self.taken: dict[bytes, bytes] = {}
        # With many producers, which are packed in slices.
        self._unpacked: dict[bytes, tuple[PartitionState, FrozenProducers]] = {}
        self.armed = trio.Event()
        self.is_abandoned = False

    @property
    def is_armed(self) -> bool:
        return self.armed.is_set()

    def arm(self, as_of_sequence: int) -> None:
        """All that was appended up to now is in blocks up to this one."""
        self._as_of = as_of_sequence
        self.armed.set()

    def abandon(self) -> None:
        """The store has stopped: this checkpoint is abandoned."""
        self.is_abandoned = True
        self.armed.set()

    def check(self) -> None:
        """Raise DiskFullError if it was abandoned; the caller knows that the store still serves."""
        if self.is_abandoned:
            raise DiskFullError("a checkpoint was given up, because the disk was full for a moment")

    def capture(self, log: StoreLog) -> None:
        """Take the state of a log that is about to change, if it has not been taken yet."""
        if self.armed.is_set() and log in self._remaining:
            del self._remaining[log]
            state, producers = log.state(self._as_of)
            if producers is None:
                self.taken[log.key] = state.pack()
            elif len(producers.producers) + len(producers.undecided) <= CHUNK_ELEMENTS:
                self.taken[log.key] = state._replace(producers=write_snapshot(producers)).pack()
            else:
                self._unpacked[log.key] = state, producers

    def forget(self, log: StoreLog) -> None:
        """The log is deleted: nothing of it belongs in a checkpoint."""
        self._remaining.pop(log, None)
        self.taken.pop(log.key, None)
        self._unpacked.pop(log.key, None)

    @property
    def left(self) -> dict[StoreLog, None]:
        """The logs whose state was not taken."""
        return self._remaining

    @property
    def begun(self) -> list[bytes]:
        """The keys of the logs whose state was taken, packed or not."""
        return [*self.taken, *self._unpacked]

    async def take_all(self) -> None:
        """Take all other states, and pack all, in slices, so that the event loop is not held."""
        await self.armed.wait()
        time_slice = TimeSlice()
        for log in list(self._remaining):
            if self.is_abandoned:
                break
            self.capture(log)
            await time_slice.maybe_yield()
        for key, (state, producers) in list(self._unpacked.items()):
            packed = await _finish(write_snapshot_in_steps(producers), time_slice)
            if self._unpacked.pop(key, None) is not None:  # else it was deleted meanwhile
                self.taken[key] = state._replace(producers=packed).pack()


async def _finish(steps: Generator[None, None, bytes], time_slice: TimeSlice) -> bytes:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            content: bytes = end.value
            return content
        await time_slice.maybe_yield()
