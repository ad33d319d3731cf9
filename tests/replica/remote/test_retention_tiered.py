"""What goes from the disk, from both parts, and from the object store; and that nothing else does."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio
import trio.testing

from ottla.replica.errors import RequestTimedOutError
from ottla.replica.offset_lookup import OffsetSpec
from ottla.replica.remote.expiry import copied_until
from ottla.replica.tiered.rules import RemoteRules
from ottla.storage.errors import OffsetOutOfRangeError
from ottla.storage.reading.parts import Part, sealed_parts_of
from ottla.tiers.manifest_file import ManifestFile
from tests.replica.remote.tiered import (
    KEY,
    SHORT_LIVED,
    TOPIC_ID,
    TieredNode,
    new_store,
    tiered_node,
)
from tests.tiers.faults import FaultyObjectStore


@pytest.fixture
def store() -> FaultyObjectStore:
    return new_store()


async def begin(node: TieredNode, rules: RemoteRules = SHORT_LIVED, batches: int = 60) -> bytes:
    """The node leads, and copies what it has; returns all of it."""
    node.rules = rules
    await node.lead()
    await node.append(batches)
    content = await node.values()
    await node.tier()
    return content


@pytest.mark.parametrize("deleted", [40, 110])
async def test_records_that_are_deleted_while_they_are_copied_for_the_first_time(
    tmp_path: Path, store: FaultyObjectStore, monkeypatch: pytest.MonkeyPatch, deleted: int
) -> None:
    """Some of them, or all: what is copied later goes on where the log begins."""
    is_committing, may_commit = trio.Event(), trio.Event()
    put_if = store.put_if

    async def held_up(name: str, content: bytes, version: str) -> str:
        if "/manifests/" in name and not is_committing.is_set():
            is_committing.set()
            await may_commit.wait()
        return await put_if(name, content, version)

    monkeypatch.setattr(store, "put_if", held_up)
    async with tiered_node(tmp_path, store) as node:
        node.rules = RemoteRules()
        await node.lead()
        await node.append(60)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.copy)
            await is_committing.wait()
            nursery.start_soon(node.remote.delete_until, deleted, node.log, 0)
            await trio.testing.wait_all_tasks_blocked()
            may_commit.set()
        assert node.log.log_start_offset == node.partition.log_start_offset == deleted
        await node.append(60)
        content = await node.values(deleted)
        await node.tier()
        assert node.remote.last_offset > 180
        assert await node.values(deleted) == content


async def test_what_is_sealed_and_not_copied_is_the_copies_lag(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        node.rules = RemoteRules()
        await node.lead()
        await node.append(60)
        store.fail_next("put_if", 10_000)
        await node.copy()
        segments, size_bytes = node.remote.copy_lag
        sealed = sealed_parts_of(node.log)
        assert (segments, size_bytes) == (len(sealed), sum(part.size_bytes for part in sealed))
        assert segments > 1
        store.before = lambda number, method, name: None
        await node.copy()
        assert node.remote.copy_lag == (0, 0)
        manifest = node.remote.manifest
        assert manifest is not None
        assert manifest.size_bytes == size_bytes == sum(segment.size_bytes for segment in manifest)


# On the disk.


async def test_nothing_goes_from_the_disk_that_is_not_copied(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await node.lead()
        await node.append(60)
        content = await node.values()
        store.fail_next("put_if", 10_000)
        await node.copy()
        await node.expire()
        assert node.log.log_start_offset == 0
        store.before = lambda number, method, name: None
        await node.copy()
        # Copied, and the manifest cannot be read by the one who is to delete.
        await node.lead(1)
        store.fail_next("get", 10_000)
        await node.expire()
        assert node.log.log_start_offset == 0
        store.before = lambda number, method, name: None
        await node.expire()
        assert 0 < node.log.log_start_offset <= node.remote.last_offset + 1
        assert await node.values() == content


async def test_what_was_lost_and_written_in_another_way_stays(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await begin(node, RemoteRules(local_retention_bytes=-1))
        end = node.remote.last_offset + 1
        # As after a loss of power: the end of what was copied is gone, and others have written since.
        await node.log.truncate_to(end - 20)
        await node.lead(5)
        await node.append(60)
        content = await node.values(end - 20)
        node.remote.rules = SHORT_LIVED
        await node.copy()
        await node.expire()
        assert node.log.log_start_offset == 0
        assert "another history" in node.storage.failing["retention of topic-0"]
        assert await node.values(end - 20) == content


async def test_local_retention_by_time(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await begin(node, RemoteRules(local_retention_ms=1000))
        assert node.log.log_start_offset == 0
        node.clock.advance(1200)
        await node.expire()
        assert 0 < node.log.log_start_offset <= node.remote.last_offset + 1


def test_what_is_young_and_near_is_copied_later() -> None:
    parts = [Part(9, 100, 50), Part(19, 200, 50), Part(29, 300, 50)]

    def until(lag_ms: int, lag_bytes: int) -> int:
        return copied_until(parts, RemoteRules(copy_lag_ms=lag_ms, copy_lag_bytes=lag_bytes), 400)

    assert until(0, -1) == 30
    assert until(200, -1) == 20
    assert until(201, -1) == 10
    assert until(-1, 50) == 20
    assert until(-1, 51) == 10
    assert until(-1, 0) == 30
    assert until(300, 100) == 10
    assert until(-1, -1) == 0


# Of both parts.


async def test_retention_by_size_counts_both(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        content = await begin(node)
        manifest = node.remote.manifest
        assert manifest is not None
        node.remote.rules = SHORT_LIVED._replace(retention_bytes=len(content) - manifest[0].size_bytes)
        await node.expire()
        start = manifest[0].last_offset + 1
        assert node.partition.log_start_offset == (await node.find(OffsetSpec.EARLIEST)).offset == start
        assert content.endswith(await node.values(start))
        assert isinstance((await node.fetch(0)).error, OffsetOutOfRangeError)
        node.remote.rules = SHORT_LIVED._replace(retention_ms=0)
        node.clock.advance(10_000)
        await node.expire()
        assert node.partition.log_start_offset == manifest.end_offset


async def test_a_topic_that_keeps_everything_deletes_nothing(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        rules = SHORT_LIVED._replace(is_deleted=False, retention_ms=0, retention_bytes=0)
        content = await begin(node, rules)
        node.clock.advance(10_000)
        await node.expire()
        assert node.log.log_start_offset > 0
        assert await node.values() == content


async def test_without_more_copies_the_disk_expires_by_itself(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await begin(node)
        end = node.remote.last_offset + 1
        node.remote.rules = SHORT_LIVED._replace(is_copied=False, retention_ms=1000, local_retention_bytes=-1)
        await node.append(60)
        await node.tier()
        assert node.remote.last_offset + 1 == end
        assert node.partition.log_start_offset == 0
        node.clock.advance(2000)
        await node.expire()
        assert node.partition.log_start_offset == node.log.log_start_offset > end
        assert node.storage.failing == {}


async def test_a_node_that_may_be_replaced_deletes_nothing(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await node.lead()
        await node.append(60)
        await node.copy()
        node.session.may_have_ended = True
        await node.expire()
        assert node.log.log_start_offset == 0


# Deleted by clients.


async def delete(node: TieredNode, offset: int, timeout_ms: int = 10_000) -> object:
    (result,) = (await node.manager.delete_records({KEY: offset}, timeout_ms=timeout_ms)).values()
    return result.error or result.low_watermark


@pytest.mark.parametrize("where", ["in the store", "on the disk", "everything"])
async def test_deleted_records_stay_deleted(tmp_path: Path, store: FaultyObjectStore, where: str) -> None:
    async with tiered_node(tmp_path, store) as node:
        content = await begin(node)
        border, end = node.log.log_start_offset, node.log.log_end_offset
        target = {"in the store": border // 2, "on the disk": border + 4, "everything": end}[where]
        assert await delete(node, target) == target
        assert node.partition.log_start_offset == target
        assert isinstance((await node.fetch(target - 1)).error, OffsetOutOfRangeError)
        assert content.endswith(await node.values(target))
        await node.append(60)
        await node.tier()
        content = await node.values(target)
    async with tiered_node(tmp_path, store) as node:
        await node.lead(1)
        await node.look()
        assert (await node.find(OffsetSpec.EARLIEST)).offset == target
        assert await node.values(target) == content


async def test_a_store_that_fails_lets_nobody_delete(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        content = await begin(node)
        store.before = lambda number, method, name: None
        store.pauses = lambda name: 60.0
        error = await delete(node, 10, timeout_ms=50)
        assert isinstance(error, RequestTimedOutError), error
        store.pauses = lambda name: 0.0
        assert node.partition.log_start_offset == 0
        assert await node.values() == content


async def test_an_end_in_the_middle_of_a_deletion_is_made_good(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await begin(node)
        target = node.log.log_start_offset + 6
        # The manifest was changed, and the disk was not.
        await node.remote.file.change(lambda found: found.with_log_start(target, 0))
    async with tiered_node(tmp_path, store) as node:
        await node.lead(1)
        await node.look()
        assert (await node.find(OffsetSpec.EARLIEST)).offset == target
        await node.expire()
        assert node.log.log_start_offset >= target


# No longer tiered.


async def test_a_topic_that_is_tiered_no_longer_begins_on_the_disk(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        content = await begin(node)
        border = node.log.log_start_offset
        await node.configure(None, remote_storage_enable="false", remote_log_delete_on_disable="true")
        assert (await node.find(OffsetSpec.EARLIEST)).offset == border
        result = await node.fetch(0)
        assert isinstance(result.error, OffsetOutOfRangeError)
        await node.expire()
        file = ManifestFile(store, "cluster/topics/topic.AAAAAAAAAAAAAAAAAAAABw/manifests/0000000000", TOPIC_ID, 0)
        manifest = await file.refresh()
        assert (len(manifest), manifest.log_start_offset) == (0, border)
        # And once more: what is on the disk is copied again.
        await node.configure(SHORT_LIVED, remote_storage_enable="true")
        await node.look()
        end = node.log.log_end_offset
        await node.append(40)
        await node.tier()
        assert node.log.log_start_offset > border
        assert node.partition.log_start_offset == border
        content += await node.values(end)
        assert content.endswith(await node.values(border))
        assert isinstance((await node.fetch(border - 1)).error, OffsetOutOfRangeError)


async def test_the_objects_of_a_deleted_topic_are_deleted(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        await begin(node)
        await node.delete_topic()
        store.fail_next("delete", 1)
        with pytest.raises(Exception, match="503"):
            await node.storage.delete_next()
    # The next process finds that it was begun.
    async with tiered_node(tmp_path / "other", store) as node:
        await node.lead()
        await node.storage.find_deleted()
        await node.storage.delete_next()
    assert [info.name for info in await store.find("cluster/topics/")] == []
    assert [info.name for info in await store.find("cluster/deleted/")] == []


async def test_older_metadata_deletes_no_objects(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store, is_older=True) as node:
        await begin(node)
        before = [info.name for info in await store.find("cluster/topics/")]
        await node.delete_topic()
        await node.storage.delete_next()
    assert [info.name for info in await store.find("cluster/topics/")] == before
