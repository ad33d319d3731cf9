"""What a topic takes to which nothing is written: a node may have tens of thousands."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence
from uuid import UUID

from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.log_manager import LogManager
from tests.storage.conftest import in_place

STORES = 256


async def test_a_store_without_records_takes_a_few_kilobytes() -> None:
    """Nothing that is seldom used takes room in each: an empty deque alone would take 760 bytes, a set 216."""
    manager = LogManager(MemoryDisk(), "/data", StorageConfig(), ManualClock(), run_blocking=in_place)
    config = LogConfig()

    async def open_logs(topic_ids: Sequence[UUID]) -> None:
        await manager.open_ahead((topic_id, "topic", 0) for topic_id in topic_ids)
        for topic_id in topic_ids:
            await manager.open_log(topic_id, "topic", 0, config)

    async with manager.run():
        await open_logs([UUID(int=STORES)])  # what is made once
        topic_ids = [UUID(int=number) for number in range(STORES)]
        tracemalloc.start()
        try:
            await open_logs(topic_ids)
            taken_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert taken_bytes / STORES < 4_600
