"""Changing a manifest: by whom, after which answers of the store, and after none."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from ottla.tiers.errors import CorruptObjectError, ObjectStoreUnavailableError
from ottla.tiers.manifest import Manifest
from ottla.tiers.manifest_file import Edit, ManifestFile
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.test_manifest import TOPIC_ID
from tests.tiers.tier import inline


@pytest.fixture
def store() -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: 1))


def file_of(store: FaultyObjectStore) -> ManifestFile:
    return ManifestFile(store, "manifest", TOPIC_ID, 2, offload=inline)


def starting_at(offset: int, epoch: int = 1) -> Edit:
    return lambda manifest: manifest.with_log_start(offset, epoch)


async def test_a_manifest_that_is_not_there_is_empty(store: FaultyObjectStore) -> None:
    manifest = await file_of(store).refresh()
    assert (manifest.revision, len(manifest), manifest.end_offset) == (0, 0, 0)


async def test_two_nodes_see_what_the_other_has_written(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock
) -> None:
    one, other = file_of(store), file_of(store)
    await one.change(starting_at(10))
    await other.change(starting_at(20))
    # One knows the first version only: its write fails, and it looks again.
    manifest = await one.change(starting_at(15))
    assert (manifest.log_start_offset, manifest.revision) == (20, 2)
    assert (await one.change(starting_at(30))).revision == 3
    assert (await other.refresh()).log_start_offset == 30


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_write_without_an_answer_is_made_once(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock, is_done: bool
) -> None:
    file = file_of(store)
    await file.change(starting_at(10))
    store.fail_next("put_if", is_done=is_done)
    manifest = await file.change(starting_at(20))
    assert (manifest.log_start_offset, manifest.revision) == (20, 2)


async def test_a_write_without_an_answer_that_another_one_followed(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock
) -> None:
    file, other = file_of(store), file_of(store)
    await file.change(starting_at(10))
    store.fail_next("put_if", is_done=True)
    pauses = store.pauses
    async with trio.open_nursery() as nursery:
        store.pauses = lambda name: 0.001
        nursery.start_soon(file.change, starting_at(20))
        nursery.start_soon(other.change, starting_at(30))
    store.pauses = pauses
    assert (await file.refresh()).log_start_offset == 30
    assert (await file.refresh()).revision <= 3


async def test_what_the_store_has_shown_before_is_not_taken_back(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock
) -> None:
    file = file_of(store)
    await file.change(starting_at(10))
    old = await store.store.get("manifest")
    await file.change(starting_at(20))
    store.stale["manifest"] = old
    with pytest.raises(ObjectStoreUnavailableError):
        await file.refresh()
    assert file.manifest is not None
    assert file.manifest.log_start_offset == 20
    await store.store.delete(["manifest"])
    store.stale.clear()
    with pytest.raises(ObjectStoreUnavailableError):
        await file.refresh()


async def test_a_stale_answer_at_the_start_only_costs_time(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock
) -> None:
    await file_of(store).change(starting_at(10))
    store.stale["manifest"] = await store.store.get("manifest")
    await file_of(FaultyObjectStore(store.store)).change(starting_at(20))
    file = file_of(store)
    assert (await file.refresh()).log_start_offset == 10
    with pytest.raises(ObjectStoreUnavailableError):
        await file.change(starting_at(15))
    store.stale.clear()
    assert (await file.change(starting_at(15))).log_start_offset == 20


async def test_damage_is_not_written_over(store: FaultyObjectStore, autojump_clock: trio.testing.MockClock) -> None:
    await file_of(store).change(starting_at(10))
    store.distort = lambda name, content: content[:-1] + b"\0"
    with pytest.raises(CorruptObjectError):
        await file_of(store).change(starting_at(20))
    store.distort = lambda name, content: content
    assert (await file_of(store).refresh()).log_start_offset == 10


async def test_a_store_that_never_answers_is_given_up(
    store: FaultyObjectStore, autojump_clock: trio.testing.MockClock
) -> None:
    file = file_of(store)
    await file.change(starting_at(10))
    store.fail_next("put_if", 1000)
    with pytest.raises(ObjectStoreUnavailableError):
        await file.change(starting_at(20))
    assert file.manifest is not None
    assert file.manifest.log_start_offset == 10


async def test_what_an_edit_refuses_changes_nothing(store: FaultyObjectStore) -> None:
    def refuse(manifest: Manifest) -> Manifest:
        raise RefusedError

    class RefusedError(Exception):
        pass

    file = file_of(store)
    with pytest.raises(RefusedError):
        await file.change(refuse)
    assert (await file.change(starting_at(5))).revision == 1
