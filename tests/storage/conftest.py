"""What the storage tests share: batches, a manager on a disk, whole reads."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.runtime import time_slice
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import Disk, RealDisk
from ottla.storage.errors import ChecksTakeLongError
from ottla.storage.log.append_checks import check_and_recompress
from ottla.storage.log.partition_log import AppendInfo, AppendOrigin, PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import read

TOPIC_ID = UUID("11111111-2222-3333-4444-555555555555")


async def in_place(function: Callable[[], Any]) -> Any:
    """Run blocking work on the event loop."""
    await trio.lowlevel.checkpoint()
    return function()


@asynccontextmanager
async def counted_turns() -> AsyncIterator[Callable[[], int]]:
    """How often another task that is always ready has run inside the block, by now."""
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        yield lambda: turns
        nursery.cancel_scope.cancel()


async def turns_during(work: Callable[[], Awaitable[object]]) -> int:
    """How often another task that is always ready runs meanwhile."""
    async with counted_turns() as turns:
        await work()
        return turns()


@pytest.fixture
def counted_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slice of time is over after twenty looks at its clock, on every machine."""
    looks = count()
    monkeypatch.setattr(time_slice, "perf_counter", lambda: next(looks) * time_slice.SLICE_SECONDS / 20)


class Harness:
    """Batches in, records out."""

    topic_id = TOPIC_ID
    other_topic_id = UUID(int=TOPIC_ID.int + 1)
    clock: ManualClock

    def __init__(self, folder: str, clock: ManualClock) -> None:
        self.folder = folder
        self.clock = clock

    @staticmethod
    def batch(
        values: Sequence[bytes], *, key: bytes | None = None, timestamp_ms: int = 0, **options: Any
    ) -> memoryview:
        """One produced batch with these values."""
        now_ms = timestamp_ms or 1_700_000_000_000
        records = [Record(timestamp_ms=now_ms, key=key, value=value) for value in values]
        return memoryview(bytearray(build_batch(records, **options)))

    def append(self, log: PartitionLog, *values: bytes, leader_epoch: int = 0, **options: Any) -> AppendInfo:
        """Append one batch as a client's."""
        batch = self.batch(values, **options)
        now_ms = self.clock.time_ms()
        append = partial(
            log.append_as_leader,
            batch,
            None,
            leader_epoch=leader_epoch,
            origin=AppendOrigin.CLIENT,
            now_ms=now_ms,
        )
        try:
            return append()
        except ChecksTakeLongError:
            return append(checked=check_and_recompress(batch, log.config, now_ms))

    @staticmethod
    async def read_records(
        log: PartitionLog, offset: int = 0, *, max_bytes: int = 1 << 20, end_offset: int | None = None
    ) -> list[tuple[int, bytes | None]]:
        """(offset, value) of the records of one read from an offset on."""
        end = log.flushed_end_offset if end_offset is None else end_offset
        plan = log.plan_read(offset, max_bytes=max_bytes, end_offset=end, min_one_batch=True)
        await read([plan])
        if plan.error is not None:
            raise plan.error
        assert plan.records is not None
        content = plan.records.to_bytes()
        plan.release()
        return [
            (record.offset, record.value)
            for pos, header in iter_batches(content)
            for record in iter_records(content, pos, header)
            if record.offset >= offset
        ]

    async def read_all(self, log: PartitionLog, offset: int | None = None) -> list[tuple[int, bytes | None]]:
        """All readable records, in as many reads as it takes."""
        found: list[tuple[int, bytes | None]] = []
        position = log.log_start_offset if offset is None else offset
        while position < log.flushed_end_offset:
            part = await self.read_records(log, position)
            if not part:
                break
            found += part
            position = part[-1][0] + 1
        return found

    @asynccontextmanager
    async def manager(self, disk: Disk | None = None, **settings: Any) -> AsyncIterator[LogManager]:
        """A running log manager over the test's folder."""
        config = StorageConfig(**settings)
        # Work in place on a simulated disk: a clock that jumps when all tasks wait knows nothing of threads.
        run_blocking = trio.to_thread.run_sync if disk is None else in_place
        manager = LogManager(disk or RealDisk(), self.folder, config, self.clock, run_blocking=run_blocking)
        self.running = manager
        async with manager.run():
            yield manager
        assert manager.context.pool.counters.in_use == 0, "a buffer was not given back"

    async def settle(self) -> None:
        """Wait until what was rolled is sealed, and what asked for a checkpoint has one."""
        await self.running.maintenance.wait_idle()

    async def open(self, manager: LogManager, partition: int = 0, **settings: Any) -> PartitionLog:
        """Open a partition of the test's topic."""
        return await manager.open_log(TOPIC_ID, "topic", partition, LogConfig(**settings))


ManagerFactory = Callable[..., AbstractAsyncContextManager[LogManager]]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    """A folder, a clock, and helpers."""
    return Harness(str(tmp_path), ManualClock())
