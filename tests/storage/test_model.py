"""Any sequence of operations, against a plain model: hypothesis looks for one that differs, and shrinks it."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

import trio
import trio.testing
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ottla.kproto.records import Record, build_batch, iter_batches, iter_records
from ottla.simulation.harness.scheduling import scheduled
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import read

TOPIC_ID = UUID(int=77)
PARTITIONS = 3
partitions = st.integers(0, PARTITIONS - 1)


async def in_place(function: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


class Node:
    """A log manager that lives in a thread of its own, so that the rules may be plain functions.

    When a call returns, all that it has begun waits for something, and the order of tasks is the same each time: equal
    steps lead to equal logs, which hypothesis relies on.
    """

    def __init__(self, disk: SimulatedDisk, config: StorageConfig, log_config: LogConfig) -> None:
        self.disk = disk
        self._config = config
        self._log_config = log_config
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        self._ready.wait()

    def _run(self) -> None:
        with scheduled(0):
            trio.run(self._main)

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        self.manager = LogManager(self.disk, "/data", self._config, ManualClock(), run_blocking=in_place)
        try:
            async with self.manager.run():
                self.logs = [
                    await self.manager.open_log(TOPIC_ID, "topic", number, self._log_config)
                    for number in range(PARTITIONS)
                ]
                self._ready.set()
                await self._stop.wait()
        except* OSError:
            assert self.disk.is_dead
        finally:
            self._ready.set()

    def call(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        return trio.from_thread.run(self._settled, function, *arguments, trio_token=self._token)

    async def _settled(self, function: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        try:
            return await function(*arguments)
        finally:
            await trio.testing.wait_all_tasks_blocked()

    def stop(self) -> None:
        trio.from_thread.run_sync(self._stop.set, trio_token=self._token)
        self._thread.join()


class LogModel(RuleBasedStateMachine):
    """The model: for each partition a list of (offset, value), and where the log begins and ends."""

    @initialize(
        memstore_bytes=st.sampled_from((300, 5000)),
        segment_bytes=st.sampled_from((800, 3000, 1 << 20)),
        tail_cache_bytes=st.sampled_from((0, 1500, 1 << 20)),
        checkpoint_bytes=st.sampled_from((300, 1 << 20)),
        sync=st.booleans(),
    )
    def begin(self, sync: bool, **sizes: Any) -> None:
        self.config = StorageConfig(run_bytes=400, rewrite_dead_ratio=0.1, cleaner_backoff_ms=1 << 30, **sizes)
        self.log_config = LogConfig(delete=False, flush_messages=1 if sync else 1 << 40)
        self.records: list[list[tuple[int, bytes]]] = [[] for _ in range(PARTITIONS)]
        self.bounds = [(0, 0)] * PARTITIONS
        self.counter = 0
        self.node = Node(SimulatedDisk(5, cold_probability=0.3), self.config, self.log_config)

    @rule(partition=partitions, sizes=st.lists(st.integers(0, 300), min_size=1, max_size=4), epoch=st.integers(0, 3))
    def append(self, partition: int, sizes: list[int], epoch: int) -> None:
        values = []
        for size in sizes:
            values.append(b"%d:" % self.counter + b"." * size)
            self.counter += 1
        batch = memoryview(bytearray(build_batch([Record(timestamp_ms=1, value=value) for value in values])))

        async def run() -> int:
            log = self.node.logs[partition]
            await log.wait_for_room()
            return log.append_as_leader(batch, None, leader_epoch=max(epoch, log.latest_epoch), now_ms=1).base_offset

        start, end = self.bounds[partition]
        assert self.node.call(run) == end
        self.records[partition] += [(end + index, value) for index, value in enumerate(values)]
        self.bounds[partition] = (start, end + len(values))

    @rule(partition=partitions)
    def flush(self, partition: int) -> None:
        self.node.call(self.node.logs[partition].flush)

    @rule(partition=partitions, data=st.data())
    def truncate(self, partition: int, data: st.DataObject) -> None:
        start, end = self.bounds[partition]
        # A batch that lies across goes as a whole: what is left is asked from the log itself.
        offset = data.draw(st.integers(start, end))

        async def run() -> tuple[int, list[tuple[int, bytes]]]:
            log = self.node.logs[partition]
            await log.truncate_to(offset)
            return log.log_end_offset, await _read_all(log, log.log_start_offset)

        new_end, left = self.node.call(run)
        below = [record for record in self.records[partition] if record[0] < offset]
        assert new_end == offset
        assert left == [record for record in below if record[0] >= start][: len(left)]
        assert len(below) - len(left) < 4 + start
        self.records[partition] = left
        self.bounds[partition] = (start, offset)

    @rule(partition=partitions, data=st.data())
    def move_log_start(self, partition: int, data: st.DataObject) -> None:
        async def run(offset: int) -> None:
            log = self.node.logs[partition]
            await log.flush()
            log.advance_high_watermark(log.flushed_end_offset)
            await log.advance_log_start_offset(offset)

        start, end = self.bounds[partition]
        offset = data.draw(st.integers(start, end))
        self.node.call(run, offset)
        self.bounds[partition] = (offset, end)

    @rule()
    def clean(self) -> None:
        self.node.call(self.node.manager.clean)

    @rule()
    def restart(self) -> None:
        self.node.stop()
        self._start(self.node.disk.crash())

    @rule()
    def kill_when_flushed(self) -> None:
        self.node.call(self.node.manager.flush_all)
        disk = self.node.disk.crash()
        self.node.stop()
        self._start(disk)

    @rule()
    def cut_power_when_flushed(self) -> None:
        self.node.call(self.node.manager.flush_all)
        disk = self.node.disk.power_loss()
        self.node.stop()
        self._start(disk)

    def _start(self, disk: SimulatedDisk) -> None:
        self.node = Node(disk, self.config, self.log_config)

    @rule(partition=partitions, data=st.data(), max_bytes=st.sampled_from((1, 500, 1 << 20)))
    def read_somewhere(self, partition: int, data: st.DataObject, max_bytes: int) -> None:
        async def run(offset: int) -> list[tuple[int, bytes]]:
            await self.node.logs[partition].flush()
            return await _read(self.node.logs[partition], offset, max_bytes)

        start, end = self.bounds[partition]
        offset = data.draw(st.integers(start, end))
        found = self.node.call(run, offset)
        rest = [record for record in self.records[partition] if record[0] >= offset]
        assert found == rest[: len(found)]
        assert found or not rest

    @invariant()
    def logs_agree(self) -> None:
        if not hasattr(self, "node"):
            return
        for log, (start, end) in zip(self.node.logs, self.bounds, strict=True):
            assert (log.log_start_offset, log.log_end_offset) == (start, end)
            assert log.flushed_end_offset <= end

    def teardown(self) -> None:
        if hasattr(self, "node"):
            for number, log in enumerate(self.node.logs):
                self.node.call(log.flush)
                start = self.bounds[number][0]
                assert self.node.call(_read_all, log, start) == [r for r in self.records[number] if r[0] >= start]
            self.node.stop()
            assert self.node.manager.context.pool.counters.in_use == 0
            assert self.node.disk.open_handles == 0


async def _read(log: PartitionLog, offset: int, max_bytes: int) -> list[tuple[int, bytes]]:
    plan = log.plan_read(offset, max_bytes=max_bytes, end_offset=log.flushed_end_offset, min_one_batch=True)
    await read([plan])
    assert plan.error is None, plan.error
    assert plan.records is not None
    with plan.records as records:
        content = records.to_bytes()
    return [
        (record.offset, record.value or b"")
        for pos, header in iter_batches(content)
        for record in iter_records(content, pos, header)
        if record.offset >= offset
    ]


async def _read_all(log: PartitionLog, offset: int) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    while offset < log.flushed_end_offset and (part := await _read(log, offset, 700)):
        found += part
        offset = part[-1][0] + 1
    return found


LogModel.TestCase.settings = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestLogModel = LogModel.TestCase
