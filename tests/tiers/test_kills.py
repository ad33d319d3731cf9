"""The node is killed at each request of a copy and of a sweep, before or after it is carried out.

Everything that lasts is done by requests to the object store, so these are all the moments that differ.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from ottla.tiers.errors import OverlappingUploadError
from ottla.tiers.manifest import Manifest
from ottla.tiers.stores.memory_store import MemoryObjectStore
from ottla.tiers.sweep import SWEEP_AFTER_MS
from tests.tiers.faults import FaultyObjectStore, NodeKilledError
from tests.tiers.logs import log_of
from tests.tiers.test_copying import StoreTime
from tests.tiers.test_sweep import objects, sweep
from tests.tiers.tier import NAMES, Tier, read_all, reading

PARTITIONS = (0, 1, 2)


async def killed(run: Callable[[], Awaitable[object]]) -> bool:
    """Whether the node was killed meanwhile."""
    was_killed = False
    try:
        await run()
    except* NodeKilledError:
        was_killed = True
    return was_killed


async def require_whole(store: FaultyObjectStore) -> None:
    """Whatever a manifest names is there, and is what was in the log."""
    tier = Tier(store)
    async with reading(store) as reader:
        for partition in PARTITIONS:
            manifest = await tier.file(partition).refresh()
            wanted = log_of(partition, batches=20).content if manifest.end_offset else b""
            assert await read_all(reader, manifest, manifest.log_start_offset) == wanted


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_kill_within_a_copy_loses_nothing(autojump_clock: trio.testing.MockClock, is_done: bool) -> None:
    kills = 0
    while True:
        time = StoreTime()
        store = FaultyObjectStore(MemoryObjectStore(lambda time=time: time.now_ms))  # type: ignore[misc]
        tier = Tier(store)
        sources = [log_of(partition) for partition in PARTITIONS]
        store.kill_at(kills + 1, is_done=is_done)
        was_killed = await killed(lambda tier=tier, sources=sources: tier.copy(sources))  # type: ignore[misc]
        store.before = store.after = lambda number, method, name: None
        await require_whole(store)
        # The next process goes on with the note that it finds.
        again = Tier(store, first_number=1000)
        again.note = tier.note
        for partition, result in (await again.copy(sources)).items():
            assert isinstance(result, Manifest | OverlappingUploadError), partition
        await require_whole(store)
        assert all([(await again.file(partition).refresh()).end_offset == 60 for partition in PARTITIONS])
        # A day later nothing is left that nobody needs.
        time.now_ms += 2 * SWEEP_AFTER_MS
        await sweep(store)
        await require_whole(store)
        uploads = {NAMES.upload_of(name) for name in objects(store)} - {None}
        named = {segment.upload for partition in PARTITIONS for segment in await again.file(partition).refresh()}
        assert uploads == named
        if not was_killed:
            break
        kills += 1
    assert kills > 40


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_kill_within_a_sweep_loses_nothing(autojump_clock: trio.testing.MockClock, is_done: bool) -> None:
    kills = 0
    while True:
        time = StoreTime()
        store = FaultyObjectStore(MemoryObjectStore(lambda time=time: time.now_ms))  # type: ignore[misc]
        await Tier(store).copy([log_of(partition) for partition in PARTITIONS])
        named = objects(store)
        # Another leader has uploaded the same, and is refused.
        await Tier(store, first_number=1000).copy([log_of(partition) for partition in PARTITIONS])
        time.now_ms += 2 * SWEEP_AFTER_MS
        store.kill_at(len(store.requests) + kills + 1, is_done=is_done)
        was_killed = await killed(lambda store=store: sweep(store))  # type: ignore[misc]
        store.before = store.after = lambda number, method, name: None
        await require_whole(store)
        await sweep(store)
        await require_whole(store)
        assert objects(store) == named
        if not was_killed:
            break
        kills += 1
    assert kills > 5


async def test_two_nodes_copy_and_sweep_at_the_same_time(autojump_clock: trio.testing.MockClock) -> None:
    time = StoreTime()
    store = FaultyObjectStore(MemoryObjectStore(lambda: time.now_ms))
    store.pauses = lambda name: 0.01
    async with trio.open_nursery() as nursery:
        for first in (1, 1000, 2000):
            tier = Tier(store, first_number=first)
            nursery.start_soon(tier.copy, [log_of(partition) for partition in PARTITIONS])
        for _ in range(3):
            nursery.start_soon(sweep, store)
    await require_whole(store)
