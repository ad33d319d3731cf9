"""Damage of objects is found, and said to be where it is."""

from __future__ import annotations

import pytest
import trio.testing

from ottla.tiers.check import CheckedPartition, check_partition, check_topic
from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.object_store import Content, StoredObject
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.logs import log_of
from tests.tiers.tier import NAMES, Tier, inline


@pytest.fixture
def store() -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: 1))


async def places(store: FaultyObjectStore, *, reads_all: bool, partition: int = 0) -> list[tuple[int, int]]:
    found = await check_partition(store, NAMES, partition, reads_all=reads_all, offload=inline)
    return [(damage.first_offset, damage.last_offset) for damage in found.damage]


async def copied(store: FaultyObjectStore) -> Manifest:
    tier = Tier(store)
    await tier.copy([log_of(0), log_of(1)])
    manifest = (await tier.copy([log_of(0, offset=60, previous_epoch=1)]))[0]
    assert isinstance(manifest, Manifest)
    return manifest


@pytest.mark.parametrize("reads_all", [True, False])
async def test_what_is_whole_has_no_damage(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, reads_all: bool
) -> None:
    await copied(store)
    for partition in (0, 1, 2):
        assert await places(store, reads_all=reads_all, partition=partition) == []


async def test_a_changed_byte_is_found(autojump_clock: trio.testing.MockClock, store: FaultyObjectStore) -> None:
    manifest = await copied(store)
    name = NAMES.part(manifest[1].upload, 1)
    content = bytearray((await store.get(name)).content)
    content[7] ^= 1
    await store.put(name, bytes(content))
    found = await places(store, reads_all=True)
    assert len(found) == 1
    assert 60 < found[0][0] < found[0][1] < 120
    assert await places(store, reads_all=True, partition=1) == []
    # Nobody has looked at it.
    assert await places(store, reads_all=False) == []


@pytest.mark.parametrize("reads_all", [True, False])
@pytest.mark.parametrize("is_cut", [True, False])
async def test_a_part_that_is_gone_or_cut_is_found(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, reads_all: bool, is_cut: bool
) -> None:
    manifest = await copied(store)
    name = NAMES.part(manifest[1].upload, 2)
    content = (await store.get(name)).content
    if is_cut:
        await store.put(name, content[:-1])
    else:
        await store.delete([name])
    found = await places(store, reads_all=reads_all)
    assert len(found) == 1
    assert found[0][0] > 60


@pytest.mark.parametrize("reads_all", [True, False])
async def test_a_damaged_index_hides_a_segment(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, reads_all: bool
) -> None:
    manifest = await copied(store)
    name = NAMES.index(manifest[0].upload)
    content = bytearray((await store.get(name)).content)
    content[manifest[0].index_position + 70] ^= 1
    await store.put(name, bytes(content))
    assert await places(store, reads_all=reads_all) == [(0, 59)]
    assert await places(store, reads_all=reads_all, partition=1) == []
    await store.delete([name])
    assert await places(store, reads_all=reads_all, partition=1) == [(0, 59)]


async def test_a_damaged_manifest_hides_everything(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore
) -> None:
    await copied(store)
    content = (await store.get(NAMES.manifest(0))).content
    await store.put(NAMES.manifest(0), content[:-9])
    assert await places(store, reads_all=False) == [(-1, -1)]


async def test_no_answer_is_no_damage(autojump_clock: trio.testing.MockClock, store: FaultyObjectStore) -> None:
    await copied(store)
    store.fail_next("get_range", 1000, name=".000002")
    with pytest.raises(ObjectStoreUnavailableError):
        await places(store, reads_all=False)


async def test_a_topic_is_the_sum_of_its_partitions(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore
) -> None:
    manifest = await copied(store)
    seen: list[CheckedPartition] = []
    found = await check_topic(store, NAMES, checked=seen.append, offload=inline)
    assert found.partitions == sorted(seen, key=lambda it: -it.records)
    assert found.partitions[0] == CheckedPartition(120, 2, manifest.size_bytes, [])
    assert [each.segments for each in found.partitions] == [2, 1]
    assert (found.damage, found.strangers) == ([], [])
    await store.put(f"{NAMES.manifests}notes", b"x")
    await store.delete([NAMES.index(manifest[1].upload)])
    found = await check_topic(store, NAMES, offload=inline)
    assert found.strangers == [f"{NAMES.manifests}notes"]
    assert [damage[:3] for damage in found.damage] == [(0, 60, 119)]


async def test_what_is_deleted_meanwhile_is_no_damage(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = await copied(store)
    shorter = manifest.with_log_start(60, 1)

    async def delete() -> None:
        await store.store.put(NAMES.manifest(0), shorter.to_bytes())
        await store.store.delete([NAMES.index(manifest[0].upload)])

    original = store.get_range

    async def get_range(name: str, start: int, length: int) -> Content:
        if name == NAMES.index(manifest[0].upload):
            await delete()
        return await original(name, start, length)

    monkeypatch.setattr(store, "get_range", get_range)
    assert await places(store, reads_all=False) == []
    # And nothing but that: what is named still is looked for.
    await store.delete([NAMES.index(manifest[1].upload)])
    assert await places(store, reads_all=False) == [(60, 119)]


@pytest.mark.parametrize("is_last", [True, False])
async def test_a_topic_that_is_being_deleted_has_no_damage(
    autojump_clock: trio.testing.MockClock, store: FaultyObjectStore, monkeypatch: pytest.MonkeyPatch, is_last: bool
) -> None:
    manifest = await copied(store)
    await store.delete([NAMES.index(manifest[1].upload)])
    assert len((await check_topic(store, NAMES, offload=inline)).damage) == 1
    if not is_last:
        await store.put(NAMES.deletion_note, b"{}")
        assert (await check_topic(store, NAMES, offload=inline)).damage == []
        return

    original = store.get

    async def get(name: str) -> StoredObject:
        if name == NAMES.deletion_note:
            # It is done by now, and so is the note.
            await store.store.delete([NAMES.manifest(0), NAMES.manifest(1)])
        return await original(name)

    monkeypatch.setattr(store, "get", get)
    assert (await check_topic(store, NAMES, offload=inline)).damage == []
