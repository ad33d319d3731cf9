"""Topics are made, written, read, compacted and deleted, again and again: in the end nothing of them is left in memory.

    make soak        or        python -m ottla.simulation.storage.soak [--topics 50000]

Objects are counted, by type, not bytes: what grows by one with each topic is a leak.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from uuid import UUID

import trio

from ottla.simulation.harness import scheduling
from ottla.simulation.storage.batches import build
from ottla.simulation.storage.engine import LogConfig, LogManager, ManualClock, MemoryDisk, StorageConfig, read
from ottla.simulation.storage.model import Batch

__all__ = ["left_over", "main"]

_AT_A_TIME = 5
_NEVER_S = 1e9


def left_over(topics: int) -> Counter[str]:
    """How many more objects of each of the engine's types there are after this many topics than after the first few."""
    found: Counter[str] = Counter()

    async def soak() -> None:
        clock = ManualClock()
        disk = MemoryDisk(clock=clock)
        config = StorageConfig(
            segment_bytes=500, checkpoint_bytes=500, tail_cache_bytes=2000, fd_cache_capacity=2, cleaner_backoff_ms=1000
        )
        manager = LogManager(disk, "/data", config, clock, run_blocking=_in_place)
        async with manager.run():
            await _make_and_delete(manager, clock, 0, _AT_A_TIME)
            before = await _count()
            for first in range(_AT_A_TIME, topics, _AT_A_TIME):
                await _make_and_delete(manager, clock, first, min(_AT_A_TIME, topics - first))
            found.update(await _count())
            found.subtract(before)

    scheduling.run(soak, 0, limit_s=_NEVER_S)
    return +found


async def _make_and_delete(manager: LogManager, clock: ManualClock, first: int, count: int) -> None:
    config = LogConfig(compact=True, delete=False, flush_ms=500, min_cleanable_dirty_ratio=0.01)
    logs = [
        await manager.open_log(UUID(int=number + 1), f"t{number}", 0, config) for number in range(first, first + count)
    ]
    for log in logs:
        for offset in range(8):
            batch = Batch(offset, ((b"k", b"%d" % offset * 100),), 0, timestamp_ms=clock.time_ms())
            content = memoryview(bytearray(build(batch, is_numbered=False)))
            log.append_as_leader(content, None, leader_epoch=0, now_ms=clock.time_ms())
            await trio.lowlevel.checkpoint()
        await log.flush()
        log.advance_high_watermark(log.log_end_offset)
    await manager.clean()
    for log in logs:
        for _ in range(3):
            plan = log.plan_read(0, max_bytes=100, end_offset=log.log_end_offset, min_one_batch=True)
            await read([plan])
            plan.release()
    for log in logs:
        await manager.delete_logs(log.topic_id, [log.partition])


async def _count() -> Counter[str]:
    """Count the engine's objects once timers have rung and the cleaner has had its turn."""
    await trio.sleep(30)
    gc.collect()
    return Counter(
        f"{type(each).__module__}.{type(each).__qualname__}"
        for each in gc.get_objects()
        # Of some classes of other packages the module is not a string.
        if str(type(each).__module__).startswith("ottla.storage")
    )


async def _in_place(function: object) -> object:
    await trio.lowlevel.checkpoint()
    assert callable(function)
    return function()


def main() -> int:
    """The exit code is 0 if nothing is left."""
    parser = argparse.ArgumentParser(prog="python -m ottla.simulation.storage.soak", description=__doc__)
    parser.add_argument("--topics", type=int, default=50_000)
    arguments = parser.parse_args()
    started = time.perf_counter()
    found = left_over(arguments.topics)
    for name, count in found.most_common():
        print(f"{count:8} {name}")
    print(f"{arguments.topics} topics in {time.perf_counter() - started:.0f} s: {found.total()} objects are left over")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
