"""The range after a read is in memory when it is asked for, and never anything but what a read would have found."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.kproto.records import iter_batches, iter_records
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.faults import Fault, FaultKind
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import LogClosedError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import ReadPlan, read
from ottla.storage.reading.prefetch import Prefetch

COUNT = 100
MAX_BYTES = 2000


class Gate:
    """Lets worker threads pass, or holds them."""

    def __init__(self) -> None:
        self.is_open = trio.Event()
        self.is_open.set()

    async def run_blocking(self, function: Callable[[], Any]) -> Any:
        await trio.lowlevel.checkpoint()
        await self.is_open.wait()
        return function()


class Node:
    """A log manager whose reads all come from files, and so many are counted."""

    def __init__(self, harness: Any) -> None:
        self.harness = harness
        self.gate = Gate()
        self.disk = SimulatedDisk(3, cold_probability=0.0)
        config = StorageConfig(tail_cache_bytes=0, run_bytes=600, segment_bytes=20_000)
        self.manager = LogManager(self.disk, "/data", config, ManualClock(), run_blocking=self.gate.run_blocking)

    @property
    def prefetch(self) -> Prefetch:
        return self.manager.reader.prefetch

    def make_reads_hang(self) -> None:
        self.disk.cold_probability = 1.0
        self.gate.is_open = trio.Event()

    @property
    def buffers_in_use(self) -> int:
        return self.manager.context.pool.counters.in_use

    async def log(self, number: int = 0, value_bytes: int = 100, **settings: Any) -> PartitionLog:
        """A partition with `COUNT` records, each in a batch of its own."""
        log = await self.manager.open_log(self.harness.topic_id, "topic", number, LogConfig(**settings))
        for record in range(COUNT):
            self.harness.append(log, value(record, value_bytes), key=b"%d" % (record % 10))
            await log.flush()
        log.advance_high_watermark(log.flushed_end_offset)
        await self.manager.maintenance.wait_idle()
        return log


@pytest.fixture
async def node(harness: Any) -> AsyncIterator[Node]:
    node = Node(harness)
    async with node.manager.run():
        yield node
        node.gate.is_open.set()  # a test that failed may have left it closed
    assert node.buffers_in_use == 0


def value(record: int, size_bytes: int = 100) -> bytes:
    return b"%d" % record + b"x" * size_bytes


def plan_of(log: PartitionLog, offset: int, max_bytes: int = MAX_BYTES, end_offset: int | None = None) -> ReadPlan:
    end = log.flushed_end_offset if end_offset is None else end_offset
    return log.plan_read(offset, max_bytes=max_bytes, end_offset=end, min_one_batch=True)


async def next_read(log: PartitionLog, offset: int, *, settle: bool = True, **options: Any) -> tuple[list[bytes], int]:
    """The values from an offset on, and where to go on; what is read ahead then is there, or else is only asked for."""
    plan = plan_of(log, offset, **options)
    await read([plan])
    if plan.error is not None:
        raise plan.error
    assert plan.records is not None
    content = plan.records.to_bytes()
    plan.release()
    if settle:
        await wait_all_tasks_blocked()
    found = [
        record.value or b""
        for pos, header in iter_batches(content)
        for record in iter_records(content, pos, header)
        if record.offset >= offset
    ]
    return found, plan.next_offset


async def followed(log: PartitionLog, **options: Any) -> int:
    """Read twice in order; returns where the third read begins, which is read ahead."""
    _, offset = await next_read(log, 0, **options)
    _, offset = await next_read(log, offset, **options)
    return offset


async def being_read(node: Node) -> tuple[PartitionLog, int]:
    """A log, and from where on it is being read ahead, until the gate is opened."""
    log = await node.log()
    _, offset = await next_read(log, 0)
    _, offset = await next_read(log, offset, settle=False)
    node.make_reads_hang()
    await wait_all_tasks_blocked()
    return log, offset


async def test_what_follows_two_reads_in_order_is_there(node: Node) -> None:
    log = await node.log()
    offset = await followed(log)
    assert len(node.prefetch) == 1
    fault = node.disk.faults.add(Fault(FaultKind.ERROR, frozenset({"preadv"}), errno=errno.EIO, count=None))
    found, following = await next_read(log, offset, settle=False)
    assert found == [value(record) for record in range(offset, following)]
    assert found
    assert (node.prefetch.taken, fault.struck) == (1, 0)


async def test_a_whole_log_is_what_was_written(node: Node) -> None:
    logs = [await node.log(number) for number in range(3)]
    for log in logs:
        found: list[bytes] = []
        offset = 0
        while offset < log.flushed_end_offset:
            part, offset = await next_read(log, offset)
            found += part
        assert found == [value(record) for record in range(COUNT)]
    assert node.prefetch.taken > 10


async def test_one_that_reads_here_and_there_is_not_followed(node: Node) -> None:
    log = await node.log()
    for offset in (50, 10, 70, 30):
        await next_read(log, offset)
        assert len(node.prefetch) == 0


async def test_one_that_comes_seldom_is_not_followed(node: Node, autojump_clock: MockClock) -> None:
    log = await node.log()
    offset = 0
    for _ in range(4):
        _, offset = await next_read(log, offset)
        await trio.sleep(1.1)
        assert len(node.prefetch) == 0


async def test_one_that_comes_early_waits_for_it(node: Node) -> None:
    log, offset = await being_read(node)
    got: list[bytes] = []

    async def ask() -> None:
        found, _ = await next_read(log, offset, settle=False)
        got.extend(found)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask)
        await wait_all_tasks_blocked()
        assert got == []
        node.gate.is_open.set()
    assert got[0] == value(offset)
    assert node.prefetch.taken == 1


async def test_one_that_comes_before_reading_has_begun_reads_by_itself(node: Node) -> None:
    log = await node.log()
    _, offset = await next_read(log, 0)
    _, offset = await next_read(log, offset, settle=False)
    assert len(node.prefetch) == 1
    found, _ = await next_read(log, offset)
    assert found[0] == value(offset)
    assert node.prefetch.taken == 0


async def test_who_gives_up_waiting_leaves_it_to_others(node: Node) -> None:
    log, offset = await being_read(node)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, [plan_of(log, offset)])
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    node.gate.is_open.set()
    await wait_all_tasks_blocked()
    found, _ = await next_read(log, offset)
    assert (found[0], node.prefetch.taken) == (value(offset), 1)


async def test_what_nobody_wants_is_given_back(node: Node, autojump_clock: MockClock) -> None:
    first, second = await node.log(0), await node.log(1)
    await followed(first)
    assert (len(node.prefetch), node.buffers_in_use) == (1, 1)
    # Another log that is read all the time keeps nothing of this one.
    offset = await followed(second)
    for _ in range(3):
        await trio.sleep(0.4)
        _, offset = await next_read(second, offset)
    assert (len(node.prefetch), node.buffers_in_use) == (1, 1)
    await trio.sleep(1.1)
    assert (len(node.prefetch), node.buffers_in_use) == (0, 0)
    # And all begins anew.
    await followed(first)
    assert len(node.prefetch) == 1


async def test_all_of_them_are_bounded(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.prefetch._HELD_BYTES", 2 * MAX_BYTES)
    monkeypatch.setattr("ottla.storage.reading.prefetch._LEAST_BYTES", 1)
    logs = [await node.log(number) for number in range(4)]
    for log in logs:
        await followed(log)
    assert (len(node.prefetch), node.buffers_in_use) == (2, 2)


async def test_a_read_that_wants_very_much_is_not_followed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.storage.reading.prefetch._RANGE_BYTES", MAX_BYTES - 1)
    await followed(await node.log())
    assert len(node.prefetch) == 0


async def test_batches_larger_than_a_read_are_not_read_twice(node: Node) -> None:
    await followed(await node.log(value_bytes=MAX_BYTES))
    assert len(node.prefetch) == 0


async def test_the_end_of_a_log_is_not_followed(node: Node) -> None:
    log = await node.log()
    offset = 0
    while offset < log.flushed_end_offset:
        _, offset = await next_read(log, offset)
    assert len(node.prefetch) == 0


@pytest.mark.parametrize(
    ("options", "is_taken"),
    [
        ({}, True),
        ({"max_bytes": 2 * MAX_BYTES}, True),
        ({"max_bytes": MAX_BYTES // 2}, False),
        ({"end_offset": COUNT // 2}, False),
    ],
)
async def test_it_is_only_for_a_read_that_it_fits(node: Node, options: dict[str, int], is_taken: bool) -> None:
    log = await node.log()
    offset = await followed(log, max_bytes=MAX_BYTES)
    if "end_offset" in options:
        options = {"end_offset": offset + 1}
    found, following = await next_read(log, offset, settle=False, **options)
    assert found == [value(record) for record in range(offset, following)]
    assert following <= options.get("end_offset", COUNT)
    assert node.prefetch.taken == is_taken


async def test_it_ends_where_the_log_ended_but_is_not_used_when_there_is_more(node: Node) -> None:
    end_offset = await followed(await node.log()) + 2
    log = await node.log(1)
    offset = await followed(log, end_offset=end_offset)
    assert (offset, len(node.prefetch)) == (end_offset - 2, 2)
    found, _ = await next_read(log, offset, settle=False)
    assert (len(found) > 2, node.prefetch.taken) == (True, 0)


async def test_a_truncation_takes_it_back(node: Node) -> None:
    log = await node.log()
    offset = await followed(log)
    await log.truncate_to(offset + 2)
    node.harness.append(log, b"after the cut")
    await log.flush()
    found, _ = await next_read(log, offset)
    assert found == [value(offset), value(offset + 1), b"after the cut"]


async def test_a_truncation_takes_it_back_while_it_is_read(node: Node) -> None:
    log, offset = await being_read(node)
    log.truncated(offset + 2)
    assert len(node.prefetch) == 0
    node.gate.is_open.set()
    await wait_all_tasks_blocked()
    assert node.buffers_in_use == 0


async def test_a_rewritten_segment_takes_it_back(node: Node) -> None:
    log = await node.log(compact=True, delete=False, min_cleanable_dirty_ratio=0.01)
    offset = await followed(log)
    layout_version = log.store.files.layout_version
    await node.manager.clean()
    assert log.store.files.layout_version > layout_version
    found, _ = await next_read(log, offset)
    assert node.prefetch.taken == 0
    assert found[0] != value(offset)  # its key was written again


async def test_deleted_records_and_logs_are_not_served(node: Node) -> None:
    log = await node.log()
    offset = await followed(log)
    await log.advance_log_start_offset(COUNT)
    assert (await next_read(log, COUNT))[0] == []
    await node.manager.delete_logs(log.topic_id, [0])
    with pytest.raises(LogClosedError):
        plan_of(log, offset)


@pytest.mark.parametrize("kind", [FaultKind.ERROR, FaultKind.FLIP_BIT])
async def test_what_fails_or_is_damaged_is_read_again(node: Node, kind: FaultKind) -> None:
    log = await node.log()
    _, offset = await next_read(log, 0)
    _, offset = await next_read(log, offset, settle=False)
    fault = node.disk.faults.add(Fault(kind, frozenset({"preadv"}), ".data", errno=errno.EIO))
    await wait_all_tasks_blocked()
    assert fault.struck == 1
    found, _ = await next_read(log, offset)
    assert (found[0], node.prefetch.taken) == (value(offset), 0)
