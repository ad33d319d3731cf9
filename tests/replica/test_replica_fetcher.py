"""A follower of one leader, which the test plays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from ottla.kproto.records import Record, build_batch, patch_base_offset_and_epoch
from ottla.metadata.image import PartitionState
from ottla.replica.following.replica_fetcher import ReplicaFetcher
from ottla.replica.partition import Partition
from ottla.replica.throttles import ReplicaQuota, Unthrottled
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.errors import LogClosedError
from tests.replica.conftest import FakeLog
from tests.replica.test_real_logs import start

LEADER, OWN = 1, 2


class Leader:
    """Answers as the test says, and holds fetches while there is nothing to say."""

    own_epoch = 5

    def __init__(self) -> None:
        self.connections = 0
        self.fetches: list[FetchRequest] = []
        self.lookups = 0
        self.answer = trio.Event()
        self.error_code = ErrorCode.NONE
        self.lookup_error = ErrorCode.OFFSET_NOT_AVAILABLE
        self.log_start_offset = 0
        self.knows_partition = True
        self._fetched = trio.Condition()

    async def until_fetched(self, count: int) -> None:
        """Wait until so many fetches have come."""
        async with self._fetched:
            while len(self.fetches) < count:
                await self._fetched.wait()

    @asynccontextmanager
    async def connect(self, node_id: int) -> AsyncIterator[Leader]:
        assert node_id == LEADER
        self.connections += 1
        yield self

    async def call(self, request: Any, *, timeout_seconds: float | None = None) -> Any:
        if isinstance(request, ListOffsetsRequest):
            self.lookups += 1
            found = ListOffsetsPartitionResponse(error_code=self.lookup_error, offset=0)
            topics = [ListOffsetsTopicResponse(name="t", partitions=[found])]
            return ListOffsetsResponse(topics=topics if self.knows_partition else [])
        self.fetches.append(request)
        assert len(self.fetches) < 100
        async with self._fetched:
            self._fetched.notify_all()
        await self.answer.wait()
        await trio.lowlevel.checkpoint()
        responses = [
            FetchableTopicResponse(
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=it.partition,
                        error_code=self.error_code,
                        high_watermark=self.log_start_offset,
                        log_start_offset=self.log_start_offset,
                    )
                ],
            )
            for topic in request.topics
            for it in topic.partitions
        ]
        return FetchResponse(responses=responses)  # without a session: each request names everything


class Manager:
    """`ReplicaManager` as a fetcher sees it."""

    node_id = OWN

    def __init__(self, follower_quota: ReplicaQuota) -> None:
        self.follower_quota = follower_quota

    def follower_moved(self, partition: Partition) -> None:
        """Nobody waits for it."""

    async def settle_losses(self) -> None:
        """Nothing is noted of any."""
        await trio.lowlevel.checkpoint()

    async def wait_flushed(self, partitions: Sequence[Partition]) -> None:
        await trio.lowlevel.checkpoint()


def follower(index: int = 0) -> Partition:
    topic_id = uuid4()
    log: Any = FakeLog(topic_id, "t", index, LogConfig())
    partition = Partition("t", topic_id, index, log, node_id=OWN)
    partition.apply(in_epoch(3))
    return partition


def in_epoch(leader_epoch: int, isr: tuple[int, ...] = (LEADER,)) -> PartitionState:
    return PartitionState(leader=LEADER, replicas=(LEADER, OWN), isr=isr, leader_epoch=leader_epoch)


def fetcher_of(leader: Leader, follower_quota: ReplicaQuota | None = None) -> ReplicaFetcher:
    manager: Any = Manager(follower_quota or Unthrottled())
    config = BrokerConfig({"replica.fetch.backoff.ms": "1000"})
    return ReplicaFetcher(LEADER, manager, leader, config, ManualClock())


async def test_a_change_of_the_in_sync_set_alone_interrupts_no_fetch() -> None:
    leader, partition = Leader(), follower()
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await wait_all_tasks_blocked()
        partition.apply(in_epoch(3, isr=(LEADER, OWN)))
        fetcher.follow(partition)
        await wait_all_tasks_blocked()
        assert (leader.connections, len(leader.fetches)) == (1, 1)
        partition.apply(in_epoch(4, isr=(LEADER, OWN)))
        fetcher.follow(partition)
        await wait_all_tasks_blocked()
        assert leader.fetches[-1].topics[0].partitions[0].current_leader_epoch == 4
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("lookup_error", [ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.NONE])
async def test_a_leader_that_does_not_say_what_is_wrong_is_asked_less_and_less(
    autojump_clock: object, lookup_error: ErrorCode
) -> None:
    """It refuses the offset, and does not say where its log ends, or says that it begins and ends there."""
    leader, partition = Leader(), follower()
    leader.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    leader.lookup_error = lookup_error
    leader.answer.set()
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    with trio.move_on_after(20):
        await fetcher.run()
    # After pauses that double from 10 ms on, and then of 0.8 to 1 seconds each.
    assert 20 <= leader.lookups / (1 if lookup_error else 2) <= 32


async def test_a_leader_that_leaves_the_partition_out_of_an_answer_is_asked_less_and_less(
    autojump_clock: object,
) -> None:
    leader, partition = Leader(), follower()
    leader.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
    leader.knows_partition = False
    leader.answer.set()
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    with trio.move_on_after(20):
        await fetcher.run()
    assert 20 <= leader.lookups <= 32


async def test_one_whose_store_has_stopped_is_asked_for_less_and_less(autojump_clock: object) -> None:
    """Or its leader would send the same records again and again, as fast as it can."""
    leader, partition = Leader(), follower()
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await wait_all_tasks_blocked()
        partition.go_offline()
        leader.answer.set()
        await trio.sleep(20)
        nursery.cancel_scope.cancel()
    assert [bool(fetch.topics) for fetch in leader.fetches[:3]] == [True, False, False]
    assert len(leader.fetches) <= 30


class PartedLeader(Leader):
    """Was elected although it had not followed in the last epoch of the follower's log; holds who agrees with it."""

    async def call(self, request: Any, *, timeout_seconds: float | None = None) -> Any:
        response = await super().call(request)
        (topic,) = request.topics
        if topic.partitions[0].last_fetched_epoch < 2:
            await trio.sleep_forever()
        response.responses[0].partitions[0].diverging_epoch = EpochEndOffset(epoch=1, end_offset=15)
        return response


async def test_an_empty_log_whose_last_epoch_its_leader_does_not_know_agrees_with_it() -> None:
    """Nothing can be cut of it, but what it says of itself has to change, or it would be told the same without end."""
    leader, topic_id = PartedLeader(), uuid4()
    leader.answer.set()
    async with start(SimulatedDisk(1)) as node:
        log = await node.log_manager.open_log(topic_id, "t", 0, LogConfig())
        records = memoryview(bytearray(build_batch([Record(value=b"x")] * 12)))
        patch_base_offset_and_epoch(records, 0, 0, 2)
        log.append_as_follower(records, None, now_ms=0)
        await log.flush()
        log.set_high_watermark(12)
        await log.advance_log_start_offset(12)
        partition = Partition("t", topic_id, 0, log, node_id=OWN)
        partition.apply(in_epoch(3))
        fetcher = fetcher_of(leader)
        fetcher.follow(partition)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.run)
            with trio.fail_after(5):
                await leader.until_fetched(2)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert len(leader.fetches) == 2
        assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (12, 12, -1)


class EmptyHandedLeader(Leader):
    """Answers at once with no records, and says how far everything is committed; holds the next fetch."""

    def __init__(self, high_watermark: int) -> None:
        super().__init__()
        self._high_watermark = high_watermark

    async def call(self, request: Any, *, timeout_seconds: float | None = None) -> Any:
        if len(self.fetches) < 2:
            self.answer.set()
        response = await super().call(request)
        if len(self.fetches) > 2:
            await trio.sleep_forever()
        response.responses[0].partitions[0].high_watermark = self._high_watermark
        return response


@pytest.mark.parametrize(("high_watermark", "left"), [(20, 12), (5, 5), (3, 5)])
async def test_a_damaged_log_is_cut_only_if_its_leader_has_what_follows_or_there_is_nothing(
    high_watermark: int, left: int
) -> None:
    """A leader may also send nothing because it was asked for too much, or is throttled."""
    leader, topic_id = EmptyHandedLeader(high_watermark), uuid4()
    async with start(SimulatedDisk(1)) as node:
        log = await node.log_manager.open_log(topic_id, "t", 0, LogConfig())
        for offset, epoch in ((0, 1), (6, 2)):
            records = memoryview(bytearray(build_batch([Record(value=b"x")] * 6)))
            patch_base_offset_and_epoch(records, 0, offset, epoch)
            log.append_as_follower(records, None, now_ms=0)
        await log.flush()
        partition = Partition("t", topic_id, 0, log, node_id=OWN)
        partition.suspect()
        partition.found_sound(5)
        partition.apply(in_epoch(3))
        fetcher = fetcher_of(leader)
        fetcher.follow(partition)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.run)
            with trio.fail_after(5):
                await leader.until_fetched(3)
            nursery.cancel_scope.cancel()
        asked = [fetch.topics[0].partitions[0] for fetch in leader.fetches]
        assert [(it.fetch_offset, it.last_fetched_epoch) for it in asked] == [(5, 1)] * 3
        assert log.log_end_offset == left
        assert (partition.first_bad_offset is None) is (left == 5)


class ForgetfulLeader(Leader):
    """Says that its log ends at 0, after a while."""

    def __init__(self) -> None:
        super().__init__()
        self.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        self.lookup_error = ErrorCode.NONE
        self.answer.set()
        self.says = trio.Event()

    async def call(self, request: Any, *, timeout_seconds: float | None = None) -> Any:
        response = await super().call(request)
        if isinstance(request, ListOffsetsRequest):
            await self.says.wait()
        return response


class CutLog(FakeLog):
    """Has five records, and notes to where it is cut."""

    log_end_offset = 5
    cut_to = -1

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.flushed_end_offset = 5

    async def truncate_to(self, offset: int) -> None:
        self.cut_to = offset
        await trio.sleep_forever()


@pytest.mark.parametrize("goes_to_another_fetcher", [True, False])
async def test_what_a_leader_has_said_late_is_void_for_who_is_followed_elsewhere(
    goes_to_another_fetcher: bool,
) -> None:
    """As when `num.replica.fetchers` changes: in the same epoch another fetcher has gone on with it."""
    leader, topic_id = ForgetfulLeader(), uuid4()
    log: Any = CutLog(topic_id, "t", 0, LogConfig())
    partition = Partition("t", topic_id, 0, log, node_id=OWN)
    partition.apply(in_epoch(3))
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await wait_all_tasks_blocked()
        if goes_to_another_fetcher:
            fetcher.unfollow((topic_id, 0))
        leader.says.set()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert log.cut_to == (-1 if goes_to_another_fetcher else 0)


class ClosingLog(FakeLog):
    """Is closed while somebody waits for it."""

    async def advance_log_start_offset(self, offset: int) -> None:
        await self.room.wait()
        raise LogClosedError("t-0 was closed or deleted")


@pytest.mark.parametrize("moved_away", ["no", "here", "everywhere"])
async def test_a_log_that_is_closed_is_told_of_only_if_it_is_followed_still(
    moved_away: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A partition is given up first, and then no longer followed: its log may be closed in between."""
    leader, topic_id = Leader(), uuid4()
    log: Any = ClosingLog(topic_id, "t", 0, LogConfig())
    log.high_watermark = leader.log_start_offset = 5
    log.room = trio.Event()
    partition = Partition("t", topic_id, 0, log, node_id=OWN)
    partition.apply(in_epoch(3))
    fetcher = fetcher_of(leader)
    fetcher.follow(partition)
    leader.answer.set()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fetcher.run)
        await wait_all_tasks_blocked()
        if moved_away != "no":
            partition.give_up()
        if moved_away == "everywhere":
            fetcher.unfollow((topic_id, 0))
        log.room.set()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert ("cannot take what node 1 has" in caplog.text) is (moved_away == "no")
