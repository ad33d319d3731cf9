"""The replica manager by itself: what one append or fetch over several partitions promises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints, wait_all_tasks_blocked

from ottla.kproto.records import Record, build_batch, iter_batches
from ottla.metadata.image import INTERNAL_TOPICS, PartitionState, TopicImage
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.errors import (
    DeletionNotAllowedError,
    InternalTopicError,
    NotEnoughReplicasError,
    NotLeaderError,
    RequestTimedOutError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
)
from ottla.replica.fetch import FetchParams, FetchPartition, FetchResult
from ottla.replica.manager import MIN_FETCH_BYTES
from ottla.replica.partition import Isolation, Role
from ottla.runtime import time_slice
from ottla.runtime.stages import finish
from ottla.runtime.time_slice import CHUNK_ELEMENTS
from ottla.server.apis.pending import begin
from ottla.storage.config import LogConfig
from ottla.storage.errors import OffsetOutOfRangeError, StoreOfflineError
from ottla.storage.log.partition_log import AppendOrigin

Node = Any
MakeBatch = Callable[..., Records]


def key(topic: TopicImage, partition: int = 0) -> TopicIdPartition:
    return TopicIdPartition(topic.topic_id, partition)


def offsets(result: FetchResult) -> list[int]:
    assert result.records is not None
    return [header.base_offset for _, header in iter_batches(result.records.to_bytes())]


@pytest.fixture
async def topic(node: Node) -> TopicImage:
    created: TopicImage = await node.create_topic(partitions=3)
    return created


# Append ---------------------------------------------------------------------------------------------------------------


async def test_each_partition_has_its_own_result(node: Node, topic: TopicImage, make_batch: MakeBatch) -> None:
    node.log(topic, 1).offline = True
    unknown = TopicIdPartition(uuid4(), 0)
    asked = {
        key(topic, 0): make_batch(2),
        key(topic, 1): make_batch(),
        key(topic, 9): make_batch(),
        unknown: make_batch(),
    }
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flush_when_blocked, node)
        results = await node.manager.append(asked, required_acks=1, timeout_ms=1000)
    assert list(results) == list(asked)
    fine, offline, missing, nowhere = results.values()
    assert (fine.error, fine.base_offset, fine.last_offset, fine.log_start_offset) == (None, 0, 1, 0)
    assert isinstance(offline.error, StoreOfflineError)
    assert isinstance(missing.error, UnknownTopicOrPartitionError)
    assert isinstance(nowhere.error, UnknownTopicIdError)
    assert node.manager.counters.appends == 1
    assert node.manager.counters.append_errors == 3


async def flush_when_blocked(node: Node) -> None:
    await wait_all_tasks_blocked()
    node.flush()


async def test_acks_0_waits_for_nothing(node: Node, topic: TopicImage) -> None:
    result = await node.append(topic, acks=0)
    assert (result.error, result.base_offset) == (None, 0)
    assert node.log(topic).flushed_end_offset == 0


async def test_records_are_in_the_log_before_any_other_task_runs(node: Node, topic: TopicImage) -> None:
    """So appends that are begun in an order are stored in that order."""
    with assert_no_checkpoints():
        bases = [(await node.append(topic, acks=0, count=count)).base_offset for count in (1, 2, 3)]
    assert bases == [0, 1, 3]


async def test_an_append_is_begun_without_a_wait(node: Node, topic: TopicImage, make_batch: MakeBatch) -> None:
    operation: Any = begin(node.manager.begin_append([(key(topic), make_batch())], required_acks=1, timeout_ms=1000))
    assert node.log(topic).log_end_offset == 1
    assert not operation.is_complete
    node.flush()
    assert operation.is_complete
    with assert_no_checkpoints():
        results = await node.manager.finish_append(operation)
    assert results[0].base_offset == 0


async def test_records_are_looked_at_in_two_threads_at_most(
    node: Node, topic: TopicImage, make_batch: MakeBatch, nursery: trio.Nursery
) -> None:
    log = node.log(topic)
    log.checks_take_long = True
    for _ in range(4):
        nursery.start_soon(partial(node.append, topic, acks=0))
    await wait_all_tasks_blocked()
    assert (log.checking, log.log_end_offset) == (2, 0)
    assert (await node.append(topic, 1, acks=0)).error is None  # who needs none is not held up
    log.checked.set()
    await wait_all_tasks_blocked()
    assert (log.checking, log.log_end_offset) == (0, 4)


async def test_a_batch_that_was_looked_at_too_late_is_refused(
    node: Node, topic: TopicImage, nursery: trio.Nursery
) -> None:
    """The node stops leading while a worker thread checks the records."""
    log = node.log(topic)
    log.checks_take_long = True
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await node.append(topic, acks=0))

    nursery.start_soon(append)
    await wait_all_tasks_blocked()
    node.manager.get_partition(topic.topic_id, 0).go_offline()
    log.checked.set()
    await wait_all_tasks_blocked()
    assert isinstance(results[0].error, StoreOfflineError)
    assert log.batches == []


async def test_a_store_without_room_holds_the_append_back(node: Node, topic: TopicImage, make_batch: MakeBatch) -> None:
    begun: list[bool] = []
    node.log(topic).room = trio.Event()
    results: list[AppendResult] = []

    async def append() -> None:
        asked = [(key(topic), make_batch())]
        operation = await finish(node.manager.begin_append(asked, required_acks=1, timeout_ms=1000))
        begun.append(True)
        results.append((await node.manager.finish_append(operation))[0])

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await wait_all_tasks_blocked()
        assert begun == []
        assert node.log(topic).batches == []
        node.log(topic).room.set()
        await wait_all_tasks_blocked()
        assert begun == [True]
        node.flush()
    assert results[0].base_offset == 0


async def test_room_that_does_not_come_in_time(node: Node, topic: TopicImage, autojump_clock: MockClock) -> None:
    node.log(topic).room = trio.Event()
    result = await node.append(topic, timeout_ms=100)
    assert isinstance(result.error, RequestTimedOutError)
    assert node.log(topic).batches == []


async def test_nothing_is_appended_for_who_has_left_while_there_was_no_room(
    node: Node, topic: TopicImage, make_batch: MakeBatch
) -> None:
    node.log(topic).room = trio.Event()
    there = [True]
    results: list[AppendResult] = []

    async def append() -> None:
        asked = [(key(topic), make_batch())]
        appending = node.manager.begin_append(asked, required_acks=1, timeout_ms=1000, is_awaited=lambda: there[0])
        results.extend((await finish(appending)).results)

    for there[0] in (False, True):
        node.log(topic).room = trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(append)
            await wait_all_tasks_blocked()
            node.log(topic).room.set()
        assert len(node.log(topic).batches) == there[0]
    assert [type(result.error) for result in results] == [RequestTimedOutError, type(None)]


async def test_what_comes_after_the_deadline_in_a_request_is_not_appended(
    node: Node, make_batch: MakeBatch, autojump_clock: MockClock
) -> None:
    """The producer is told of the timeout, and sends everything again."""
    topic = await node.create_topic("two", partitions=2)
    node.log(topic, 0).room = trio.Event()
    asked = [(key(topic, index), make_batch()) for index in range(2)]
    operation = await finish(node.manager.begin_append(asked, required_acks=1, timeout_ms=100))
    assert [type(result.error) for result in operation.results] == [RequestTimedOutError] * 2
    assert node.log(topic, 1).batches == []


@pytest.mark.parametrize("acks", [1, -1])
async def test_the_leaders_own_write_has_no_time_limit(
    node: Node, topic: TopicImage, acks: int, autojump_clock: MockClock
) -> None:
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await node.append(topic, acks=acks, timeout_ms=0))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(append)
        await trio.sleep(60)
        assert results == []
        node.flush()
    assert (results[0].error, results[0].base_offset) == (None, 0)


async def test_with_a_time_limit_of_nothing_no_replica_is_waited_for(
    node: Node, make_batch: MakeBatch, nursery: trio.Nursery
) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await node.append(topic, acks=-1, timeout_ms=0))

    nursery.start_soon(append)
    await wait_all_tasks_blocked()
    assert results == []
    node.flush()
    await wait_all_tasks_blocked()
    assert isinstance(results[0].error, RequestTimedOutError)


async def test_a_store_that_fails_while_it_has_no_room(node: Node, topic: TopicImage, nursery: trio.Nursery) -> None:
    log = node.log(topic)
    log.room = trio.Event()
    results: list[AppendResult] = []

    async def append() -> None:
        results.append(await node.append(topic))

    nursery.start_soon(append)
    await wait_all_tasks_blocked()
    node.fail(log)
    await wait_all_tasks_blocked()
    assert isinstance(results[0].error, StoreOfflineError)


async def test_too_few_in_sync_replicas_refuse_acks_all_only(node: Node) -> None:
    node.min_insync_replicas = 2
    topic = await node.create_topic(replicas=(0, 1, 2))
    await node.change(topic, isr=(0,))
    assert isinstance((await node.append(topic, acks=-1)).error, NotEnoughReplicasError)
    assert (await node.append(topic, acks=0)).error is None


async def test_a_timeout_of_one_partition_leaves_the_others_result(
    node: Node, make_batch: MakeBatch, autojump_clock: MockClock
) -> None:
    replicated, alone = await node.create_topic("replicated", replicas=(0, 1)), await node.create_topic("alone")
    asked = {key(each): make_batch() for each in (replicated, alone)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(flush_when_blocked, node)
        results = await node.manager.append(asked, required_acks=-1, timeout_ms=100)
    assert isinstance(results[key(replicated)].error, RequestTimedOutError)
    assert (results[key(alone)].error, results[key(alone)].base_offset) == (None, 0)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
async def test_clients_do_not_write_to_internal_topics(node: Node, make_batch: MakeBatch, name: str) -> None:
    topic = await node.create_topic(name)

    async def append(**options: Any) -> Exception | None:
        asked = {key(topic): make_batch()}
        results = await node.manager.append(asked, required_acks=0, timeout_ms=0, **options)
        error: Exception | None = results[key(topic)].error
        return error

    assert isinstance(await append(), InternalTopicError)
    assert await append(origin=AppendOrigin.COORDINATOR) is None
    assert await append(internal_topics_allowed=True) is None


# Fetch ----------------------------------------------------------------------------------------------------------------


async def test_the_first_partition_with_data_yields_a_batch_whatever_the_limits(node: Node, topic: TopicImage) -> None:
    for partition in (1, 2):
        await node.append_flushed(topic, partition)
        await node.append_flushed(topic, partition)
    asked = [FetchPartition(topic.topic_id, index, 0, max_bytes=1) for index in (0, 1, 2)]
    results = await node.manager.fetch(FetchParams(max_bytes=1), asked)
    assert [result.size_bytes > 0 for result in results] == [False, True, False]
    assert offsets(results[1]) == [0]


async def test_max_bytes_bounds_what_follows(node: Node, topic: TopicImage) -> None:
    for partition in (0, 1, 2):
        await node.append_flushed(topic, partition)
    size_bytes = node.log(topic).size_bytes
    asked = [FetchPartition(topic.topic_id, index, 0) for index in (0, 1, 2)]
    results = await node.manager.fetch(FetchParams(max_bytes=2 * size_bytes), asked)
    assert [result.size_bytes for result in results] == [size_bytes, size_bytes, 0]


async def test_only_what_was_signalled_is_looked_at_again(node: Node, topic: TopicImage, nursery: trio.Nursery) -> None:
    for partition in (0, 1, 2):
        await node.append_flushed(topic, partition)
    asked = [FetchPartition(topic.topic_id, index, 0) for index in (0, 1, 2)]
    results: list[FetchResult] = []

    async def fetch() -> None:
        min_bytes = 5 * node.log(topic).size_bytes
        results.extend(await node.manager.fetch(FetchParams(max_wait_ms=10_000, min_bytes=min_bytes), asked))

    nursery.start_soon(fetch)
    await wait_all_tasks_blocked()
    assert [len(node.log(topic, index).plans) for index in (0, 1, 2)] == [1, 1, 1]
    await node.append_flushed(topic, 1)
    await wait_all_tasks_blocked()
    assert [len(node.log(topic, index).plans) for index in (0, 1, 2)] == [1, 2, 1]
    # Nothing that it has planned holds memory while it waits; at the end it plans again.
    held = [plan for index in (0, 1, 2) for plan in node.log(topic, index).plans if plan.records.size_bytes]
    assert held == []
    assert node.budget.used_bytes == 0
    await node.append_flushed(topic, 1)
    await wait_all_tasks_blocked()
    assert [len(node.log(topic, index).plans) for index in (0, 1, 2)] == [2, 3, 2]
    assert [offsets(result) for result in results] == [[0], [0, 1, 2], [0]]
    assert node.budget.used_bytes == sum(result.size_bytes for result in results)


async def test_what_is_planned_before_the_deadline_is_read_at_it(node: Node, topic: TopicImage) -> None:
    await node.append_flushed(topic)
    result = await node.fetch(topic, min_bytes=10_000, max_wait_ms=10)
    assert offsets(result) == [0]
    assert result.size_bytes == node.budget.used_bytes > 0
    result.release()
    assert node.budget.used_bytes == 0


async def test_fetches_that_are_woken_together_share_what_the_budget_leaves(
    node: Node, topic: TopicImage, nursery: trio.Nursery
) -> None:
    value = bytes(100_000)
    results: list[FetchResult] = []

    async def fetch() -> None:
        results.append(await node.fetch(topic, min_bytes=500_000, max_wait_ms=1_000_000))

    for _ in range(10):
        nursery.start_soon(fetch)
    await wait_all_tasks_blocked()
    for _ in range(6):
        await node.manager.append({key(topic): batch_of(value)}, required_acks=0, timeout_ms=0)
    node.flush()
    await wait_all_tasks_blocked()
    assert len(results) == 10
    assert node.budget.used_bytes == sum(result.size_bytes for result in results)
    assert node.budget.used_bytes < node.budget.limit_bytes + 10 * 120_000  # a first batch has everybody
    for result in results:
        result.release()
    assert node.budget.used_bytes == 0


async def test_an_error_is_told_at_once_with_what_else_there_is(node: Node, topic: TopicImage) -> None:
    await node.append_flushed(topic, 0)
    asked = [
        FetchPartition(topic.topic_id, 0, 0),
        FetchPartition(topic.topic_id, 1, 7),
        FetchPartition(topic.topic_id, 2, 0, current_leader_epoch=3),
    ]
    with trio.fail_after(0):
        results = await node.manager.fetch(FetchParams(max_wait_ms=10_000, min_bytes=1_000_000), asked)
    assert offsets(results[0]) == [0]
    assert isinstance(results[1].error, OffsetOutOfRangeError)
    assert isinstance(results[2].error, UnknownLeaderEpochError)
    assert (results[1].high_watermark, results[1].last_stable_offset, results[1].log_start_offset) == (-1, -1, -1)


@pytest.mark.parametrize("asked", [{"fetch_offset": 7}, {"fetch_offset": 7, "last_fetched_epoch": 0}])
async def test_who_is_no_replica_is_told_nothing_about_the_log(node: Node, topic: TopicImage, asked: Any) -> None:
    await node.append_flushed(topic, 0)
    (result,) = await node.manager.fetch(
        FetchParams(max_wait_ms=0, replica_id=5, isolation=Isolation.LOG_END),
        [FetchPartition(topic.topic_id, 0, **asked)],
    )
    assert isinstance(result.error, NotLeaderError)
    assert result.diverging_epoch is None


async def test_what_changes_while_many_partitions_are_looked_at(
    node: Node, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first look at many partitions lets others run; what was looked at before they ran is not missed."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", -1)  # each slice is over at once
    count = 2 * CHUNK_ELEMENTS + 1
    topic = await node.create_topic("many", partitions=count)
    asked = [FetchPartition(topic.topic_id, index, 0) for index in range(count)]
    results: list[FetchResult] = []

    async def fetch() -> None:
        results.extend(await node.manager.fetch(FetchParams(max_wait_ms=3_600_000, min_bytes=1), asked))

    nursery.start_soon(fetch)
    await trio.lowlevel.checkpoint()
    assert node.manager.fetch_purgatory.watching == 0  # still looking
    await node.append_flushed(topic, 0)
    await wait_all_tasks_blocked()
    assert [index for index, result in enumerate(results) if result.size_bytes] == [0]


async def test_who_is_asked_for_first_has_what_may_be_answered(node: Node, nursery: trio.Nursery) -> None:
    """In whatever order the partitions come to have records while a fetch waits."""
    topic = await node.create_topic("many", partitions=CHUNK_ELEMENTS)
    asked = [FetchPartition(topic.topic_id, index, 0) for index in range(CHUNK_ELEMENTS)]
    results: list[FetchResult] = []

    async def fetch() -> None:
        results.extend(await node.manager.fetch(FetchParams(max_wait_ms=3_600_000, min_bytes=1, max_bytes=1), asked))

    nursery.start_soon(fetch)
    await wait_all_tasks_blocked()
    appended = {key(topic, index): batch_of(b"value") for index in reversed(range(CHUNK_ELEMENTS))}
    await node.manager.append(appended, required_acks=0, timeout_ms=0)
    node.flush()
    await wait_all_tasks_blocked()
    assert [index for index, result in enumerate(results) if result.size_bytes] == [0]


async def test_no_partitions_are_answered_at_once(node: Node) -> None:
    with trio.fail_after(0):
        assert await node.manager.fetch(FetchParams(max_wait_ms=10_000, min_bytes=1), []) == []


async def test_a_follower_of_a_consumer_with_racks(node: Node) -> None:
    """KIP-392: a follower serves consumers that understand it, up to the watermark that it knows."""
    topic = await node.create_topic(replicas=(0, 1), leader=1)
    assert isinstance((await node.fetch(topic)).error, NotLeaderError)
    result = await node.fetch(topic, max_wait_ms=0, may_read_from_follower=True)
    assert (result.error, result.high_watermark) == (None, 0)


async def test_memory_in_responses_makes_others_smaller_and_is_given_back(node: Node, topic: TopicImage) -> None:
    value = bytes(40_000)
    for _ in range(3):
        asked = {key(topic): batch_of(value)}
        await node.manager.append(asked, required_acks=0, timeout_ms=0)
    node.flush()
    first = await node.fetch(topic)
    assert node.budget.used_bytes == first.size_bytes > 120_000
    node.budget.charge(node.budget.limit_bytes)
    small = await node.fetch(topic)
    assert 40_000 < small.size_bytes <= MIN_FETCH_BYTES
    node.budget.refund(node.budget.limit_bytes)
    for result in (first, small):
        result.release()
        result.release()
        assert result.records is None
    assert node.budget.used_bytes == 0


def batch_of(value: bytes) -> Records:
    return Records(memoryview(bytearray(build_batch([Record(value=value)]))))


async def test_a_cancelled_fetch_gives_everything_back(node: Node, topic: TopicImage) -> None:
    await node.append_flushed(topic)
    async with trio.open_nursery() as nursery:

        async def fetch() -> None:
            await node.fetch(topic, min_bytes=10_000)

        nursery.start_soon(fetch)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    (plan,) = node.log(topic).plans
    assert plan.records.size_bytes == 0
    assert node.budget.used_bytes == 0
    assert node.manager.fetch_purgatory.watched_keys == 0


async def test_aborted_transactions_of_what_is_read(node: Node, topic: TopicImage) -> None:
    for _ in range(3):
        await node.append_flushed(topic)
    log = node.log(topic)
    log.aborted = [SimpleNamespace(producer_id=7, first_offset=0), SimpleNamespace(producer_id=8, first_offset=2)]
    size_bytes = log.size_bytes // 3
    part = await node.fetch(topic, max_bytes=2 * size_bytes, isolation=Isolation.TXN_COMMITTED)
    assert part.aborted_transactions == [(7, 0)]
    whole = await node.fetch(topic, isolation=Isolation.TXN_COMMITTED)
    assert whole.aborted_transactions == [(7, 0), (8, 2)]
    assert (await node.fetch(topic)).aborted_transactions is None


# Following the cluster ------------------------------------------------------------------------------------------------


async def test_what_this_node_holds(node: Node) -> None:
    ours = await node.create_topic("ours")
    theirs = await node.create_topic("theirs", replicas=(1,), leader=1)
    assert node.partition(ours).is_leader
    with pytest.raises(NotLeaderError):
        node.partition(theirs)
    with pytest.raises(UnknownTopicOrPartitionError):
        node.partition(ours, 1)
    assert [partition.topic for partition in node.manager.partitions()] == ["ours"]


async def test_a_deleted_topic_takes_its_logs_along(node: Node, topic: TopicImage) -> None:
    await node.delete_topic(topic)
    with pytest.raises(UnknownTopicIdError):
        node.partition(topic)
    assert node.log_manager.deleted == [(topic.topic_id, index) for index in range(3)]
    again = await node.create_topic("topic")
    assert again.topic_id != topic.topic_id
    assert node.partition(again).log.log_end_offset == 0


async def test_a_replica_that_is_moved_away_is_given_up(node: Node) -> None:
    topic = await node.create_topic(replicas=(0, 1))
    partition = node.partition(topic)
    await node.change(topic, replicas=(1,), isr=(1,), leader=1, leader_epoch=1)
    with pytest.raises(NotLeaderError):
        node.partition(topic)
    with pytest.raises(NotLeaderError):
        partition.require_leader()
    assert node.log_manager.deleted == [(topic.topic_id, 0)]


async def test_a_log_that_cannot_be_opened_is_offline(node: Node) -> None:
    node.log_manager.fail_to_open = True
    topic = await node.create_topic()
    with pytest.raises(StoreOfflineError):
        node.partition(topic)
    assert node.manager.offline_partitions == 1
    await node.delete_topic(topic)
    with pytest.raises(UnknownTopicIdError):
        node.partition(topic)


async def test_a_log_that_cannot_be_opened_is_told_of_once(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    """It may be tried each second, until there is room or there are descriptors."""
    node.log_manager.fail_to_open = True
    topic = await node.create_topic()
    for leader_epoch in (1, 2):
        await node.change(topic, leader_epoch=leader_epoch)
    assert caplog.text.count("could not be opened") == 1
    node.log_manager.fail_to_open = False
    await node.change(topic, leader_epoch=3)
    assert node.partition(topic).is_leader


async def test_others_go_on_where_a_leader_cannot_open_its_log(node: Node) -> None:
    asked: list[PartitionState] = []
    done = trio.Event()

    async def change_partitions(updates: Mapping[Any, Any]) -> Mapping[Any, Any]:
        asked.extend(update(created.partitions[0]) for update in updates.values())
        done.set()
        return {}

    await node.live(0, 1, 2)
    node.log_manager.fail_to_open = True
    created = await node.create_topic(replicas=(0, 1, 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.manager.in_sync_sets.run, change_partitions)
        with trio.fail_after(5):
            await done.wait()
        nursery.cancel_scope.cancel()
    assert [(state.leader, state.isr) for state in asked] == [(1, (1, 2))]


async def test_a_log_that_cannot_be_deleted_is_gone_all_the_same(node: Node, topic: TopicImage) -> None:
    node.log_manager.fail_to_delete = True
    await node.delete_topic(topic)
    with pytest.raises(UnknownTopicIdError):
        node.partition(topic)
    assert list(node.manager.partitions()) == []


async def test_a_store_that_fails_concerns_its_own_partitions_only(node: Node, topic: TopicImage) -> None:
    node.fail(node.log(topic, 0), node.log(topic, 1))
    assert isinstance((await node.append(topic, 0)).error, StoreOfflineError)
    assert isinstance((await node.fetch(topic, partition=1)).error, StoreOfflineError)
    assert (await node.append(topic, 2, acks=0)).error is None
    assert sum(partition.role is Role.OFFLINE for partition in node.manager.partitions()) == 2


async def test_changed_settings_reach_logs_and_partitions(node: Node, topic: TopicImage) -> None:
    node.log_config = LogConfig(max_message_bytes=77)
    node.min_insync_replicas = 2
    await node.reconfigure(topic)
    assert {node.log(topic, index).config.max_message_bytes for index in range(3)} == {77}
    assert node.partition(topic).min_insync_replicas == 2


# Deleting records -----------------------------------------------------------------------------------------------------


async def delete(node: Node, topic: TopicImage, offset: int, **options: Any) -> tuple[Exception | None, int]:
    values = {"timeout_ms": 1000} | options
    result = (await node.manager.delete_records({key(topic): offset}, **values))[key(topic)]
    return result.error, result.low_watermark


async def test_records_are_deleted_up_to_an_offset_or_the_watermark(node: Node, topic: TopicImage) -> None:
    await node.append_flushed(topic, count=5)
    assert await delete(node, topic, 2) == (None, 2)
    assert await delete(node, topic, 1) == (None, 2)  # a log start does not go back
    assert await delete(node, topic, -1) == (None, 5)
    for offset in (6, -2):
        error, low_watermark = await delete(node, topic, offset)
        assert isinstance(error, OffsetOutOfRangeError)
        assert low_watermark == -1


async def test_records_that_may_not_be_deleted(node: Node) -> None:
    internal = await node.create_topic("__consumer_offsets")
    assert isinstance((await delete(node, internal, 0))[0], InternalTopicError)
    node.log_config = LogConfig(delete=False, compact=True)
    compacted = await node.create_topic("compacted")
    assert isinstance((await delete(node, compacted, 0))[0], DeletionNotAllowedError)


async def test_deletion_waits_for_the_followers(node: Node, nursery: trio.Nursery) -> None:
    await node.live(0, 1)
    topic = await node.create_topic(replicas=(0, 1))
    await node.append_flushed(topic, count=5)
    follower = {"replica_id": 1, "max_wait_ms": 0, "isolation": Isolation.LOG_END}
    await node.fetch(topic, 5, request={"log_start_offset": 0}, **follower)
    results: list[tuple[Exception | None, int]] = []

    async def run() -> None:
        results.append(await delete(node, topic, 3))

    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    assert results == []
    await node.fetch(topic, 5, request={"log_start_offset": 3}, **follower)
    await wait_all_tasks_blocked()
    assert results == [(None, 3)]


async def test_deletion_that_takes_too_long(node: Node, autojump_clock: MockClock) -> None:
    await node.live(0, 1)
    topic = await node.create_topic(replicas=(0, 1))
    await node.append_flushed(topic, count=5)
    await node.change(topic, isr=(0,))
    error, _ = await delete(node, topic, 3, timeout_ms=100)
    assert isinstance(error, RequestTimedOutError)
    assert node.log(topic).log_start_offset == 3


async def test_errors_are_kept_without_the_frames_that_they_were_raised_in(node: Node, topic: TopicImage) -> None:
    asked = [FetchPartition(topic.topic_id, 77, 0), FetchPartition(topic.topic_id, 1, 7)]
    for result in await node.manager.fetch(FetchParams(), asked):
        assert result.error is not None
        assert (result.error.__traceback__, result.error.__context__) == (None, None)
    appended = await node.manager.append(
        {TopicIdPartition(topic.topic_id, 77): batch_of(b"")}, required_acks=1, timeout_ms=0
    )
    for failed in appended.values():
        assert failed.error is not None
        assert (failed.error.__traceback__, failed.error.__context__) == (None, None)


async def test_what_comes_before_a_fetch_has_its_task_ends_its_wait(node: Node, topic: TopicImage) -> None:
    """It is begun where it was received: until its own task waits, no signal reaches it."""
    params = FetchParams(max_wait_ms=60_000, min_bytes=1)
    rest: Any = begin(node.manager.begin_fetch(params, [FetchPartition(topic.topic_id, 0, 0)]))
    await node.append_flushed(topic)
    with trio.fail_after(5):
        (result,) = await rest.dispatch()
    assert result.high_watermark == 1
    assert result.records is not None
    result.release()
