"""What was summed is sent from its file: never other bytes than a read finds, and damage is found as by a read."""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from trio.testing import wait_all_tasks_blocked

from ottla.storage.disk import RealDisk
from ottla.storage.disk.disk import Handle
from ottla.storage.disk.page_cache import PageCache
from ottla.storage.errors import CorruptLogError
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.reading.file_range import FileRange
from ottla.storage.reading.plan import ReadPlan, begin_read, read
from ottla.storage.store.summed_runs import LEAST_SUMMED_BYTES, SummedRuns

pytestmark = pytest.mark.skipif(not PageCache().is_known, reason="the kernel does not tell what its page cache holds")

RUN_BYTES = 100_000
RUNS = 12
MAX_BYTES = 350_000


class CountingDisk(RealDisk):
    """Counts the bytes that are read of segments; `lost` says that the page cache holds none of a file."""

    def __init__(self) -> None:
        super().__init__()
        self.prepare_sending()
        self.read_bytes = 0
        self.is_lost = False

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        if nowait and self.is_lost:
            return 0
        count = super().preadv(handle, buffers, position, nowait=nowait)
        self.read_bytes += count
        return count

    def is_cached(self, handle: Handle, position: int, length: int) -> bool:
        return not self.is_lost and super().is_cached(handle, position, length)


class Stage:
    """One log of `RUNS` runs of one batch each, in the page cache and not in memory."""

    def __init__(self, harness: Any, disk: CountingDisk) -> None:
        self.harness = harness
        self.disk = disk
        self.log: PartitionLog

    @asynccontextmanager
    async def running(self, *, compact: bool = False, **settings: Any) -> AsyncIterator[PartitionLog]:
        async with self.harness.manager(self.disk, tail_cache_bytes=0, run_bytes=RUN_BYTES, **settings) as manager:
            self.log = await self.harness.open(manager, compact=compact)
            yield self.log
            assert manager.context.fd_cache.in_use == 0, "a file was not let go of"

    async def fill(self, runs: int = RUNS) -> None:
        for number in range(runs):
            self.harness.append(self.log, b"%d:" % number + os.urandom(RUN_BYTES), key=b"%d" % number)
            await self.log.flush()
        self.log.advance_high_watermark(self.log.flushed_end_offset)

    @property
    def data_path(self) -> Path:
        (segment,) = self.log.store.files.segments
        return Path(segment.data_path)

    async def plan(self, offset: int, *, names_files: bool = True, max_bytes: int = MAX_BYTES) -> ReadPlan:
        plan = self.log.plan_read(
            offset,
            max_bytes=max_bytes,
            end_offset=self.log.flushed_end_offset,
            min_one_batch=True,
            names_files=names_files,
        )
        await read([plan])
        return plan

    async def plain(self, offset: int) -> bytes:
        plan = await self.plan(offset, names_files=False)
        assert plan.error is None, plan.error
        assert plan.records is not None
        content = plan.records.to_bytes()
        plan.release()
        return content


@pytest.fixture
def stage(harness: Any) -> Stage:
    return Stage(harness, CountingDisk())


def ranges(plan: ReadPlan) -> list[FileRange]:
    assert plan.records is not None
    return [part for part in plan.records.parts() if isinstance(part, FileRange)]


def sent(plan: ReadPlan) -> bytes:
    """What a socket receives of a plan's parts."""
    assert plan.records is not None
    ours, theirs = socket.socketpair()
    received = bytearray()
    with ours, theirs:
        ours.setblocking(False)
        for part in plan.records.parts():
            offset = 0
            while offset < len(part):
                try:
                    if isinstance(part, FileRange):
                        offset += part.send(ours.fileno(), offset, len(part) - offset)
                    else:
                        assert isinstance(part, memoryview)
                        offset += ours.send(part[offset:])
                except BlockingIOError:
                    received += theirs.recv(1 << 20)
        ours.shutdown(socket.SHUT_WR)
        while data := theirs.recv(1 << 20):
            received += data
    return bytes(received)


async def sent_from(stage: Stage, offset: int) -> bytes:
    plan = await stage.plan(offset)
    assert plan.error is None, plan.error
    content = sent(plan)
    plan.release()
    return content


async def test_what_this_process_has_written_is_sent_unread(stage: Stage) -> None:
    async with stage.running() as log:
        await stage.fill()
        stage.disk.read_bytes = 0
        plan = await stage.plan(0)
        assert len(ranges(plan)) == 3
        assert stage.disk.read_bytes == 0
        assert plan.next_offset == 3
        content = sent(plan)
        plan.release()
        assert content == await stage.plain(0)
        assert log.log_end_offset == RUNS


async def test_after_a_start_the_first_read_sums_and_later_ones_do_not(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
    async with stage.running():
        await stage.plain(0)  # where the runs lie is read, too
        for offset in range(RUNS - 2):
            stage.disk.read_bytes = 0
            content = await sent_from(stage, offset)
            assert stage.disk.read_bytes == 0 or offset
            assert content == await stage.plain(offset)
        stage.disk.read_bytes = 0
        plan = await stage.plan(4)
        assert [len(part) for part in ranges(plan)] == [len(await stage.plain(4)) // 3] * 3
        plan.release()


@pytest.mark.parametrize("names_files", [False, True])
async def test_bit_rot_before_a_start_is_found_by_the_first_read(stage: Stage, *, names_files: bool) -> None:
    async with stage.running():
        await stage.fill()
        path = stage.data_path
    flip(path, inside(4))
    async with stage.running():
        for _ in range(2):
            plan = await stage.plan(4, names_files=names_files)
            assert isinstance(plan.error, CorruptLogError)
            assert plan.error.resumes_at == 5
            before = await stage.plan(3, names_files=names_files)
            assert before.error is None
            assert before.next_offset == 4
            before.release()


async def test_bit_rot_of_what_the_page_cache_had_lost_is_found(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
        assert len(await sent_from(stage, 4)) > 3 * RUN_BYTES
        flip(stage.data_path, inside(4))
        stage.disk.is_lost = True
        plan = await stage.plan(4)
        assert isinstance(plan.error, CorruptLogError)
        stage.disk.is_lost = False
        # What the kernel has read with it is not taken to be sound, either.
        flip(stage.data_path, inside(6))
        plan = await stage.plan(6)
        assert isinstance(plan.error, CorruptLogError)


async def test_a_read_ends_with_a_run(stage: Stage) -> None:
    async with stage.running() as log:
        for _ in range(4):
            for number in range(5):
                stage.harness.append(log, b"%d" % number + os.urandom(RUN_BYTES // 5 - 200))
            await log.flush()
        plan = await stage.plan(2, max_bytes=2 * RUN_BYTES + 30_000)
        assert plan.next_offset == 10
        assert len(ranges(plan)) == 1
        content = sent(plan)
        plan.release()
        plain = await stage.plan(2, names_files=False, max_bytes=2 * RUN_BYTES + 30_000)
        assert plain.records is not None
        assert plain.next_offset > 10
        assert plain.records.to_bytes().startswith(content)
        plain.release()


async def test_what_is_not_visible_is_not_sent(stage: Stage) -> None:
    async with stage.running() as log:
        for _ in range(2):
            for number in range(5):
                stage.harness.append(log, b"%d" % number + os.urandom(RUN_BYTES // 5 - 200))
            await log.flush()
        plan = log.plan_read(0, max_bytes=MAX_BYTES, end_offset=7, min_one_batch=True, names_files=True)
        await read([plan])
        assert len(ranges(plan)) == 1
        assert plan.next_offset == 7
        assert sent(plan) == (await stage.plain(0))[: plan.size_bytes]
        plan.release()


async def test_a_truncated_log_keeps_what_is_on_its_way(stage: Stage) -> None:
    async with stage.running() as log:
        await stage.fill()
        expected = await stage.plain(3)
        plan = await stage.plan(3)
        await log.truncate_to(4)
        for number in range(3):
            stage.harness.append(log, b"new %d" % number + os.urandom(RUN_BYTES), leader_epoch=1)
            await log.flush()
        assert sent(plan) == expected
        plan.release()
        assert await sent_from(stage, 3) == await stage.plain(3) != expected


async def test_a_deleted_log_keeps_what_is_on_its_way(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
        expected, path = await stage.plain(3), stage.data_path
        plan = await stage.plan(3)
        await stage.harness.running.delete_logs(stage.harness.topic_id, [0])
        assert not path.exists()
        assert sent(plan) == expected
        plan.release()


async def test_a_rewritten_segment_keeps_what_is_on_its_way(stage: Stage) -> None:
    async with stage.running(segment_bytes=5 * RUN_BYTES, compact=True) as log:
        for _ in range(3):
            await stage.fill(4)
        await stage.harness.settle()
        first = Path(log.store.files.segments[0].data_path)
        expected = await stage.plain(1)
        plan = await stage.plan(1)
        assert len(ranges(plan)) == 3
        await stage.harness.running.compact()
        assert not os.path.exists(first)  # noqa: ASYNC240
        assert sent(plan) == expected
        plan.release()


async def test_a_read_may_name_two_segments(stage: Stage) -> None:
    async with stage.running(segment_bytes=5 * RUN_BYTES) as log:
        await stage.fill()
        await stage.harness.settle()
        assert len(log.store.files.segments) > 2
        await stage.plain(3)
        for _ in range(2):
            assert await sent_from(stage, 3) == await stage.plain(3)


async def test_a_range_outlives_its_store_and_is_then_closed(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
        expected = await stage.plain(3)
        plan = await stage.plan(3)
        cache = stage.harness.running.context.fd_cache
        cache.shed()
        cache.drop(str(stage.data_path))
        assert len(cache) == 1
        assert sent(plan) == expected
        plan.release()
        assert len(cache) == 0


async def test_a_file_that_has_become_shorter_is_an_error_and_then_damage(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
        plan = await stage.plan(9)
        os.truncate(stage.data_path, inside(10))
        with pytest.raises(CorruptLogError, match="the file ends before"):
            sent(plan)
        plan.release()
        again = await stage.plan(10)
        assert isinstance(again.error, CorruptLogError)


async def test_what_the_page_cache_has_lost_is_read_again_and_summed(stage: Stage) -> None:
    async with stage.running():
        await stage.fill()
        plan = await stage.plan(3)
        (part, *_) = ranges(plan)
        stage.disk.is_lost = True
        assert not part.is_cached(0, 1)
        assert bytes(await part.load()) == (await stage.plain(3))[: len(part)]
        flip(stage.data_path, inside(3))
        with pytest.raises(CorruptLogError, match="cannot be sent"):
            await part.load()
        plan.release()


async def test_who_looks_into_the_records_gets_them_in_memory(stage: Stage) -> None:
    """What was read ahead for a plan that names files is not for one that does not."""
    async with stage.running() as log:
        await stage.fill()
        stage.disk.is_lost = True
        for offset in (0, 3):
            plan = await stage.plan(offset)
            plan.release()
        stage.disk.is_lost = False
        await wait_all_tasks_blocked()
        assert len(stage.harness.running.reader.prefetch) == 1
        assert len(await stage.plain(6)) > 3 * RUN_BYTES
        assert log.log_end_offset == RUNS


async def test_what_is_named_is_not_read_ahead(stage: Stage) -> None:
    """To name it takes no longer than to take over what was named before."""
    async with stage.running():
        await stage.fill()
        await sent_from(stage, 0)  # sums it
        for offset in (0, 3, 6):
            await sent_from(stage, offset)
            await wait_all_tasks_blocked()
        assert len(stage.harness.running.reader.prefetch) == 0


async def test_it_is_named_at_once(stage: Stage) -> None:
    """A read of what was summed waits for nothing, so that it needs no task."""
    async with stage.running() as log:
        await stage.fill()
        for offset in range(0, RUNS, 3):
            await sent_from(stage, offset)
        await wait_all_tasks_blocked()
        for offset in range(0, RUNS, 3):
            plan = log.plan_read(offset, max_bytes=MAX_BYTES, end_offset=RUNS, min_one_batch=True, names_files=True)
            assert list(begin_read([plan])) == []
            assert ranges(plan)
            plan.release()


async def test_where_the_page_cache_has_a_log_one_looks_further_ahead(stage: Stage) -> None:
    async with stage.running() as log:
        await stage.fill(10 * RUNS)
        stage.disk.is_lost = True  # so that the log is followed
        await sent_from(stage, 0)
        ahead = stage.harness.running.reader.read_ahead
        known: dict[bool, int] = {}
        for is_lost in (True, False):
            stage.disk.is_lost = is_lost
            for _ in range(8):
                offset = log.places.last_read[0]
                await sent_from(stage, offset)
                await wait_all_tasks_blocked(0.005)
            (followed,) = ahead._followed.values()
            known[is_lost] = max(known.get(is_lost, 0), followed.known_bytes())
        assert known[True] <= 4 * MAX_BYTES < known[False] <= 16 * MAX_BYTES
        stage.harness.running.reader.forget(log)


async def test_small_runs_are_read(stage: Stage) -> None:
    async with stage.running() as log:
        for number in range(20):
            stage.harness.append(log, b"%d" % number + os.urandom(LEAST_SUMMED_BYTES // 4))
            await log.flush()
        plan = await stage.plan(0)
        assert not ranges(plan)
        plan.release()


def test_summed_runs_are_forgotten_around_what_is_read_from_the_disk() -> None:
    summed = SummedRuns()
    positions = [number * 10_000_000 + 4096 for number in range(10)]
    for position in positions:
        summed.add(position)
    assert all(position in summed for position in positions)
    assert positions[3] + LEAST_SUMMED_BYTES not in summed

    class Lost(RealDisk):
        def is_cached(self, handle: Handle, position: int, length: int) -> bool:
            return False

    summed.check(Lost(), 0, positions[5], 1000)
    assert [position in summed for position in positions] == [True] * 4 + [False] * 3 + [True] * 3


def inside(run: int) -> int:
    """A byte of the records of a run, before which there are the heads of blocks."""
    return run * (RUN_BYTES + 300) + 30_000


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        (byte,) = file.read(1)
        file.seek(position)
        file.write(bytes([byte ^ 4]))
