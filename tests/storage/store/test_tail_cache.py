"""The tail cache's bound is one on memory: what a small batch keeps alive counts, not its own bytes."""

from __future__ import annotations

import tracemalloc
from typing import Any

from ottla.storage.memory.buffer_pool import BufferPool
from ottla.storage.store.memstore import Memstore


async def test_a_frame_counts_whole_and_once(harness: Any) -> None:
    async with harness.manager() as manager:
        logs = [await harness.open(manager, partition) for partition in range(3)]
        store = logs[0].store
        fragment = manager.context.pool.acquire(500_000)
        batch = harness.batch([b"x" * 100])
        for number, log in enumerate(logs):
            view = fragment.memory[number * 1000 : number * 1000 + len(batch)]
            view[:] = batch
            log.append_as_leader(view, fragment, leader_epoch=0, now_ms=harness.clock.time_ms())
        footprint = store.writer.active.footprint_bytes()
        assert fragment.capacity_bytes <= footprint < fragment.capacity_bytes + 10_000
        fragment.release()
        await store.writer.flush(sync=False)
        assert manager.context.tail.size_bytes == footprint


async def test_the_footprint_of_small_batches_is_what_they_take(harness: Any) -> None:
    """Measured, with frames as a socket fills them: many small batches of many partitions in each."""
    async with harness.manager() as manager:
        logs = [await harness.open(manager, partition) for partition in range(50)]
        batch = harness.batch([b"x" * 50])
        pool = BufferPool()
        tracemalloc.start()
        try:
            before, _ = tracemalloc.get_traced_memory()
            for turn in range(40):
                fragment = pool.acquire(len(batch) * 100)
                for number in range(100):
                    view = fragment.memory[number * len(batch) : (number + 1) * len(batch)]
                    view[:] = batch
                    log = logs[(turn + number) % 50]
                    log.append_as_leader(view, fragment, leader_epoch=0, now_ms=harness.clock.time_ms())
                fragment.release()
            after, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        memstore: Memstore = logs[0].store.writer.active
        assert memstore.batch_count == 4000
        copies = memstore.size_bytes  # made only when somebody reads
        taken = after - before
        assert 0.7 * taken < memstore.footprint_bytes() - copies < 2 * taken
        await logs[0].store.writer.flush(sync=False)
