"""What is looked at without an occasion, so that nobody waits for one that never comes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import uuid4

import pytest
import trio

from ottla.metadata.image import PartitionState
from ottla.metastore.errors import StoreUnavailableError
from ottla.replica.delayed_operations import DelayedOperations
from ottla.replica.in_sync_sets import InSyncSets
from ottla.replica.partition import Partition
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig
from ottla.storage.turn import Turn
from tests.replica.conftest import FakeLog

MAX_LAG_MS = 1_000


class Signalled(DelayedOperations):
    """Tells the test of the first change."""

    def __init__(self, changed: trio.Event) -> None:
        super().__init__(Turn())
        self._changed = changed

    def signal(self, partition: Partition) -> None:
        self._changed.set()


async def test_who_was_waited_for_and_died_before_it_joined_holds_up_nobody_for_long(autojump_clock: object) -> None:
    clock = ManualClock()
    log: Any = FakeLog(uuid4(), "t", 0, LogConfig())
    brokers = {1: 7}
    partition = Partition("t", log.topic_id, 0, log, node_id=0, brokers=brokers, max_lag_ms=MAX_LAG_MS)
    partition.apply(PartitionState(leader=0, replicas=(0, 1), isr=(0,)), clock.time_ms())
    partition.record_follower_fetch(1, 0, 0, -1, clock.time_ms(), broker_epoch=7)
    log.flushed_end_offset = 10
    assert not partition.advance_high_watermark(clock.time_ms())
    del brokers[1]

    moved = trio.Event()

    async def change_partitions(asked: Mapping[Any, Any]) -> Mapping[Any, Any]:
        pytest.fail("nobody is to join or to leave")

    sets = InSyncSets([partition], clock, Signalled(moved), node_id=0, max_lag_ms=MAX_LAG_MS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sets.run, change_partitions)
        with trio.fail_after(MAX_LAG_MS / 1000):
            await moved.wait()
        nursery.cancel_scope.cancel()
    assert log.high_watermark == 10


async def test_only_partitions_with_followers_are_looked_at(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: object
) -> None:
    """A node may have tens of thousands of others."""
    clock = ManualClock()
    looked_at: set[str] = set()
    partitions = []
    for topic, replicas in (("alone", (0,)), ("replicated", (0, 1))):
        log: Any = FakeLog(uuid4(), topic, 0, LogConfig())
        partition = Partition(topic, log.topic_id, 0, log, node_id=0, max_lag_ms=MAX_LAG_MS)
        partition.apply(PartitionState(leader=0, replicas=replicas, isr=(0,)), clock.time_ms())
        partitions.append(partition)

    def advance(partition: Partition, now_ms: int) -> bool:
        looked_at.add(partition.topic)
        return False

    monkeypatch.setattr(Partition, "advance_high_watermark", advance)

    async def change_partitions(asked: Mapping[Any, Any]) -> Mapping[Any, Any]:
        pytest.fail("nobody is to join or to leave")

    sets = InSyncSets(partitions, clock, Signalled(trio.Event()), node_id=0, max_lag_ms=MAX_LAG_MS)
    with trio.move_on_after(3 * MAX_LAG_MS / 1000):
        await sets.run(change_partitions)
    assert looked_at == {"replicated"}


async def test_a_change_that_may_have_been_made_is_not_given_up_by_what_was_known_before(
    autojump_clock: object,
) -> None:
    """The store has taken a follower in, its answer was lost, and the follower is fenced: only a compare-and-swap tells
    that the state without the follower is not the latest any more, and that it goes on counting."""
    clock = ManualClock()
    log: Any = FakeLog(uuid4(), "t", 0, LogConfig())
    brokers = {1: 7}
    state = PartitionState(leader=0, replicas=(0, 1), isr=(0,))
    partition = Partition("t", log.topic_id, 0, log, node_id=0, brokers=brokers, max_lag_ms=MAX_LAG_MS)
    partition.apply(state, clock.time_ms())
    partition.record_follower_fetch(1, 0, 0, -1, clock.time_ms(), broker_epoch=7)
    asked_for: list[PartitionState] = []
    done = trio.Event()

    async def change_partitions(asked: Mapping[Any, Any]) -> Mapping[Any, Any]:
        (update,) = asked.values()
        asked_for.append(update(state))
        if len(asked_for) == 1:
            brokers.clear()
            raise StoreUnavailableError("no answer in time")
        done.set()
        return {}

    sets = InSyncSets([partition], clock, Signalled(trio.Event()), node_id=0, max_lag_ms=MAX_LAG_MS)
    sets.review(partition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(sets.run, change_partitions)
        with trio.fail_after(10):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert [it.isr for it in asked_for] == [(0, 1), (0,)]
    assert asked_for[1].partition_epoch > state.partition_epoch
