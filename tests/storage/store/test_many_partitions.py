"""Ten thousand partitions in one store, or ten thousand topics of one partition in a shared one."""

from __future__ import annotations

import os
from typing import Any
from uuid import UUID

from ottla.storage.config import LogConfig, StoreLayout
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.reading.plan import read

COUNT = 10_000


def open_files() -> int:
    return len(os.listdir("/dev/fd"))


async def test_ten_thousand_partitions_of_one_topic(harness: Any) -> None:
    before = open_files()
    async with harness.manager(tail_cache_bytes=0) as manager:
        logs = [await harness.open(manager, partition) for partition in range(COUNT)]
        batch = harness.batch([b"x" * 50])
        for log in logs:
            if not log.has_room:
                await log.wait_for_room()
            log.append_as_leader(memoryview(bytearray(batch)), None, leader_epoch=0, now_ms=harness.clock.time_ms())
        await logs[0].flush()
        assert open_files() - before < 50
        assert len({log.store for log in logs}) == 1
        plans = [
            log.plan_read(0, max_bytes=1000, end_offset=1, min_one_batch=True)
            for log in (logs[0], logs[5000], logs[-1])
        ]
        await read(plans)
        assert [plan.records.size_bytes for plan in plans if plan.records] == [len(batch)] * 3
        for plan in plans:
            plan.release()
    async with harness.manager() as manager:
        assert [(await harness.open(manager, partition)).log_end_offset for partition in range(COUNT)] == [1] * COUNT


async def test_many_topics_share_one_store(harness: Any) -> None:
    count = 1000

    async def open_all(manager: Any) -> list[PartitionLog]:
        return [
            await manager.open_log(UUID(int=1 + number), f"topic-{number}", 0, LogConfig()) for number in range(count)
        ]

    before = open_files()
    async with harness.manager(store_layout=StoreLayout.SHARED) as manager:
        logs = await open_all(manager)
        for number, log in enumerate(logs):
            harness.append(log, b"of topic %d" % number)
        await manager.flush_all()
        assert open_files() - before < 50
        folder = logs[0].store.files.directory
        assert len([name for name in os.listdir(folder) if name.endswith(".data")]) == 1
        await manager.delete_logs(UUID(int=1 + 7), [0])
    async with harness.manager(store_layout=StoreLayout.SHARED) as manager:
        logs = await open_all(manager)
        for number in (0, 500, 999):
            assert await harness.read_all(logs[number]) == [(0, b"of topic %d" % number)]
        assert logs[7].log_end_offset == 0


async def test_idle_stores_hold_no_files(harness: Any) -> None:
    before = open_files()
    async with harness.manager(fd_cache_capacity=4) as manager:
        for number in range(50):
            log = await manager.open_log(UUID(int=1 + number), f"topic-{number}", 0, LogConfig())
            harness.append(log, b"x")
            await log.flush()
        assert open_files() - before < 12
