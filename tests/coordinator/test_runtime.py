"""The coordinator runtime: replay, order, group commit, and what a failed append leaves behind."""

from collections.abc import AsyncGenerator, AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.coordinator.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    NotCoordinatorError,
)
from ottla.coordinator.partition import MAX_BATCH_BYTES
from ottla.coordinator.replay import CoordinatorRecord, Producer
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.kproto.records import BatchBuilder, EndTxnMarker
from ottla.storage.clock import ManualClock


class Journal:
    """A shard that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.is_loaded = False
        self.is_unloaded = False

    def replay(self, offset: int, producer: Producer | None, record: CoordinatorRecord) -> None:
        self.told.append((offset, producer, record))

    def replay_marker(self, marker: EndTxnMarker) -> None:
        self.told.append(marker)

    def loaded(self) -> None:
        self.is_loaded = True

    def unloaded(self) -> None:
        self.is_unloaded = True


def record(number: int) -> CoordinatorRecord:
    return CoordinatorRecord(b"key%d" % number, b"value%d" % number)


def new_runtime(log: Any, nursery: trio.Nursery) -> CoordinatorRuntime[Journal]:
    return CoordinatorRuntime(
        "topic", log=log, clock=ManualClock(), nursery=nursery, new_shard=lambda partition: Journal()
    )


@pytest.fixture
async def runtime(log: Any) -> AsyncIterator[CoordinatorRuntime[Journal]]:
    async with trio.open_nursery() as nursery:
        runtime = new_runtime(log, nursery)
        runtime.elect(0)
        await trio.testing.wait_all_tasks_blocked()
        yield runtime
        nursery.cancel_scope.cancel()


async def test_what_is_not_led_here_is_refused(runtime: CoordinatorRuntime[Journal]) -> None:
    with pytest.raises(NotCoordinatorError):
        runtime.shard(1)
    with pytest.raises(NotCoordinatorError):
        await runtime.write(1, [record(1)])


async def test_a_write_is_replayed_when_it_is_committed(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.write, 0, [record(1), record(2)])
        await trio.testing.wait_all_tasks_blocked()
        assert runtime.shard(0).told == []
        log.gate.set()
    assert runtime.shard(0).told == [(0, None, record(1)), (1, None, record(2))]


async def test_writes_that_wait_leave_as_one_batch_in_order(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.write, 0, [record(0)])
        await trio.testing.wait_all_tasks_blocked()
        for number in range(1, 100):
            nursery.start_soon(runtime.write, 0, [record(number)])
        await trio.testing.wait_all_tasks_blocked()
        log.gate.set()
    told = runtime.shard(0).told
    assert [offset for offset, _, _ in told] == list(range(100))
    assert {each for _, _, each in told} == {record(number) for number in range(100)}
    assert log.appends == 2


async def test_a_failed_append_changes_nothing_and_is_told_to_everyone_in_it(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    log.error = CoordinatorNotAvailableError("the disk is full")
    with pytest.raises(CoordinatorNotAvailableError):
        await runtime.write(0, [record(1)])
    assert runtime.shard(0).told == []
    log.error = None
    await runtime.write(0, [record(2)])
    assert runtime.shard(0).told == [(0, None, record(2))]


async def test_a_cancelled_caller_does_not_take_its_write_back(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.write, 0, [record(1)])
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    log.gate.set()
    await trio.testing.wait_all_tasks_blocked()
    assert runtime.shard(0).told == [(0, None, record(1))]


async def test_a_transaction_and_its_marker_keep_their_order(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    producer, marker = Producer(7, 1), EndTxnMarker(7, 1, 3, True)
    log.gate = trio.Event()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(runtime.write, 0, [record(0)])
        await trio.testing.wait_all_tasks_blocked()

        async def transaction() -> None:
            async with trio.open_nursery() as inner:

                async def write() -> None:
                    await runtime.write(0, [record(1)], producer=producer)

                inner.start_soon(write)
                await trio.testing.wait_all_tasks_blocked()
                inner.start_soon(runtime.write_marker, 0, marker)

        nursery.start_soon(transaction)
        await trio.testing.wait_all_tasks_blocked()
        log.gate.set()
    expected = [(0, None, record(0)), (1, producer, record(1)), marker]
    assert runtime.shard(0).told == expected
    async with trio.open_nursery() as nursery:
        again = new_runtime(log, nursery)
        again.elect(0)
        await trio.testing.wait_all_tasks_blocked()
        assert again.shard(0).told == expected
        nursery.cancel_scope.cancel()


async def test_a_restart_replays_what_was_committed(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    await runtime.write(0, [record(1), CoordinatorRecord(b"key1", None)])
    async with trio.open_nursery() as nursery:
        again = new_runtime(log, nursery)
        again.elect(0)
        with pytest.raises(CoordinatorLoadInProgressError):
            again.shard(0)
        await trio.testing.wait_all_tasks_blocked()
        assert again.shard(0).is_loaded
        assert again.shard(0).told == runtime.shard(0).told
        nursery.cancel_scope.cancel()


async def test_resigning_fails_what_waits(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    shard = runtime.shard(0)
    log.gate = trio.Event()
    failures: list[Exception] = []

    async def write(number: int) -> None:
        try:
            await runtime.write(0, [record(number)])
        except NotCoordinatorError as error:
            failures.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write, 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(write, 2)
        await trio.testing.wait_all_tasks_blocked()
        runtime.resign(0)
    assert len(failures) == 2
    assert shard.is_unloaded
    with pytest.raises(NotCoordinatorError):
        runtime.shard(0)


async def test_a_log_that_cannot_be_read_leaves_the_partition_unavailable(
    runtime: CoordinatorRuntime[Journal], log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await runtime.write(0, [record(1)])
    log.read_error = CoordinatorNotAvailableError("damaged")
    async with trio.open_nursery() as nursery:
        again = new_runtime(log, nursery)
        again.elect(0)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NotCoordinatorError):
            again.shard(0)
        nursery.cancel_scope.cancel()
    assert "cannot be loaded" in caplog.text


async def test_a_partition_that_is_asked_for_loads_before_others(log: Any) -> None:
    loaded: list[int] = []

    class Noting(Journal):
        def __init__(self, partition: int) -> None:
            super().__init__()
            self.partition = partition

        def loaded(self) -> None:
            loaded.append(self.partition)

    async with trio.open_nursery() as nursery:
        runtime = CoordinatorRuntime("topic", log=log, clock=ManualClock(), nursery=nursery, new_shard=Noting)
        for partition in range(5):
            runtime.elect(partition)
        runtime.resign(2)
        for partition in (1, 3):
            with pytest.raises(CoordinatorLoadInProgressError):
                runtime.shard(partition)
        await trio.testing.wait_all_tasks_blocked()
        assert loaded == [3, 1, 0, 4]
        runtime.elect(2)
        await trio.testing.wait_all_tasks_blocked()
        assert loaded == [3, 1, 0, 4, 2]
        nursery.cancel_scope.cancel()


async def test_writes_of_one_turn_leave_as_one_batch(runtime: CoordinatorRuntime[Journal], log: Any) -> None:
    writes = [runtime.begin_write(0, [record(number)]) for number in range(10)]
    for write in writes:
        await write.wait()
    assert log.appends == 1
    assert [told[2] for told in runtime.shard(0).told] == [record(number) for number in range(10)]


async def test_a_plan_sees_every_write_before_it_and_none_comes_between(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    seen: list[int] = []

    def plan() -> list[CoordinatorRecord]:
        seen.append(len(runtime.shard(0).told))
        return [record(9)]

    log.gate = trio.Event()
    first = runtime.begin_write(0, [record(0)])
    await trio.testing.wait_all_tasks_blocked()
    writes = [
        first,
        runtime.begin_write(0, [record(1)]),
        runtime.begin_planned_write(0, plan),
        runtime.begin_write(0, [record(2)]),
    ]
    log.gate.set()
    for write in writes:
        await write.wait()
    assert seen == [2]
    assert [told[2] for told in runtime.shard(0).told] == [record(0), record(1), record(9), record(2)]


async def test_a_plan_that_says_nothing_or_refuses_writes_nothing(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    def refuse() -> list[CoordinatorRecord]:
        raise CoordinatorNotAvailableError("no")

    nothing = runtime.begin_planned_write(0, list)
    refused = runtime.begin_planned_write(0, refuse)
    last = runtime.begin_write(0, [record(1)])
    await nothing.wait()
    with pytest.raises(CoordinatorNotAvailableError):
        await refused.wait()
    await last.wait()
    assert log.appends == 1
    assert [told[2] for told in runtime.shard(0).told] == [record(1)]


async def test_a_plan_that_no_batch_holds_goes_into_several_with_nothing_between(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    large = [CoordinatorRecord(b"key%d" % number, bytes(MAX_BATCH_BYTES // 3)) for number in range(8)]
    planned = runtime.begin_planned_write(0, lambda: large)
    last = runtime.begin_write(0, [record(1)])
    await planned.wait()
    await last.wait()
    told = runtime.shard(0).told
    assert [each for _, _, each in told] == [*large, record(1)]
    assert [offset for offset, _, _ in told] == list(range(9))
    assert len(log.batches[0]) == 5
    assert max(map(len, log.batches[0])) < MAX_BATCH_BYTES


async def test_a_plan_of_several_batches_ends_with_the_one_that_is_refused(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    large = [CoordinatorRecord(b"key%d" % number, bytes(MAX_BATCH_BYTES)) for number in range(3)]
    log.told = trio.Event()
    planned = runtime.begin_planned_write(0, lambda: large)
    await trio.testing.wait_all_tasks_blocked()
    log.error = CoordinatorNotAvailableError("the disk is full")
    log.told.set()
    with pytest.raises(CoordinatorNotAvailableError):
        await planned.wait()
    assert [each for _, _, each in runtime.shard(0).told] == large[:1]
    log.error = None
    await runtime.write(0, [record(1)])
    assert [each for _, _, each in runtime.shard(0).told] == [large[0], record(1)]


async def test_a_plan_is_not_asked_when_the_partition_moves_away(
    runtime: CoordinatorRuntime[Journal], log: Any
) -> None:
    log.gate = trio.Event()
    first = runtime.begin_write(0, [record(0)])
    await trio.testing.wait_all_tasks_blocked()
    asked: list[bool] = []
    planned = runtime.begin_planned_write(0, lambda: asked.append(True) or [])  # type: ignore[func-returns-value]
    runtime.resign(0)
    log.gate.set()
    for write in (first, planned):
        with pytest.raises(NotCoordinatorError):
            await write.wait()
    assert not asked


async def test_a_partition_whose_log_is_not_committed_yet_holds_up_no_other(log: Any, nursery: trio.Nursery) -> None:
    """It waits for its replicas, perhaps for as long as too few of them are in sync."""
    committed = trio.Event()
    batch = BatchBuilder()
    batch.append(key=b"key", value=b"value", timestamp_ms=0)
    log.store(0, batch.build())

    async def read(partition: int) -> AsyncGenerator[memoryview, None]:
        if partition == 0:
            yield memoryview(b"")
            await committed.wait()
        for batch in log.batches[partition]:
            await trio.lowlevel.checkpoint()
            yield memoryview(batch)

    slow: Any = SimpleNamespace(read=read, begin_append=log.begin_append, turn=log.turn)
    runtime = new_runtime(slow, nursery)
    runtime.elect(0)
    runtime.elect(1)
    await trio.testing.wait_all_tasks_blocked()
    assert runtime.shard(1).is_loaded
    with pytest.raises(CoordinatorLoadInProgressError):
        runtime.shard(0)
    runtime.elect(2)
    await trio.testing.wait_all_tasks_blocked()
    assert runtime.shard(2).is_loaded
    committed.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(runtime.shard(0).told) == 1
    runtime.close()
