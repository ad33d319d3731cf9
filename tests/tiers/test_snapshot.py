"""Snapshots: who may write one, and that what is read is what was written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from ottla.tiers.errors import (
    CorruptObjectError,
    FencedUploadError,
    ObjectStoreUnavailableError,
    SnapshotTooLargeError,
    SupersededError,
    TierError,
)
from ottla.tiers.snapshot import MAX_SNAPSHOT_BYTES, Snapshot, SnapshotFile, read_generation
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.tiers.faults import FaultyObjectStore
from tests.tiers.tier import inline

NAME = "cluster/snapshots/metadata"


@pytest.fixture
def store() -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: 0))


def file(store: FaultyObjectStore) -> SnapshotFile:
    return SnapshotFile(store, NAME, offload=inline)


def of(content: bytes) -> Callable[[], Awaitable[bytes]]:
    async def collect() -> bytes:
        return content

    return collect


async def content(store: FaultyObjectStore) -> bytes | None:
    found = await file(store).read()
    return None if found is None else found.content


async def test_what_has_not_changed_is_not_written_again(store: FaultyObjectStore) -> None:
    one = file(store)
    assert await one.write(0, 0, 1, of(b"a"))
    before = len(store.requests)
    assert not await one.write(0, 0, 2, of(b"a"))
    assert len(store.requests) == before
    assert await one.write(0, 0, 3, of(b"b"))
    assert await file(store).read() == Snapshot(0, 0, 3, b"b")


async def test_nothing_is_written_only_over_something(store: FaultyObjectStore) -> None:
    one = file(store)
    assert not await one.write(0, 0, 0, of(b""))
    assert await content(store) is None
    await one.write(0, 0, 0, of(b"a"))
    assert await one.write(0, 0, 0, of(b""))
    assert await content(store) == b""


async def test_a_leader_that_was_replaced_does_not_write_over_the_next_one(store: FaultyObjectStore) -> None:
    old, new = file(store), file(store)
    await old.write(0, 1, 0, of(b"old"))
    await new.write(0, 2, 0, of(b"new"))
    with pytest.raises(FencedUploadError):
        await old.write(0, 1, 0, of(b"older"))
    assert await content(store) == b"new"


async def test_a_controller_that_was_replaced_collects_anew(store: FaultyObjectStore) -> None:
    """It has listed before the next one has written: what it has is older."""
    old, new = file(store), file(store)
    await old.write(0, 0, 0, of(b"first"))
    there = [b"first"]

    async def slowly() -> bytes:
        listed = there[0]
        if listed == b"first":
            there[0] = b"second"
            await new.write(0, 0, 0, of(b"second"))
        return listed + b" by the old one"

    await old.write(0, 0, 0, slowly)
    assert await content(store) == b"second by the old one"


async def test_a_cluster_that_was_restored_shuts_the_old_one_out(store: FaultyObjectStore) -> None:
    old, restored = file(store), file(store)
    await old.write(0, 7, 0, of(b"old"))
    await restored.read()
    await restored.take_over(1, 0, b"claim")
    assert await read_generation(store, NAME) == 1
    with pytest.raises(SupersededError):
        await old.write(0, 8, 0, of(b"older"))
    # Ranks begin anew with a generation.
    assert await file(store).write(1, 0, 0, of(b"new"))
    assert await content(store) == b"new"


@pytest.mark.parametrize("is_done", [True, False])
async def test_a_lost_answer_is_no_success_before_it_is_seen(store: FaultyObjectStore, is_done: bool) -> None:
    one = file(store)
    store.fail_next("put_if", is_done=is_done)
    with pytest.raises(ObjectStoreUnavailableError):
        await one.write(0, 0, 0, of(b"a"))
    assert await one.write(0, 0, 0, of(b"a")) is not is_done
    assert await content(store) == b"a"
    two = file(store)
    await two.read()
    store.fail_next("put_if", is_done=True)
    await two.take_over(1, 0, b"claim")
    assert await content(store) == b"claim"


async def test_damage_is_not_believed_and_not_written_over(store: FaultyObjectStore) -> None:
    await file(store).write(0, 0, 0, of(b"content"))
    good = (await store.store.get(NAME)).content
    for bad in (good[:20], b"x" + good[1:], good[:-1] + b"?", good[:40] + b"?" + good[41:], b""):
        await store.store.put(NAME, bad)
        with pytest.raises(TierError):
            await file(store).write(0, 0, 0, of(b"other"))
        assert (await store.store.get(NAME)).content == bad
    with pytest.raises(CorruptObjectError):
        await read_generation(store, NAME)


async def test_what_is_too_large_leaves_the_one_before(store: FaultyObjectStore) -> None:
    one = file(store)
    await one.write(0, 0, 0, of(b"small"))
    with pytest.raises(SnapshotTooLargeError):
        await one.write(0, 0, 0, of(bytes(MAX_SNAPSHOT_BYTES + 1)))
    assert await content(store) == b"small"
