"""The partitions that a start leaves for later: a node with thousands of topics serves before it has opened all logs.

Only those are left that nobody else can lead or has a copy of, and whose opening tells other parts of the node nothing.
A request that names one waits for it, and for no other: what is asked for is opened first.
"""

from __future__ import annotations

from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

import trio

from ottla.runtime.stages import Stages, finish
from ottla.runtime.time_slice import TimeSlice, chunks

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.metadata.image import PartitionState, TopicImage

    Key = tuple[UUID, int]

OPENED_AT_START: Final = 256
"""Of how many partitions a start leaves none."""


def may_be_left(topic: TopicImage, state: PartitionState, node_id: int) -> bool:
    """Whether nobody but clients asks for a partition of this node: it is the only replica, and the partition is
    neither a coordinator's nor copied from anywhere.
    """
    alone = (node_id,)
    return state.replicas == alone == state.isr and not (topic.is_internal or topic.is_mirrored)


class Unopened:
    """Which partitions are left, and who waits for them."""

    def __init__(self) -> None:
        #: Those that are left, for others to look at: each request asks whether there are any.
        self.left: dict[Key, None] = {}
        # Those that somebody waits for, each with who does: nobody is woken for another one.
        self._wanted: dict[Key, trio.lowlevel.ParkingLot] = {}
        self._until_all = trio.lowlevel.ParkingLot()

    def leave(self, key: Key) -> None:
        """This one is opened later."""
        self.left[key] = None

    def take(self, key: Key) -> None:
        """This one is open now, or is known not to be openable."""
        self.left.pop(key, None)
        waiting = self._wanted.pop(key, None)
        if waiting is not None:
            waiting.unpark_all()
        if not self.left:
            self._until_all.unpark_all()

    def next(self, count: int) -> list[Key]:
        """Those that are opened next: first what somebody waits for."""
        others = (key for key in self.left if key not in self._wanted)
        return list(islice(chain(self._wanted, others), count))

    def until_open(self, keys: Iterable[Key]) -> Stages[None]:
        """Wait until none of these is left."""
        asked = []
        time_slice = TimeSlice()
        for some in chunks(keys):
            if time_slice.is_over:
                yield trio.lowlevel.checkpoint
                time_slice.renew()
            for key in some:
                if key in self.left:
                    asked.append(key)
                    self._wanted.setdefault(key, trio.lowlevel.ParkingLot())
        for key in asked:
            if time_slice.is_over:
                yield trio.lowlevel.checkpoint
                time_slice.renew()
            if key in self._wanted:
                yield partial(self._until_one, key)

    async def _until_one(self, key: Key) -> None:
        # It may have been opened since the wait was yielded: the task that waits comes later.
        waiting = self._wanted.get(key)
        if waiting is not None:
            await waiting.park()

    async def wait(self, keys: Iterable[Key]) -> None:
        """`until_open`, in a task."""
        await finish(self.until_open(keys))

    async def wait_for_all(self) -> None:
        """Return when nothing is left."""
        while self.left:
            await self._until_all.park()
