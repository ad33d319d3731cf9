"""What the deletion of a topic costs does not depend on how many others there are."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any
from uuid import UUID

from ottla.storage.config import LogConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk


async def calls_of_a_deletion(harness: Any, topics: int) -> int:
    """How many functions are called while one of so many topics is deleted."""
    calls = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    async with harness.manager(SimulatedDisk(1)) as manager:
        for number in range(topics):
            await manager.open_log(UUID(int=number + 1), f"topic-{number}", 0, LogConfig())
        before = sys.getprofile()
        sys.setprofile(count)
        try:
            await manager.delete_logs(UUID(int=1), [0])
        finally:
            sys.setprofile(before)
        assert len(list(manager.stores())) == topics - 1
    return calls


async def test_deleting_one_of_many_topics_looks_at_no_other(harness: Any) -> None:
    topics = 200
    few = await calls_of_a_deletion(harness, 2)
    assert await calls_of_a_deletion(harness, topics) < few + topics // 2
