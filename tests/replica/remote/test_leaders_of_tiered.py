"""New leaders, replicas and lost disks of a tiered partition."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.replica.errors import NotLeaderError
from ottla.replica.offset_lookup import OffsetSpec
from ottla.replica.partition import Isolation
from ottla.replica.tiered.errors import OffsetMovedToTieredStorageError
from ottla.replica.tiered.rules import RemoteRules
from ottla.storage.errors import OffsetOutOfRangeError
from ottla.tiers.manifest_file import ManifestFile
from tests.replica.remote.tiered import KEY, SHORT_LIVED, TOPIC_ID, TieredNode, new_store, tiered_node
from tests.tiers.faults import FaultyObjectStore

BOTH = (0, 1)


@pytest.fixture
def store() -> FaultyObjectStore:
    return new_store()


async def until(is_so: Callable[[], bool]) -> None:
    with trio.fail_after(60):
        while not is_so():  # noqa: ASYNC110 - what is waited for is changed by many
            await trio.sleep(0.01)


async def follow(follower: TieredNode, leader: TieredNode) -> None:
    """What a follower does until it has everything."""
    while True:
        log = follower.log
        asked = await leader.fetch(
            log.log_end_offset,
            replica_id=follower.node_id,
            isolation=Isolation.LOG_END,
            last_fetched_epoch=log.latest_epoch,
        )
        if isinstance(asked.error, OffsetMovedToTieredStorageError):
            start = (await leader.find(OffsetSpec.EARLIEST_LOCAL)).offset
            await follower.partition.start_anew_at(start, follower.partition.leader_epoch)
            continue
        assert asked.error is None, asked.error
        if asked.records is None:
            break
        now_ms = follower.clock.time_ms()
        follower.log.append_as_follower(memoryview(bytearray(asked.records.to_bytes())), None, now_ms=now_ms)
        asked.release()
        await follower.log.flush()
        log.advance_high_watermark(asked.high_watermark)
        if log.log_start_offset < asked.log_start_offset <= log.high_watermark:
            await log.advance_log_start_offset(asked.log_start_offset)
    log.advance_high_watermark(asked.high_watermark)
    await follower.log_manager.maintenance.wait_idle()


async def test_a_new_replica_takes_only_what_is_on_the_leaders_disk(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path / "0", store) as leader, tiered_node(tmp_path / "1", store, node_id=1) as follower:
        await leader.lead()
        await leader.append(60)
        content = await leader.values()
        await leader.tier()
        await leader.lead(1, replicas=BOTH)
        await follower.lead(1, replicas=BOTH, leader=0)
        result = await leader.fetch(0, replica_id=1, isolation=Isolation.LOG_END)
        assert isinstance(result.error, OffsetMovedToTieredStorageError)
        assert result.error.code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
        await follow(follower, leader)
        assert follower.log.log_start_offset == leader.log.log_start_offset > 0
        # It serves what it never had, also before it leads.
        assert await follower.values() == content
        await follower.lead(2)
        await follower.look()
        assert (await follower.find(OffsetSpec.EARLIEST)).offset == 0
        assert await follower.values() == content
        await follower.append(40)
        await follower.tier()
        assert (await follower.values()).startswith(content)
        manifest = follower.remote.manifest
        assert manifest is not None
        assert manifest.leader_epoch == 2


async def test_a_follower_takes_from_its_disk_what_its_leader_has_copied(
    tmp_path: Path, store: FaultyObjectStore
) -> None:
    async with tiered_node(tmp_path / "0", store) as leader, tiered_node(tmp_path / "1", store, node_id=1) as follower:
        await leader.lead(0, replicas=BOTH)
        await follower.lead(0, replicas=BOTH, leader=0)
        for _ in range(4):
            await leader.append(20)
            await follow(follower, leader)
        await follow(follower, leader)
        await follower.expire()
        assert follower.log.log_start_offset == 0
        await leader.copy()
        await follower.expire()
        assert 0 < follower.log.log_start_offset <= leader.remote.last_offset + 1
        assert follower.storage.failing == {}


async def test_a_follower_asks_only_if_something_would_go(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store, node_id=1) as follower:
        follower.rules = RemoteRules()
        await follower.lead(0, replicas=BOTH, leader=0)
        store.requests.clear()
        await follower.expire()
        assert store.requests == []


async def test_what_a_client_has_deleted_is_deleted_on_every_replica(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path / "0", store) as leader, tiered_node(tmp_path / "1", store, node_id=1) as follower:
        await leader.lead(0, replicas=BOTH)
        await follower.lead(0, replicas=BOTH, leader=0)
        await leader.append(60)
        await follow(follower, leader)
        await follow(follower, leader)
        await leader.tier()
        results = []

        async def delete() -> None:
            results.append(await leader.manager.delete_records({KEY: 10}, timeout_ms=10_000))

        assert leader.log.log_start_offset > 10
        leader.partition._brokers = {1: 0}  # it is alive
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            await until(lambda: leader.partition.log_start_offset == 10)
            assert results == []
            await leader.append(1)
            await follow(follower, leader)
            await follow(follower, leader)
            assert follower.log.log_start_offset == 10
            # Its next fetch says so.
            state = leader.partition
            assert state.record_follower_fetch(1, follower.log.log_end_offset, 10, state.leader_epoch, 0)
            leader.manager.follower_moved(state)
        assert [result.low_watermark for each in results for result in each.values()] == [10]


async def test_an_empty_disk_goes_on_where_the_object_store_ends(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path / "0", store) as node:
        await node.lead()
        await node.append(60)
        content = await node.values()
        await node.tier()
        copied = node.remote.last_offset + 1
    async with tiered_node(tmp_path / "new", store) as node:
        # As at the start: nothing was known before.
        node.begin_anew()
        store.fail_next("get", 3)
        await node.lead(1)
        assert not node.partition.is_leader
        with pytest.raises(NotLeaderError):
            node.partition.require_leader()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(node.storage.look_at_all, node.manager, node.publish_again)
            await until(lambda: node.partition.is_leader)
            nursery.cancel_scope.cancel()
        assert node.log.log_start_offset == node.log.log_end_offset == copied
        assert (await node.find(OffsetSpec.EARLIEST)).offset == 0
        await node.append(60)
        found = await node.values()
        assert content.startswith(found[: len(content) // 2])
        await node.tier()
        assert await node.values() == found
        assert node.partition.end_offset_for_epoch(0) == (0, copied)


async def until_it_leads(node: TieredNode) -> None:
    """The node looks at the object store, and leads then."""
    assert not node.partition.is_leader
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.storage.look_at_all, node.manager, node.publish_again)
        await until(lambda: node.partition.is_leader)
        nursery.cancel_scope.cancel()


async def test_a_log_that_has_lost_its_end_goes_on_where_the_object_store_ends(
    tmp_path: Path, store: FaultyObjectStore
) -> None:
    async with tiered_node(tmp_path, store) as node:
        node.rules = RemoteRules()
        await node.lead()
        await node.append(60)
        content = await node.values()
        await node.copy()
        copied = node.remote.last_offset + 1
        # As after a loss of power: nobody knows that anything is missing.
        await node.log.truncate_to(copied - 30)
    async with tiered_node(tmp_path, store) as node:
        node.begin_anew()
        node.manager.expect_losses()
        await node.lead(1)
        await until_it_leads(node)
        assert node.log.log_end_offset == copied
        found = await node.values()
        assert content.startswith(found)
        await node.append(60)
        await node.tier()
        assert (await node.values()).startswith(found)
        # It leads on without asking again.
        await node.lead(2, leader=1, replicas=BOTH)
        store.fail_next("get", 1000)
        await node.lead(3, replicas=BOTH)
        assert node.partition.is_leader


@pytest.mark.parametrize("uncommitted", [0, 5])
async def test_a_leader_that_was_not_in_sync_goes_on_where_the_object_store_ends(
    tmp_path: Path, store: FaultyObjectStore, uncommitted: int
) -> None:
    async with tiered_node(tmp_path / "0", store) as other, tiered_node(tmp_path / "1", store, node_id=1) as late:
        await late.lead(0, replicas=BOTH)
        await other.lead(0, replicas=BOTH, leader=1)
        await late.append(10)
        await follow(other, late)
        await late.append(uncommitted)
        await other.lead(1, replicas=BOTH, isr=(0,))
        await late.lead(1, replicas=BOTH, leader=0, isr=(0,))
        await other.append(60)
        await other.copy()
        content = await other.values()
        copied = other.remote.last_offset + 1
        assert late.log.log_end_offset == 20 + 2 * uncommitted < copied
        # An unclean election.
        await late.lead(2, replicas=BOTH, isr=(1,))
        await until_it_leads(late)
        assert late.log.log_end_offset == copied
        assert content.startswith(await late.values())
        await late.append(60)
        await late.tier()


async def test_a_topic_that_was_created_just_now_waits_for_nobody(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path, store) as node:
        store.fail_next("get", 1000)
        await node.lead()
        assert node.partition.is_leader
        await node.append(1)


async def test_of_two_leaders_one_goes_on(tmp_path: Path, store: FaultyObjectStore) -> None:
    async with tiered_node(tmp_path / "0", store) as old, tiered_node(tmp_path / "1", store, node_id=1) as new:
        await old.lead(0, replicas=BOTH)
        await new.lead(0, replicas=BOTH, leader=0)
        await old.append(60)
        await follow(new, old)
        await follow(new, old)
        content = await old.values()
        # The old one has not heard of it.
        await new.lead(1)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(new.copy)
            nursery.start_soon(old.copy)
        await new.append(60)
        await new.copy()
        await old.copy()
        for node in (old, new):
            await node.expire()
        assert (await new.values()).startswith(content)
        assert new.storage.failing == {}
        names = new.remote.names
        manifest = await ManifestFile(store, names.manifest(0), TOPIC_ID, 0).refresh()
        assert manifest.leader_epoch == 1
        # The old one reads on what is there of it.
        assert await old.values() == content
        deleted = await old.manager.delete_records({KEY: 50}, timeout_ms=1000)
        assert [result.error is not None for result in deleted.values()] == [True]
        assert new.partition.log_start_offset == 0


async def test_an_offset_below_the_log_start_is_out_of_range_for_a_follower(
    tmp_path: Path, store: FaultyObjectStore
) -> None:
    async with tiered_node(tmp_path, store) as leader:
        leader.rules = SHORT_LIVED
        await leader.lead(0, replicas=BOTH)
        await leader.lead(1)
        await leader.append(60)
        await leader.tier()
        await leader.remote.delete_until(10, leader.log, 1)
        await leader.lead(2, replicas=BOTH)
        await leader.look()
        result = await leader.fetch(5, replica_id=1, isolation=Isolation.LOG_END)
        assert isinstance(result.error, OffsetOutOfRangeError)
