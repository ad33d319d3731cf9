"""Taking a checkpoint of a store while it is written to."""

from __future__ import annotations

from itertools import islice

import trio

from ottla.storage.errors import DiskFullError
from ottla.storage.store.memstore import StoreLog

__all__ = ["CheckpointBuilder"]

_SLICE = 64


class CheckpointBuilder:
    """A checkpoint under way: the states of the partitions that have changed, all as of one block.

    It is armed when a memstore is swapped out: from then on a partition's state is taken before it changes again, by
    `capture`, or in its turn, by `take_all`. What the states speak of is durable only after a sync that begins then.
    `is_abandoned` is set when the store stops.
    """

    __slots__ = ("_as_of", "_remaining", "armed", "is_abandoned", "taken")

    def __init__(self, changed: dict[StoreLog, None]) -> None:
        self._remaining = changed
        self._as_of = -1
        self.taken: dict[bytes, bytes] = {}
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
        """The store has stopped: nothing comes of this checkpoint."""
        self.is_abandoned = True
        self.armed.set()

    def check(self) -> None:
        """Raise DiskFullError if it was abandoned; the store serves on, as who asks knows."""
        if self.is_abandoned:
            raise DiskFullError("a checkpoint was given up, as the disk was full for a moment")

    def capture(self, log: StoreLog) -> None:
        """Take the state of a log that is about to change, if it has not been taken yet."""
        if self.armed.is_set() and log in self._remaining:
            del self._remaining[log]
            self.taken[log.key] = log.pack_state(self._as_of)

    def forget(self, log: StoreLog) -> None:
        """The log is deleted: nothing of it belongs into a checkpoint."""
        self._remaining.pop(log, None)
        self.taken.pop(log.key, None)

    @property
    def left(self) -> dict[StoreLog, None]:
        """The logs whose state was not taken."""
        return self._remaining

    async def take_all(self) -> None:
        """Take all other states, in slices, so that the event loop is not held."""
        await self.armed.wait()
        while self._remaining and not self.is_abandoned:
            for log in list(islice(self._remaining, _SLICE)):
                self.capture(log)
            await trio.lowlevel.checkpoint()
