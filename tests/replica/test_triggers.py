"""Every line of the purgatory's table of triggers, fired once for an append and once for a fetch that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.metadata.image import PartitionState, TopicImage
from ottla.replica.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
    RequestTimedOutError,
    UnknownTopicIdError,
)
from ottla.replica.partition import Isolation
from ottla.storage.errors import DiskFullError, OffsetOutOfRangeError, StoreOfflineError
from ottla.storage.log.append_types import AppendOrigin

# No deadline comes by itself: what completes was woken.
pytestmark = pytest.mark.frozen_clock

Node = Any


class Waiting:
    """An operation that waits in a task of its own."""

    def __init__(self, nursery: trio.Nursery, operation: Callable[[], Awaitable[Any]]) -> None:
        self.result: Any = None
        self.is_done = False
        self._operation = operation
        nursery.start_soon(self._run)

    async def _run(self) -> None:
        self.result = await self._operation()
        self.is_done = True

    async def settles(self) -> Any:
        """The answer, which must come without any time passing."""
        await wait_all_tasks_blocked()
        assert self.is_done
        return self.result

    async def still_waits(self) -> None:
        await wait_all_tasks_blocked()
        assert not self.is_done


@pytest.fixture
async def topic(node: Node) -> TopicImage:
    created: TopicImage = await node.create_topic()
    return created


def assert_nobody_is_left(node: Node) -> None:
    for purgatory in (node.manager.append_purgatory, node.manager.fetch_purgatory):
        assert purgatory.watching == 0
        assert purgatory.watched_keys == 0


# Append ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", [1, -1])
async def test_append_flushed(node: Node, nursery: trio.Nursery, topic: TopicImage, acks: int) -> None:
    append = Waiting(nursery, lambda: node.append(topic, acks=acks))
    await append.still_waits()
    node.flush()
    result = await append.settles()
    assert result.error is None
    assert result.base_offset == 0
    assert_nobody_is_left(node)


async def test_append_high_watermark(node: Node, nursery: trio.Nursery) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    node.flush()
    await append.still_waits()
    await node.fetch(topic, 1, replica_id=1, max_wait_ms=0, isolation=Isolation.LOG_END)
    assert (await append.settles()).error is None


async def test_append_last_stable_offset(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    """An open transaction holds back readers, never the producers' acknowledgements."""
    node.log(topic).first_unstable_offset = 0
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    node.flush()
    assert (await append.settles()).error is None


async def test_append_leader_epoch(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    """The leader stays in office in a new epoch: what it appended is there, and acknowledged when flushed."""
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    wake_ups = node.manager.append_purgatory.wake_ups
    await node.change(topic, leader_epoch=1)
    await append.still_waits()
    assert node.manager.append_purgatory.wake_ups == wake_ups + 1
    node.flush()
    assert (await append.settles()).error is None


async def test_append_role(node: Node, nursery: trio.Nursery) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    append = Waiting(nursery, lambda: node.append(topic, acks=1))
    await append.still_waits()
    await node.change(topic, leader=1, leader_epoch=1)
    assert isinstance((await append.settles()).error, NotLeaderError)
    assert_nobody_is_left(node)


async def test_append_is_not_vouched_for_by_a_later_term(node: Node, nursery: trio.Nursery) -> None:
    """Deposed and elected again before the waiter runs: its records may have been truncated in between."""
    topic = await node.create_topic(replicas=(0, 1))
    append = Waiting(nursery, lambda: node.append(topic, acks=1))
    await append.still_waits()
    partition = node.partition(topic)
    state = node.image.topic_by_id(topic.topic_id).partitions[0]
    partition.apply(type(state)(leader=1, replicas=(0, 1), isr=(0, 1), leader_epoch=1))
    partition.apply(type(state)(leader=0, replicas=(0, 1), isr=(0, 1), leader_epoch=2))
    node.flush()
    assert isinstance((await append.settles()).error, NotLeaderError)


async def test_append_in_sync_set(node: Node, nursery: trio.Nursery) -> None:
    """The follower that held back the high watermark leaves the in-sync set."""
    topic = await node.create_topic(replicas=(0, 1))
    append = Waiting(nursery, lambda: node.append(topic))
    node.flush()
    await append.still_waits()
    await wait_all_tasks_blocked()
    node.flush()
    await append.still_waits()
    await node.change(topic, isr=(0,))
    assert (await append.settles()).error is None


async def test_append_in_sync_set_too_small_afterwards(node: Node, nursery: trio.Nursery) -> None:
    node.min_insync_replicas = 2
    topic = await node.create_topic(replicas=(0, 1, 2))
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    node.flush()
    for replica in (1, 2):
        await append.still_waits()
        await node.fetch(topic, 1, replica_id=replica, max_wait_ms=0, isolation=Isolation.LOG_END)
    # The waiter has been woken, and the in-sync set shrinks before it runs.
    partition = node.partition(topic)
    partition.apply(PartitionState(leader=0, replicas=(0, 1, 2), isr=(0,), leader_epoch=partition.leader_epoch))
    assert isinstance((await append.settles()).error, NotEnoughReplicasAfterAppendError)


async def test_append_deletion(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    await node.delete_topic(topic)
    assert isinstance((await append.settles()).error, UnknownTopicIdError)
    assert_nobody_is_left(node)


@pytest.mark.parametrize("acks", [1, -1])
async def test_append_store_offline(node: Node, nursery: trio.Nursery, topic: TopicImage, acks: int) -> None:
    append = Waiting(nursery, lambda: node.append(topic, acks=acks))
    await append.still_waits()
    node.fail(node.log(topic))
    assert isinstance((await append.settles()).error, StoreOfflineError)


async def test_append_follower_progress(node: Node, nursery: trio.Nursery) -> None:
    """Each of two followers moves; the append is complete with the slower one."""
    topic = await node.create_topic(replicas=(0, 1, 2))
    append = Waiting(nursery, lambda: node.append(topic, count=3))
    await append.still_waits()
    node.flush()
    for replica, offset in ((1, 3), (2, 2)):
        await node.fetch(topic, offset, replica_id=replica, max_wait_ms=0, isolation=Isolation.LOG_END)
        await append.still_waits()
    await node.fetch(topic, 3, replica_id=2, max_wait_ms=0, isolation=Isolation.LOG_END)
    assert (await append.settles()).error is None


async def test_append_log_start_offset(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    """Retention that overtakes a waiting append changes nothing for it."""
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    node.log(topic).log_start_offset = 1
    node.manager.on_flushed([node.log(topic)])
    await append.still_waits()
    node.flush()
    assert (await append.settles()).error is None


async def test_append_shutdown(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    append = Waiting(nursery, lambda: node.append(topic))
    await append.still_waits()
    node.manager.close()
    assert isinstance((await append.settles()).error, NotLeaderError)
    assert_nobody_is_left(node)


async def test_append_followers_lost(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    """A node that stops waits for its disk, and not for replicas that fetch nothing from it any more."""
    replicated = await node.create_topic("replicated", replicas=(0, 1))
    alone = Waiting(nursery, lambda: node.append(topic))
    shared = Waiting(nursery, lambda: node.append(replicated))
    await shared.still_waits()
    node.manager.lose_followers()
    await shared.still_waits()
    node.flush(node.log(replicated))
    error = (await shared.settles()).error
    assert isinstance(error, NotLeaderError)
    assert "stopped before offset 1" in str(error)
    await alone.still_waits()
    node.flush(node.log(topic))
    assert (await alone.settles()).error is None
    assert_nobody_is_left(node)


async def test_append_of_a_coordinator_on_a_full_disk(
    node: Node, nursery: trio.Nursery, topic: TopicImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for room, as its state follows the log; a node that stops does not."""
    append = Waiting(nursery, lambda: node.append(topic, origin=AppendOrigin.COORDINATOR))
    await append.still_waits()
    monkeypatch.setattr(type(node.log(topic)), "is_stalled", True)
    node.manager.on_stalled([node.log(topic)])
    await append.still_waits()
    node.manager.lose_followers()
    assert isinstance((await append.settles()).error, DiskFullError)


async def test_append_deadline(node: Node, nursery: trio.Nursery, mock_clock: MockClock) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    append = Waiting(nursery, lambda: node.append(topic, timeout_ms=500))
    await append.still_waits()
    node.flush()
    await append.still_waits()
    mock_clock.jump(0.501)
    assert isinstance((await append.settles()).error, RequestTimedOutError)
    assert_nobody_is_left(node)


# Fetch ----------------------------------------------------------------------------------------------------------------


async def test_fetch_flushed(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await node.append(topic, acks=0)
    await fetch.still_waits()
    node.flush()
    result = await fetch.settles()
    assert result.records.to_bytes() == bytes(node.log(topic).batches[0][2])
    assert result.high_watermark == 1
    assert_nobody_is_left(node)


async def test_fetch_high_watermark(node: Node, nursery: trio.Nursery) -> None:
    """A consumer sees what all in-sync replicas have; a follower what the leader has flushed."""
    topic = await node.create_topic(replicas=(0, 1))
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    follower = Waiting(nursery, lambda: node.fetch(topic, replica_id=1, isolation=Isolation.LOG_END))
    await node.append_flushed(topic)
    assert (await follower.settles()).size_bytes > 0
    await fetch.still_waits()
    await node.fetch(topic, 1, replica_id=1, max_wait_ms=0, isolation=Isolation.LOG_END)
    assert (await fetch.settles()).size_bytes > 0


async def test_fetch_last_stable_offset(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    node.log(topic).first_unstable_offset = 0
    fetch = Waiting(nursery, lambda: node.fetch(topic, isolation=Isolation.TXN_COMMITTED))
    await node.append_flushed(topic)
    await fetch.still_waits()
    node.log(topic).first_unstable_offset = None
    node.flush()
    result = await fetch.settles()
    assert result.size_bytes > 0
    assert result.last_stable_offset == 1
    assert result.aborted_transactions == []


async def test_fetch_leader_epoch(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic, request={"current_leader_epoch": 0}))
    await fetch.still_waits()
    await node.change(topic, leader_epoch=1)
    assert isinstance((await fetch.settles()).error, FencedLeaderEpochError)


async def test_fetch_role(node: Node, nursery: trio.Nursery) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await fetch.still_waits()
    await node.change(topic, leader=1, leader_epoch=1)
    assert isinstance((await fetch.settles()).error, NotLeaderError)
    assert_nobody_is_left(node)


async def test_fetch_in_sync_set(node: Node, nursery: trio.Nursery) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await node.append_flushed(topic)
    await fetch.still_waits()
    await node.change(topic, isr=(0,))
    assert (await fetch.settles()).size_bytes > 0


async def test_fetch_deletion(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await fetch.still_waits()
    await node.delete_topic(topic)
    assert isinstance((await fetch.settles()).error, UnknownTopicIdError)
    assert_nobody_is_left(node)


async def test_fetch_store_offline(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await fetch.still_waits()
    node.fail(node.log(topic))
    assert isinstance((await fetch.settles()).error, StoreOfflineError)


async def test_fetch_follower_progress(node: Node, nursery: trio.Nursery) -> None:
    """The last follower's progress lets both a consumer and the other follower (KIP-1166) see the new watermark."""
    topic = await node.create_topic(replicas=(0, 1, 2))
    await node.append_flushed(topic)
    consumer = Waiting(nursery, lambda: node.fetch(topic))
    told = {"known_high_watermark": 0}
    follower = Waiting(nursery, lambda: node.fetch(topic, 1, replica_id=1, isolation=Isolation.LOG_END, request=told))
    await consumer.still_waits()
    await follower.still_waits()
    await node.fetch(topic, 1, replica_id=2, max_wait_ms=0, isolation=Isolation.LOG_END)
    assert (await consumer.settles()).size_bytes > 0
    assert (await follower.settles()).high_watermark == 1


async def test_fetch_log_start_offset(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    await node.append_flushed(topic, count=2)
    log = node.log(topic)
    fetch = Waiting(nursery, lambda: node.fetch(topic, 0, min_bytes=10_000))
    await fetch.still_waits()
    log.log_start_offset = 2
    node.manager.on_flushed([log])
    assert isinstance((await fetch.settles()).error, OffsetOutOfRangeError)


async def test_fetch_shutdown(node: Node, nursery: trio.Nursery, topic: TopicImage) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic))
    await fetch.still_waits()
    node.manager.close()
    result = await fetch.settles()
    assert result.error is None
    assert result.size_bytes == 0
    assert_nobody_is_left(node)


async def test_fetch_deadline(node: Node, nursery: trio.Nursery, topic: TopicImage, mock_clock: MockClock) -> None:
    fetch = Waiting(nursery, lambda: node.fetch(topic, max_wait_ms=100))
    await fetch.still_waits()
    mock_clock.jump(0.101)
    result = await fetch.settles()
    assert (result.error, result.size_bytes, result.high_watermark) == (None, 0, 0)
    assert_nobody_is_left(node)
