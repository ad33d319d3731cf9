"""Replicas that are copied under a throttle: held back while they are behind, and never when they are in sync."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio

from ottla.replica.partition import Isolation, Partition
from ottla.replica.throttles import NO_THROTTLES, Throttled, throttled_partitions
from ottla.server.quotas.replication import ReplicationQuota
from ottla.settings.config import TOPIC_SETTINGS
from tests.replica.conftest import Node
from tests.replica.test_replica_fetcher import Leader, fetcher_of, follower

FOLLOWER = 1


class Quota:
    """Exceeded, or not, as the test says."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.is_exceeded = True

    def record(self, size_bytes: int) -> None:
        self.total_bytes += size_bytes

    def throttle_seconds(self) -> float:
        return 5.0 if self.is_exceeded else 0.0


@pytest.fixture
def quota(node: Node) -> Quota:
    node.manager.leader_quota = quota = Quota()
    return quota


async def fetched_bytes(node: Node, topic: object, *, replica_id: int = FOLLOWER) -> int:
    isolation = Isolation.LOG_END if replica_id >= 0 else Isolation.HIGH_WATERMARK
    result = await node.fetch(topic, replica_id=replica_id, isolation=isolation, max_wait_ms=0)  # type: ignore[arg-type]
    size_bytes = result.size_bytes
    assert result.error is None
    result.release()
    return size_bytes


@pytest.mark.parametrize(
    ("setting", "of_node_1", "of_node_2"),
    [
        ((), frozenset(), frozenset()),
        (("*",), None, None),
        (("0:1", "0:2", "3:1", "12:2"), frozenset({0, 3}), frozenset({0, 12})),
        (TOPIC_SETTINGS["leader.replication.throttled.replicas"].parse("0:1,"), frozenset({0}), frozenset()),
    ],
)
def test_what_a_topic_says_is_about_single_replicas(
    setting: Sequence[str], of_node_1: frozenset[int] | None, of_node_2: frozenset[int] | None
) -> None:
    assert throttled_partitions(setting, 1) == of_node_1
    assert throttled_partitions(setting, 2) == of_node_2


class TestLeader:
    async def test_a_replica_that_is_behind_gets_nothing_while_the_rate_is_exceeded(
        self, node: Node, quota: Quota
    ) -> None:
        topic = await node.create_topic(replicas=(0, FOLLOWER))
        topic = await node.change(topic, isr=(0,))
        node.partition(topic).throttle(Throttled(None, None))
        await node.append_flushed(topic)
        assert await fetched_bytes(node, topic) == 0
        quota.is_exceeded = False
        sent_bytes = await fetched_bytes(node, topic)
        assert sent_bytes > 0
        assert quota.total_bytes == sent_bytes

    async def test_one_that_is_held_back_is_not_answered_at_once(
        self, node: Node, quota: Quota, autojump_clock: object
    ) -> None:
        """Or it would ask again at once, without end: it can take no high watermark in that is beyond its log."""
        topic = await node.create_topic(replicas=(0, FOLLOWER))
        topic = await node.change(topic, isr=(0,))
        node.partition(topic).throttle(Throttled(None, None))
        await node.append_flushed(topic)
        began_at = trio.current_time()
        result = await node.fetch(
            topic,
            replica_id=FOLLOWER,
            isolation=Isolation.LOG_END,
            max_wait_ms=500,
            request={"known_high_watermark": 0},
        )
        assert result.size_bytes == 0
        assert result.high_watermark == 1
        assert trio.current_time() - began_at == pytest.approx(0.5)

    async def test_one_in_sync_and_consumers_are_not_held_back(self, node: Node, quota: Quota) -> None:
        topic = await node.create_topic(replicas=(0, FOLLOWER))
        node.partition(topic).throttle(Throttled(None, None))
        await node.append_flushed(topic)
        in_sync_bytes = await fetched_bytes(node, topic)
        assert in_sync_bytes > 0
        assert quota.total_bytes == in_sync_bytes  # it is counted, though
        topic = await node.change(topic, isr=(0,))
        assert await fetched_bytes(node, topic, replica_id=-1) > 0
        assert quota.total_bytes == in_sync_bytes

    async def test_only_what_the_topic_names_is_throttled(self, node: Node, quota: Quota) -> None:
        topic = await node.create_topic(replicas=(0, FOLLOWER), partitions=2)
        topic = await node.change(topic, isr=(0,))
        for index, throttled in enumerate((Throttled(frozenset({1}), frozenset()), NO_THROTTLES)):
            node.partition(topic, index).throttle(throttled)
        await node.append_flushed(topic)
        assert await fetched_bytes(node, topic) > 0
        assert quota.total_bytes == 0


class TestFollower:
    def throttled(self) -> Partition:
        partition = follower()
        partition.throttle(Throttled(frozenset(), None))
        return partition

    async def test_one_that_is_behind_is_not_fetched_while_the_rate_is_exceeded(self, autojump_clock: object) -> None:
        leader, quota = Leader(), Quota()
        fetcher = fetcher_of(leader, quota)
        fetcher.follow(self.throttled())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fetcher.run)
            await trio.sleep(10)
            assert leader.fetches == []
            quota.is_exceeded = False
            await trio.sleep(1)
            assert len(leader.fetches) == 1
            nursery.cancel_scope.cancel()

    async def test_one_that_has_all_is_fetched_on(self) -> None:
        leader, quota = Leader(), Quota()
        quota.is_exceeded = False
        fetcher = fetcher_of(leader, quota)
        fetcher.follow(self.throttled())
        leader.answer.set()
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(fetcher.run)
                await leader.until_fetched(3)  # it has heard that it has all
                quota.is_exceeded = True
                await leader.until_fetched(len(leader.fetches) + 3)
                nursery.cancel_scope.cancel()


class TestRate:
    async def test_a_burst_is_paid_back(self, autojump_clock: object) -> None:
        quota = ReplicationQuota(lambda: 1_000, windows=11, window_seconds=1)
        assert quota.throttle_seconds() == 0
        quota.record(3_000)
        # 3000 bytes in a second: three seconds until that is 1000 a second, of which the first has not passed.
        assert quota.throttle_seconds() == pytest.approx(2.0)
        await trio.sleep(3.01)
        assert quota.throttle_seconds() == 0
        assert quota.total_bytes == 3_000

    async def test_over_time_no_more_goes_through_than_allowed(self, autojump_clock: object) -> None:
        quota = ReplicationQuota(lambda: 1_000, windows=11, window_seconds=1)
        began_at = trio.current_time()
        while quota.total_bytes < 60_000:
            if quota.throttle_seconds():
                await trio.sleep(0.1)
            else:
                quota.record(400)
        assert 50 <= trio.current_time() - began_at <= 65

    async def test_the_limit_may_change_at_any_time(self, autojump_clock: object) -> None:
        limit = 1_000
        quota = ReplicationQuota(lambda: limit, windows=11, window_seconds=1)
        quota.record(3_000)
        limit = 10_000
        assert quota.throttle_seconds() == 0
        limit = 0
        assert quota.throttle_seconds() > 0
