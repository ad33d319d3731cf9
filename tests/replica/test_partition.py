"""One partition: its watermark, its in-sync set, its epochs, and whom it serves."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata.changes.eligible_leaders import with_eligible
from ottla.metadata.errors import NotPartitionLeaderError
from ottla.metadata.image import PartitionState
from ottla.replica.errors import (
    FencedLeaderEpochError,
    NotLeaderError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
)
from ottla.replica.partition import Isolation, Partition, Role
from ottla.storage.errors import OffsetOutOfRangeError, StoreOfflineError
from ottla.storage.state.leader_epochs import LeaderEpochs


class Log:
    """Offsets and epochs of a log."""

    def __init__(self, end_offset: int = 0) -> None:
        self.log_start_offset = 0
        self.log_end_offset = end_offset
        self.flushed_end_offset = end_offset
        self.high_watermark = 0
        self.last_stable_offset = 0
        self.epochs = LeaderEpochs()

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    def extend(self, end_offset: int, epoch: int) -> None:
        self.epochs.assign(epoch, self.log_end_offset)
        self.log_end_offset = self.flushed_end_offset = end_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def advance_high_watermark(self, offset: int) -> bool:
        moved = offset > self.high_watermark
        self.high_watermark = max(offset, self.high_watermark)
        return moved


def state(leader: int = 0, replicas: tuple[int, ...] = (0,), **fields: Any) -> PartitionState:
    values: dict[str, Any] = {"leader": leader, "replicas": replicas, "isr": replicas}
    return PartitionState(**(values | fields))


def make_partition(
    log: Log | None = None, min_insync_replicas: int = 1, brokers: dict[int, int] | None = None
) -> Partition:
    return Partition(
        "topic",
        uuid4(),
        0,
        log or Log(),  # type: ignore[arg-type]
        node_id=0,
        min_insync_replicas=min_insync_replicas,
        brokers={} if brokers is None else brokers,
        max_lag_ms=1000,
    )


def lead(
    end_offset: int = 10, min_insync_replicas: int = 1, brokers: dict[int, int] | None = None, **fields: Any
) -> Partition:
    """Node 0 leads a log whose end no follower is known to have yet."""
    partition = make_partition(Log(end_offset), min_insync_replicas, brokers)
    partition.apply(state(**fields))
    return partition


def follow(partition: Partition, replica: int, offset: int, now_ms: int = 0, broker_epoch: int = -1) -> bool:
    return partition.record_follower_fetch(replica, offset, 0, -1, now_ms, broker_epoch)


# The high watermark ---------------------------------------------------------------------------------------------------


def test_alone_a_leader_commits_what_it_has_flushed() -> None:
    assert lead(10).log.high_watermark == 10


def test_the_watermark_is_the_least_end_in_the_in_sync_set() -> None:
    partition = lead(10, replicas=(0, 1, 2, 3), isr=(0, 1, 2))
    assert partition.log.high_watermark == 0
    follow(partition, 1, 7)
    assert partition.log.high_watermark == 0  # nothing is known of 2
    follow(partition, 2, 4)
    assert partition.log.high_watermark == 4
    follow(partition, 3, 0)  # not in sync: does not count
    follow(partition, 2, 9)
    assert partition.log.high_watermark == 7


def test_the_watermark_never_goes_back() -> None:
    partition = lead(10, replicas=(0, 1))
    follow(partition, 1, 8)
    follow(partition, 1, 3)
    assert partition.log.high_watermark == 8


def test_the_watermark_stands_still_under_min_insync_replicas() -> None:
    partition = lead(10, min_insync_replicas=2, replicas=(0, 1, 2), isr=(0,))
    assert partition.is_under_min_isr
    assert not partition.advance_high_watermark()
    assert partition.log.high_watermark == 0


def test_min_insync_replicas_never_asks_for_more_than_there_are() -> None:
    partition = lead(10, min_insync_replicas=3)
    assert not partition.is_under_min_isr
    assert partition.log.high_watermark == 10


def test_a_follower_does_not_move_the_watermark() -> None:
    partition = lead(10, leader=1, replicas=(0, 1))
    assert not partition.advance_high_watermark()
    assert partition.log.high_watermark == 0


def test_progress_is_forgotten_with_leadership() -> None:
    partition = lead(10, replicas=(0, 1))
    follow(partition, 1, 6)
    partition.apply(state(leader=1, replicas=(0, 1), leader_epoch=1))
    partition.apply(state(leader=0, replicas=(0, 1), leader_epoch=2))
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    partition.advance_high_watermark()
    assert partition.log.high_watermark == 6
    assert partition.term == 2


def test_progress_is_forgotten_where_somebody_else_may_have_led_unseen() -> None:
    """Node 2 led in epoch 6, and 1 dropped for it what it had of epoch 5; this node hears of both elections at once."""
    partition = lead(10, replicas=(0, 1, 2), leader_epoch=5)
    follow(partition, 1, 10)
    follow(partition, 2, 6)
    partition.apply(state(replicas=(0, 1, 2), isr=(0, 1), leader_epoch=7))
    assert partition.log.high_watermark == 6
    assert partition.term == 2
    follow(partition, 1, 10)
    assert partition.log.high_watermark == 10


def test_progress_is_kept_where_a_leader_goes_on_in_the_next_epoch() -> None:
    partition = lead(10, replicas=(0, 1, 2), leader_epoch=5)
    follow(partition, 1, 10)
    partition.apply(state(replicas=(0, 1), leader_epoch=6))
    assert partition.log.high_watermark == 10
    assert partition.term == 1


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.sampled_from(["flush", "fetch", "isr"]), st.integers(0, 3), st.integers(0, 50))),
)
def test_the_watermark_is_covered_by_the_in_sync_set(
    min_insync_replicas: int, steps: list[tuple[str, int, int]]
) -> None:
    """Whatever comes: it never passes the flushed end or an in-sync follower, and only moves with enough replicas."""
    partition = lead(0, min_insync_replicas, replicas=(0, 1, 2, 3))
    log = partition.log
    ends = dict.fromkeys((1, 2, 3), -1)
    for what, replica, offset in steps:
        before = log.high_watermark
        if what == "flush":
            log.log_end_offset = log.flushed_end_offset = log.flushed_end_offset + offset
            partition.advance_high_watermark()
        elif what == "fetch" and replica:
            ends[replica] = max(ends[replica], min(offset, log.flushed_end_offset))
            follow(partition, replica, ends[replica])
        elif what == "isr":
            isr = tuple(sorted({0, replica, offset % 4}))
            caught_up = tuple(r for r in isr if r == 0 or ends[r] >= log.high_watermark)
            partition.apply(state(replicas=(0, 1, 2, 3), isr=caught_up))
        if log.high_watermark > before:
            assert len(partition.isr) >= min_insync_replicas
            assert log.high_watermark <= log.flushed_end_offset
            assert all(ends[r] >= log.high_watermark for r in partition.isr if r)


# The in-sync set ------------------------------------------------------------------------------------------------------


def test_a_follower_stays_in_sync_while_it_keeps_up() -> None:
    partition = lead(10, replicas=(0, 1))
    follow(partition, 1, 10, now_ms=1000)
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    assert partition.lagging(1500) == ()
    # It fetches what was the end at its last fetch: it is only one fetch behind.
    follow(partition, 1, 20, now_ms=2000)
    assert partition.lagging(2900) == ()
    partition.log.log_end_offset = partition.log.flushed_end_offset = 30
    assert partition.lagging(3100) == (1,)


def test_a_follower_that_fetches_steadily_behind_a_busy_leader_stays() -> None:
    partition = lead(0, replicas=(0, 1))
    for second in range(1, 10):
        follow(partition, 1, 100 * (second - 1), now_ms=second * 600)
        partition.log.log_end_offset = partition.log.flushed_end_offset = 100 * second
        assert partition.lagging(second * 600) == ()


def test_who_is_in_sync_when_a_leader_begins_has_time_to_show_that_it_follows() -> None:
    partition = make_partition(Log(10))
    partition.apply(state(replicas=(0, 1)), now_ms=50_000)
    assert partition.lagging(50_900) == ()
    assert partition.lagging(51_100) == (1,)


def test_a_follower_joins_at_the_watermark_and_the_epochs_start() -> None:
    """KAFKA-7128: with the watermark alone, which lags here, it could lack records of the epoch before."""
    brokers = {1: 7}
    partition = lead(10, min_insync_replicas=2, replicas=(0, 1), isr=(0,), leader_epoch=3, brokers=brokers)
    assert (partition.epoch_start_offset, partition.log.high_watermark) == (10, 0)
    partition.log.log_end_offset = partition.log.flushed_end_offset = 12
    follow(partition, 1, 9, broker_epoch=7)
    assert not partition.may_join(1)
    assert partition.begin_isr_change(0) is None
    follow(partition, 1, 10, broker_epoch=7)
    assert partition.may_join(1)


@pytest.mark.parametrize("brokers", [{}, {1: 8}])
def test_only_the_living_process_that_the_cluster_knows_joins(brokers: dict[int, int]) -> None:
    """KIP-903: one that has registered since may have lost what the one before had."""
    partition = lead(10, replicas=(0, 1), isr=(0,), brokers=brokers)
    follow(partition, 1, 10, broker_epoch=7)
    assert not partition.may_join(1)


def test_a_process_is_refused_once_a_later_one_has_followed() -> None:
    partition = lead(10, replicas=(0, 1))
    follow(partition, 1, 3, broker_epoch=8)
    with pytest.raises(NotLeaderError):
        follow(partition, 1, 10, broker_epoch=7)


def test_who_joins_counts_before_the_cluster_has_agreed() -> None:
    """Kafka's maximal in-sync set: the cluster may have agreed already when somebody else is elected."""
    brokers = {1: 7}
    partition = lead(10, replicas=(0, 1), isr=(0,), brokers=brokers)
    follow(partition, 1, 10, broker_epoch=7)
    change = partition.begin_isr_change(0)
    assert change is not None
    assert partition.begin_isr_change(0) is None  # one at a time
    brokers.clear()
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    assert not partition.advance_high_watermark()
    # It was refused: from now on the leader goes on alone.
    assert partition.end_isr_change(change, 0)
    assert partition.log.high_watermark == 20


def test_who_leaves_counts_until_the_cluster_has_agreed() -> None:
    partition = lead(10, replicas=(0, 1))
    follow(partition, 1, 4)
    change = partition.begin_isr_change(5000)
    assert change is not None
    assert not partition.advance_high_watermark(5000)
    before = state(replicas=(0, 1))
    agreed = with_eligible(before, change(before), 1)
    assert agreed.isr == (0,)
    partition.apply(agreed, 5000)
    assert partition.log.high_watermark == 10


def test_a_change_is_void_in_another_term() -> None:
    brokers = {1: 7}
    partition = lead(10, replicas=(0, 1), isr=(0,), brokers=brokers)
    follow(partition, 1, 10, broker_epoch=7)
    change = partition.begin_isr_change(0)
    assert change is not None
    for other in (state(replicas=(0, 1), isr=(0,), leader_epoch=1), state(leader=1, replicas=(0, 1), isr=(0, 1))):
        with pytest.raises(NotPartitionLeaderError):
            change(other)
    brokers[1] = 9  # it has registered again meanwhile
    assert change(state(replicas=(0, 1), isr=(0,))).isr == (0,)


def test_under_load_who_keeps_up_is_waited_for_until_it_can_join() -> None:
    brokers = {1: 7}
    partition = lead(10, replicas=(0, 1), isr=(0,), brokers=brokers)
    follow(partition, 1, 10, now_ms=500, broker_epoch=7)
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    assert not partition.advance_high_watermark(600)
    del brokers[1]  # it dies, and nobody waits for it any more
    assert partition.advance_high_watermark(600)


def test_who_does_not_fetch_any_more_is_not_waited_for() -> None:
    brokers = {1: 7, 2: 7}
    partition = lead(10, replicas=(0, 1, 2), isr=(0, 2), brokers=brokers)
    follow(partition, 1, 10, now_ms=10_000, broker_epoch=7)
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    follow(partition, 2, 20, now_ms=10_100, broker_epoch=7)
    assert partition.log.high_watermark == 10
    # The next fetch of an in-sync replica finds it out, though it has nothing new itself.
    assert follow(partition, 2, 20, now_ms=10_600, broker_epoch=7)
    assert partition.log.high_watermark == 20


def test_who_stops_in_order_is_not_waited_for_from_then_on() -> None:
    brokers = {1: 7}
    partition = lead(10, replicas=(0, 1), brokers=brokers)
    follow(partition, 1, 10, now_ms=10_000, broker_epoch=7)
    partition.apply(state(replicas=(0, 1), isr=(0,), partition_epoch=1), 10_001)
    partition.log.log_end_offset = partition.log.flushed_end_offset = 20
    assert partition.advance_high_watermark(10_002)


def test_a_change_of_role_waits_for_the_end_of_a_truncation() -> None:
    async def main() -> None:
        partition = make_partition(Log(10))
        partition.apply(state(leader=1, replicas=(0, 1), leader_epoch=4))
        began, ended = trio.Event(), trio.Event()

        async def truncate_to(_offset: int) -> None:
            began.set()
            await ended.wait()

        partition.log.truncate_to = truncate_to  # type: ignore[assignment, method-assign]
        with pytest.raises(NotLeaderError):
            await partition.truncate_as_follower(5, leader_epoch=3)
        settled: list[bool] = []

        async def wait() -> None:
            await partition.settled()
            settled.append(True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(partition.truncate_as_follower, 5, 4)
            await began.wait()
            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert settled == []
            ended.set()
        assert settled == [True]

    trio.run(main)


def test_a_stranger_is_no_follower() -> None:
    partition = lead(10, replicas=(0, 1))
    with pytest.raises(NotLeaderError):
        partition.record_follower_fetch(5, 0, 0, -1, 0)
    with pytest.raises(UnknownLeaderEpochError):
        partition.record_follower_fetch(5, 0, 0, 0, 0)


def test_the_low_watermark_is_the_least_log_start_of_the_live() -> None:
    brokers = {1: 7, 2: 7}
    partition = lead(10, replicas=(0, 1, 2), brokers=brokers)
    partition.log.log_start_offset = 5
    partition.record_follower_fetch(1, 10, 3, -1, 0)
    partition.record_follower_fetch(2, 10, 4, -1, 0)
    assert partition.low_watermark() == 3
    del brokers[1]
    assert partition.low_watermark() == 4


# Roles ----------------------------------------------------------------------------------------------------------------


def test_whom_a_leader_and_a_follower_serve() -> None:
    leader, follower = lead(), lead(leader=1, replicas=(0, 1))
    leader.require_readable(-1)
    follower.require_readable(-1, from_follower=True)
    with pytest.raises(NotLeaderError):
        follower.require_readable(-1)


@pytest.mark.parametrize("leader", [0, 1])
def test_the_epoch_is_judged_before_the_role(leader: int) -> None:
    partition = lead(leader=leader, replicas=(0, 1), leader_epoch=5)
    with pytest.raises(FencedLeaderEpochError):
        partition.require_readable(4)
    with pytest.raises(UnknownLeaderEpochError):
        partition.require_readable(6)


@pytest.mark.parametrize(
    ("end", "role", "error"),
    [
        (Partition.go_offline, Role.OFFLINE, StoreOfflineError),
        (Partition.give_up, Role.GIVEN_UP, NotLeaderError),
        (Partition.delete, Role.DELETED, UnknownTopicIdError),
    ],
)
def test_final_roles(end: Any, role: Role, error: type[Exception]) -> None:
    partition = lead()
    end(partition)
    partition.apply(state(leader_epoch=9))
    assert partition.role is role
    for refused in (partition.require_leader, lambda: partition.require_readable(0, from_follower=True)):
        with pytest.raises(error):
            refused()


def test_a_deleted_partition_does_not_go_offline() -> None:
    partition = lead()
    partition.delete()
    partition.go_offline()
    assert partition.role is Role.DELETED


def test_a_new_epoch_in_office_keeps_the_term() -> None:
    partition = lead()
    partition.apply(state(leader_epoch=1))
    assert (partition.term, partition.leader_epoch, partition.epoch_start_offset) == (1, 1, 10)


# Reading --------------------------------------------------------------------------------------------------------------


def test_what_each_isolation_sees() -> None:
    partition = lead(10)
    log: Any = partition.log
    log.log_end_offset, log.flushed_end_offset, log.high_watermark, log.last_stable_offset = 9, 8, 7, 6
    assert partition.visible_end(Isolation.LOG_END) == 8
    assert partition.visible_end(Isolation.HIGH_WATERMARK) == 7
    assert partition.visible_end(Isolation.TXN_COMMITTED) == 6


def history() -> Partition:
    """Epochs 0 and 2 hold offsets [0, 10) and [10, 15); the leader of epoch 5 has appended nothing."""
    partition = make_partition()
    log: Any = partition.log
    log.extend(10, epoch=0)
    log.extend(15, epoch=2)
    partition.apply(state(leader_epoch=5))
    return partition


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (0, 10)), (2, (2, 15)), (4, (2, 15)), (5, (5, 15)), (6, (-1, -1))],
)
def test_where_an_epoch_ended(epoch: int, expected: tuple[int, int]) -> None:
    assert history().end_offset_for_epoch(epoch) == expected


def test_the_current_epoch_ends_at_the_log_end_once_it_has_records() -> None:
    partition = history()
    log: Any = partition.log
    log.extend(20, epoch=5)
    assert partition.end_offset_for_epoch(5) == (5, 20)
    assert partition.end_offset_for_epoch(3) == (2, 15)


@pytest.mark.parametrize(("epoch", "expected"), [(0, (0, 0)), (2, (2, 0)), (3, (3, 0)), (4, (-1, -1))])
def test_epochs_of_an_empty_log(epoch: int, expected: tuple[int, int]) -> None:
    partition = make_partition()
    partition.apply(state(leader_epoch=3))
    assert partition.end_offset_for_epoch(epoch) == expected


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (9, 0), (10, 2), (14, 2), (15, 5)])
def test_the_epoch_of_an_offset(offset: int, epoch: int) -> None:
    assert history().epoch_at(offset) == epoch


@pytest.mark.parametrize(
    ("offset", "last_epoch", "expected"),
    [(10, 0, None), (11, 0, (0, 10)), (12, 1, (0, 10)), (15, 2, None), (15, 5, None), (16, 5, (5, 15))],
)
def test_where_a_follower_diverges(offset: int, last_epoch: int, expected: tuple[int, int] | None) -> None:
    assert history().diverging_epoch(offset, last_epoch) == expected


def test_a_follower_with_an_epoch_that_never_was_here_starts_again() -> None:
    partition = history()
    with pytest.raises(OffsetOutOfRangeError):
        partition.diverging_epoch(15, 6)
    partition.log.log_start_offset = 12
    with pytest.raises(OffsetOutOfRangeError):
        partition.diverging_epoch(11, 2)


def test_a_follower_knows_how_far_it_is_behind() -> None:
    partition = make_partition(Log(10))
    partition.apply(PartitionState(leader=1, replicas=(0, 1), isr=(0, 1), leader_epoch=3))
    assert partition.lag is None
    partition.take_high_watermark(25, 3)
    assert partition.lag == 15
    partition.take_high_watermark(8, 3)
    assert partition.lag == 0
    partition.apply(PartitionState(leader=1, replicas=(0, 1), isr=(0, 1), leader_epoch=4))
    assert partition.lag is None
    partition.apply(PartitionState(leader=0, replicas=(0, 1), isr=(0, 1), leader_epoch=5))
    assert partition.lag == 0


def test_who_may_lead_counts_for_the_watermark_until_the_cluster_says_that_it_may_not() -> None:
    partition = lead(10, replicas=(0, 1), isr=(0,), elr=(1,), leader_epoch=3)
    assert not partition.advance_high_watermark()
    follow(partition, 1, 4)
    assert partition.log.high_watermark == 4
    partition.apply(state(replicas=(0, 1), isr=(0,), leader_epoch=3))
    assert partition.log.high_watermark == 10
