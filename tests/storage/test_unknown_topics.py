"""Data of topics that the cluster does not know is named, and removed when that is asked, and no other."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from ottla.storage.config import LogConfig, StoreLayout
from ottla.storage.unknown_topics import delete_unknown, find_unknown

KNOWN, UNKNOWN = UUID(int=98), UUID(int=99)


@pytest.mark.parametrize("layout", list(StoreLayout))
async def test_only_what_is_unknown_is_removed(harness: Any, layout: StoreLayout) -> None:
    async with harness.manager(store_layout=layout) as manager:
        for topic_id in (KNOWN, UNKNOWN):
            for partition in range(2):
                harness.append(await manager.open_log(topic_id, "a.b", partition, LogConfig()), b"x")
    async with harness.manager(store_layout=StoreLayout.SHARED) as manager:
        assert await find_unknown(manager, {KNOWN, UNKNOWN}) == []
        found = await find_unknown(manager, {KNOWN})
        assert [(topic.topic_id, manager.context.disk.exists(topic.path)) for topic in found] == [(UNKNOWN, True)]
        assert found[0].partitions == (None if layout is StoreLayout.PER_TOPIC else (0, 1))
        await delete_unknown(manager, found)
    async with harness.manager(store_layout=layout) as manager:
        assert await find_unknown(manager, {KNOWN}) == []
        for partition in range(2):
            log = await manager.open_log(KNOWN, "a.b", partition, LogConfig())
            assert await harness.read_all(log) == [(0, b"x")]
        log = await manager.open_log(UNKNOWN, "a.b", 0, LogConfig())
        assert log.log_end_offset == 0


async def test_other_folders_are_left_alone(harness: Any, tmp_path: Any) -> None:
    async with harness.manager():
        pass
    for name in ("notes", "lost+found", "a.not-an-id", "b." + "!" * 22):
        (tmp_path / "node-0" / name).mkdir()
    async with harness.manager() as manager:
        assert await find_unknown(manager, set()) == []
