"""An internal topic in memory: the coordinators' log without a broker."""

from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable
from functools import partial

import pytest
import trio

from ottla.kproto.records import parse_batch_header, patch_base_offset_and_epoch
from ottla.runtime.stages import Stages
from ottla.simulation.turns import SoonEnded
from tests.servers import serve_handlers, serve_node

__all__ = ["serve_handlers", "serve_node"]


class MemoryLog:
    """Implements CoordinatorLog. `gate` holds appends back, `error` refuses them, `appends` counts them.

    `told` holds back the answer to what was appended, `reading` every read.
    """

    def __init__(self) -> None:
        self.turn = SoonEnded()
        self.batches: dict[int, list[bytes]] = defaultdict(list)
        self.gate = trio.Event()
        self.gate.set()
        self.told = trio.Event()
        self.told.set()
        self.reading = trio.Event()
        self.reading.set()
        self.error: Exception | None = None
        self.read_error: Exception | None = None
        self.appends = 0
        self._ends: dict[int, int] = defaultdict(int)

    def begin_append(self, partition: int, records: bytes) -> Stages[int]:
        base_offset: int = yield partial(self.append, partition, records)
        return base_offset

    async def append(self, partition: int, records: bytes) -> int:
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        if self.error is not None:
            raise self.error
        base_offset = self.store(partition, records)
        await self.told.wait()
        return base_offset

    def store(self, partition: int, records: bytes) -> int:
        self.appends += 1
        batch = bytearray(records)
        base_offset = self._ends[partition]
        patch_base_offset_and_epoch(memoryview(batch), 0, base_offset, 0)
        self.batches[partition].append(bytes(batch))
        self._ends[partition] = base_offset + parse_batch_header(batch, 0).record_count
        return base_offset

    async def read(self, partition: int) -> AsyncGenerator[memoryview, None]:
        await self.reading.wait()
        for batch in list(self.batches[partition]):
            await trio.lowlevel.checkpoint()
            if self.read_error is not None:
                raise self.read_error
            yield memoryview(batch)

    async def confirm(self, partitions: Iterable[int]) -> None:
        await trio.lowlevel.checkpoint()


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog()
