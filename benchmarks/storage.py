"""The storage engine alone: appends beside a bare loop of CRC and pwrite, reads, restart.

    python -m benchmarks.storage [--mib 512] [--batch-bytes 16384] [--partitions 1,100,1000] [--folder DIR]

Every figure is the best of some runs, which alternate with those that they are compared with. "bare" is what cannot be
avoided: computing each batch's CRC-32C, then writing the same bytes with `pwrite` in pieces of 128 KiB. A ratio of 1.3
means that the engine takes 30 % more time than that. The CPU times contain, on both sides, the copy that stands for the
socket; a busy machine disturbs them least. The last figures are of a reader that follows from far behind, with and
without reading ahead: it reads one MiB after another that the page cache does not hold, and spends 3 ms on each.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from uuid import UUID

import trio

from ottla.kproto.records import Record, build_batch, crc_matches, parse_batch_header
from ottla.storage.clock import SystemClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from ottla.storage.reading.plan import ReadPlan, read
from ottla.storage.reading.read_ahead import ReadAhead

TOPIC_ID = UUID("00000000-0000-4000-8000-00000000beef")
RUNS = 5
MIB = 1 << 20
_RECORD_BYTES = 1000
_REQUEST_BYTES = 256 * 1024
_RING_BYTES = 48 * MIB


def one_batch(size_bytes: int) -> bytes:
    """A batch of about this size, of records of 1,000 bytes."""
    now_ms = time.time_ns() // 1_000_000
    count = max(1, size_bytes // _RECORD_BYTES)
    value = os.urandom(min(_RECORD_BYTES, size_bytes) - 20)
    return build_batch([Record(timestamp_ms=now_ms, value=value) for _ in range(count)])


def bare(folder: str, batch: bytes, total_bytes: int) -> tuple[float, float]:
    """Seconds, by clock and of the CPU, of the loop that cannot be avoided.

    Its memory is no more in the CPU's cache than a broker's is.
    """
    per_request = max(1, _REQUEST_BYTES // len(batch))
    size = per_request * len(batch)
    ring = [memoryview(bytearray(size)) for _ in range(max(2, _RING_BYTES // size))]
    handle = os.open(os.path.join(folder, "bare"), os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    seconds = 0.0
    cpu = time.process_time()
    position = turn = 0
    while position < total_bytes:
        view = ring[turn % len(ring)]
        turn += 1
        for place in range(per_request):
            view[place * len(batch) : (place + 1) * len(batch)] = batch
        begin = time.perf_counter()
        for pos in range(0, size, len(batch)):
            header = parse_batch_header(view, pos)
            assert crc_matches(view, pos, header)
        for pos in range(0, size, 131_072):
            os.pwrite(handle, view[pos : pos + 131_072], position + pos)
        seconds += time.perf_counter() - begin
        position += size
    cpu = time.process_time() - cpu
    os.close(handle)
    os.unlink(os.path.join(folder, "bare"))
    return seconds, cpu


async def append(folder: str, batch: bytes, total_bytes: int, partitions: int) -> tuple[float, float]:
    """Seconds, by clock and of the CPU, to append the same bytes through the engine, up to the last flush."""
    manager = LogManager(RealDisk(), folder, StorageConfig(), SystemClock())
    per_request = max(1, _REQUEST_BYTES // len(batch))
    async with manager.run():
        logs = [await manager.open_log(TOPIC_ID, "bench", number, LogConfig()) for number in range(partitions)]
        begin = time.perf_counter()
        cpu = time.process_time()
        done = turn = 0
        while done < total_bytes:
            fragment = manager.context.pool.acquire(len(batch) * per_request)
            memory = fragment.memory
            for place in range(per_request):
                # A socket fills this memory in a broker; here the copy is not counted.
                start = time.perf_counter()
                view = memory[place * len(batch) : (place + 1) * len(batch)]
                view[:] = batch
                begin += time.perf_counter() - start
                log = logs[turn % partitions]
                turn += 1
                if not log.has_room:
                    await log.wait_for_room()
                log.append_as_leader(view, fragment, leader_epoch=0, now_ms=time.time_ns() // 1_000_000)
                done += len(batch)
            fragment.release()
            await trio.lowlevel.checkpoint()
        await logs[0].store.writer.flush(sync=False)
        return time.perf_counter() - begin, time.process_time() - cpu


async def restart_and_read(folder: str, partitions: int) -> tuple[float, float, int]:
    """Seconds to open all logs, seconds to read everything (cold for the engine), and the bytes read."""
    begin = time.perf_counter()
    manager = LogManager(RealDisk(), folder, StorageConfig(), SystemClock())
    async with manager.run():
        logs = [await manager.open_log(TOPIC_ID, "bench", number, LogConfig()) for number in range(partitions)]
        opened = time.perf_counter() - begin
        begin = time.perf_counter()
        total = sum([await _drain(log, log.flushed_end_offset) for log in logs])
        return opened, time.perf_counter() - begin, total


async def _drain(log: PartitionLog, end_offset: int) -> int:
    total, offset = 0, log.log_start_offset
    while offset < end_offset:
        plan = log.plan_read(offset, max_bytes=MIB, end_offset=end_offset, min_one_batch=True)
        await read([plan])
        assert plan.records is not None, plan.error
        total += plan.records.size_bytes
        plan.release()
        offset = plan.next_offset
    return total


class _NoReadAhead(ReadAhead):
    """Never reads ahead."""

    def on_read(self, plan: ReadPlan, *, was_cold: bool) -> bool:
        return False


async def fill_cold(folder: str, mib: int) -> None:
    """One partition's data in sealed segments."""
    shutil.rmtree(folder, ignore_errors=True)
    manager = LogManager(RealDisk(), folder, StorageConfig(segment_bytes=64 * MIB), SystemClock())
    batch = one_batch(16_384)
    async with manager.run():
        log = await manager.open_log(TOPIC_ID, "bench", 0, LogConfig())
        for _ in range(mib * MIB // len(batch)):
            if not log.has_room:
                await log.wait_for_room()
            log.append_as_leader(memoryview(bytearray(batch)), None, leader_epoch=0, now_ms=time.time_ns() // 1_000_000)
        await log.flush()
        await manager.maintenance.wait_idle()


async def catch_up(folder: str, *, read_ahead: bool) -> float:
    """The mean seconds that a reader waits for 1 MiB of cold data."""
    for parent, _, names in os.walk(folder):
        for name in names:
            handle = os.open(os.path.join(parent, name), os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
    manager = LogManager(RealDisk(), folder, StorageConfig(), SystemClock())
    if not read_ahead:
        manager.reader.read_ahead = _NoReadAhead(manager.context)
    waited: list[float] = []
    async with manager.run():
        log = await manager.open_log(TOPIC_ID, "bench", 0, LogConfig())
        offset = 0
        while offset < log.flushed_end_offset:
            begin = time.perf_counter()
            plan = log.plan_read(offset, max_bytes=MIB, end_offset=log.flushed_end_offset, min_one_batch=True)
            await read([plan])
            waited.append(time.perf_counter() - begin)
            assert plan.records is not None, plan.error
            plan.release()
            offset = plan.next_offset
            await trio.sleep(0.003)
    return sum(waited) / len(waited)


class CountingDisk(RealDisk):
    """A disk that counts what is read of data files."""

    __slots__ = ("read_bytes", "reads")

    def __init__(self) -> None:
        super().__init__()
        self.read_bytes = 0
        self.reads = 0

    def preadv(self, handle: int, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        count = super().preadv(handle, buffers, position, nowait=nowait)
        self.read_bytes += count
        self.reads += 1
        return count


async def amplification(folder: str, *, is_sorted: bool) -> tuple[float, float]:
    """(bytes read for each byte served, bytes of a mean read) of one partition of 200, before or after the sort."""
    shutil.rmtree(folder, ignore_errors=True)
    disk = CountingDisk()
    config = StorageConfig(tail_cache_bytes=0, segment_bytes=32 * MIB, cleaner_io_max_bytes_per_second=1 << 40)
    manager = LogManager(disk, folder, config, SystemClock())
    batch = one_batch(1000)
    async with manager.run():
        logs = [await manager.open_log(TOPIC_ID, "bench", number, LogConfig()) for number in range(200)]
        for _ in range(200):
            for log in logs:
                log.append_as_leader(
                    memoryview(bytearray(batch)), None, leader_epoch=0, now_ms=time.time_ns() // 1_000_000
                )
            await logs[0].store.writer.flush(sync=False)
        await manager.maintenance.wait_idle()
        if is_sorted:
            await manager.clean()
        log = logs[77]
        tables = log.store.files.segments[-1].tables
        end_offset = tables[log.key].base_offset if tables else log.flushed_end_offset
        await _drain(log, end_offset)
        disk.read_bytes = disk.reads = 0
        served = await _drain(log, end_offset)
    return disk.read_bytes / served, disk.read_bytes / disk.reads


def _best(times: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return min(clock for clock, _ in times), min(cpu for _, cpu in times)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--batch-bytes", type=int, default=16_384)
    parser.add_argument("--partitions", default="1,100,1000")
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    total_bytes = arguments.mib * MIB
    batch = one_batch(arguments.batch_bytes)
    root = tempfile.mkdtemp(dir=arguments.folder)
    try:
        print(f"{arguments.mib} MiB in batches of {len(batch)} bytes")
        folder = os.path.join(root, "data")
        for partitions in map(int, arguments.partitions.split(",")):
            floors, times = [], []
            for _ in range(RUNS):
                floors.append(bare(root, batch, total_bytes))
                shutil.rmtree(folder, ignore_errors=True)
                times.append(trio.run(append, folder, batch, total_bytes, partitions))
            opened, drained, read_bytes = trio.run(restart_and_read, folder, partitions)
            (floor, cpu_floor), (seconds, cpu) = _best(floors), _best(times)
            per_batch = len(batch) / total_bytes * 1e6
            print(
                f"{partitions:>6} partitions: append {arguments.mib / seconds:,.0f} MiB/s, "
                f"bare {arguments.mib / floor:,.0f}; "
                f"CPU {cpu * per_batch:.1f} µs a batch, bare {cpu_floor * per_batch:.1f}: {cpu / cpu_floor:.2f} x; "
                f"open all {opened * 1000:,.0f} ms; read {read_bytes / MIB / drained:,.0f} MiB/s"
            )
        for is_sorted in (False, True):
            ratio, size = trio.run(partial(amplification, os.path.join(root, "data"), is_sorted=is_sorted))
            print(
                f"one of 200 partitions, {'sorted' if is_sorted else 'as it was flushed'}: "
                f"{ratio:.2f} bytes read for each served, {size / 1024:,.0f} KiB a read"
            )
        trio.run(fill_cold, folder, arguments.mib)
        waits: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(RUNS):
            for read_ahead, measured in waits.items():
                measured.append(trio.run(partial(catch_up, folder, read_ahead=read_ahead)))
        for read_ahead, measured in waits.items():
            name = "read ahead" if read_ahead else "not read ahead"
            print(f"following from far behind, {name}: {min(measured) * 1000:.2f} ms for 1 MiB")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"peak resident memory: {peak // 1024} MiB")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
