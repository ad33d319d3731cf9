"""What no manifest names is removed, and nothing else, whatever the store says."""

from __future__ import annotations

import pytest
import trio.testing

from ottla.tiers.errors import CorruptObjectError, ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.names import TopicNames
from ottla.tiers.stores.memory_store import MemoryObjectStore
from ottla.tiers.sweep import SWEEP_AFTER_MS, SweepResult, delete_topic, sweep_topic
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import log_of
from tests.tiers.test_copying import StoreTime
from tests.tiers.tier import NAMES, PROBE, TOPIC_ID, Tier, inline, read_all, reading

NOTHING = SweepResult(0, 0, 0)


@pytest.fixture
def time() -> StoreTime:
    return StoreTime()


@pytest.fixture
def store(time: StoreTime) -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: time.now_ms))


def objects(store: FaultyObjectStore) -> list[str]:
    assert isinstance(store.store, MemoryObjectStore)
    return [name for name in store.store.names if name != PROBE]


async def sweep(store: FaultyObjectStore) -> SweepResult:
    return await sweep_topic(store, NAMES, probe=PROBE, offload=inline)


async def with_orphans(store: FaultyObjectStore, *, has_index: bool) -> Manifest:
    """A manifest with one segment, and an upload that was not named."""
    manifest = (await Tier(store).copy([log_of(0), log_of(1)]))[0]
    await Tier(store, first_number=50).copy([log_of(1, offset=60, previous_epoch=1)])
    name = ".index" if has_index else ".000009"
    tier = Tier(store, first_number=100)
    store.fail_next("put_if" if not has_index else "modified_ms", 1000, name=name if not has_index else "")
    if has_index:
        seen = [0]

        def fail(number: int, method: str, at: str) -> None:
            # The clock is asked at the beginning, and again when all is uploaded.
            seen[0] += method == "modified_ms"
            if seen[0] == 2:
                raise ObjectStoreUnavailableError("503 Slow Down")

        store.before = fail
    with pytest.raises(ObjectStoreUnavailableError):
        await tier.copy([log_of(0, offset=60, previous_epoch=1, batches=40)])
    store.before = lambda number, method, name: None
    assert isinstance(manifest, Manifest)
    return manifest


@pytest.mark.parametrize("has_index", [True, False])
async def test_orphans_go_after_a_day(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, time: StoreTime, has_index: bool
) -> None:
    manifest = await with_orphans(store, has_index=has_index)
    before = objects(store)
    assert (await sweep(store)).removed_objects == 0
    time.now_ms += SWEEP_AFTER_MS - 1000
    young = await sweep(store)
    assert (young.removed_objects, young.kept_orphans > 5) == (0, True)
    assert objects(store) == before
    time.now_ms += 2000
    swept = await sweep(store)
    assert swept.removed_objects == young.kept_orphans
    assert len(objects(store)) == len(before) - swept.removed_objects
    assert await sweep(store) == NOTHING
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == log_of(0).content


async def test_what_retention_gave_up_goes_when_no_partition_needs_it(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    tier = Tier(store)
    await tier.copy([log_of(0), log_of(1)])
    time.now_ms += 2 * SWEEP_AFTER_MS
    await tier.file(0).change(lambda manifest: manifest.with_log_start(60, 1))
    assert await sweep(store) == NOTHING
    await tier.file(1).change(lambda manifest: manifest.with_log_start(59, 1))
    assert await sweep(store) == NOTHING
    await tier.file(1).change(lambda manifest: manifest.with_log_start(60, 1))
    assert (await sweep(store)).removed_objects > 0
    assert objects(store) == [NAMES.manifest(0), NAMES.manifest(1)]


async def test_a_manifest_that_cannot_be_read_keeps_everything(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    await with_orphans(store, has_index=True)
    time.now_ms += 2 * SWEEP_AFTER_MS
    before = objects(store)
    store.distort = lambda name, content: content[:-3] if "manifests" in name else content
    with pytest.raises(CorruptObjectError):
        await sweep(store)
    store.distort = lambda name, content: content[:-3] if ".index" in name else content
    with pytest.raises(CorruptObjectError):
        await sweep(store)
    store.distort = lambda name, content: content
    store.fail_next("get", 1000, name="manifests")
    with pytest.raises(ObjectStoreUnavailableError):
        await sweep(store)
    assert objects(store) == before


async def test_a_listing_without_manifests_misleads_nobody(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    manifest = (await Tier(store).copy([log_of(0)]))[0]
    time.now_ms += 2 * SWEEP_AFTER_MS
    real = store.store.find

    async def find(prefix: str, after: str = "") -> list[object]:
        return [] if "manifests" in prefix else list(await real(prefix, after))

    store.store.find = find  # type: ignore[method-assign, assignment]
    assert await sweep(store) == NOTHING
    assert isinstance(manifest, Manifest)
    async with reading(store) as reader:
        assert await read_all(reader, manifest) == log_of(0).content


async def test_what_is_not_ours_stays(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, time: StoreTime
) -> None:
    await store.put(f"{NAMES.segments}notes.txt", b"1")
    await store.put("cluster/topics/other/segments/0000000001-" + "0" * 32 + ".000000", b"1")
    time.now_ms += 2 * SWEEP_AFTER_MS
    assert await sweep(store) == NOTHING
    assert len(objects(store)) == 2


async def test_a_deleted_topic_takes_its_objects_with_it(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore
) -> None:
    other = TopicNames("cluster", "trips2", TOPIC_ID)
    await store.put(other.manifest(0), b"1")
    await Tier(store).copy([log_of(0, batches=400), log_of(1)])
    count = len(objects(store)) - 1
    assert await delete_topic(store, NAMES) == count
    assert objects(store) == [other.manifest(0)]
    assert await delete_topic(store, NAMES) == 0
