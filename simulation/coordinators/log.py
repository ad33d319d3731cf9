"""`__consumer_offsets` in memory: appends take their time, fail, or are cut short by the end of the broker."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from functools import partial
from random import Random

import trio

from ottla.coordinator.errors import CoordinatorNotAvailableError
from ottla.kproto.records import parse_batch_header, patch_base_offset_and_epoch
from ottla.runtime.stages import Stages
from ottla.simulation.turns import SoonEnded


class SimulatedLog:
    """Implements CoordinatorLog; it survives the broker.

    An append waits before it stores its batch and again before it says so: a broker that dies meanwhile leaves a batch
    that was stored and not answered, or none. `refusing` partitions store nothing.
    """

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self.turn = SoonEnded()
        self._batches: defaultdict[int, list[bytes]] = defaultdict(list)
        self._ends: defaultdict[int, int] = defaultdict(int)
        self.refusing: set[int] = set()
        #: Seconds that half of an append takes at most.
        self.slowness = 0.0

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        base_offset: int = yield partial(self.append, partition, records)
        return base_offset

    async def append(self, partition: int, records: bytes) -> int:
        await self._pause()
        if partition in self.refusing:
            raise CoordinatorNotAvailableError(f"partition {partition} refuses")
        batch = bytearray(records)
        base_offset = self._ends[partition]
        patch_base_offset_and_epoch(memoryview(batch), 0, base_offset, 0)
        self._batches[partition].append(bytes(batch))
        self._ends[partition] = base_offset + parse_batch_header(batch, 0).record_count
        await self._pause()
        return base_offset

    async def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        for batch in list(self._batches[partition]):
            if self._rng.random() < 0.1:
                await self._pause()
            yield memoryview(batch)

    async def confirm(self, partitions: Iterable[int]) -> None:
        await trio.lowlevel.checkpoint()

    async def _pause(self) -> None:
        if self._rng.random() < 0.5:
            await trio.sleep(self._rng.uniform(0, self.slowness))
        else:
            for _ in range(self._rng.randint(1, 4)):
                await trio.lowlevel.checkpoint()
