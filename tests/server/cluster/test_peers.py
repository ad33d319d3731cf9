"""Connections between brokers: shared, one's own, refused for a while, and following a broker that has moved."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from functools import partial

import pytest
import trio
import trio.testing

from ottla.client.errors import ConnectionLostError, UnreachableError
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.metadata.image import BrokerImage, Endpoint, MetadataDelta, MetadataImage
from ottla.runtime.backoff import JITTER
from ottla.server.cluster.peers import FIRST_BACKOFF_SECONDS, PeerEndpoint, Peers
from tests.clusters import RunCluster


class Doors:
    """Peers over addresses at which somebody answers or does not, without a network."""

    def __init__(self) -> None:
        self.image = MetadataImage()
        self.tried: list[int] = []
        self.answering = True
        self.is_up = True
        self.peers = Peers(self, node_id=1, listener="INTERNAL", find_endpoint=self._find)

    async def move(self, *endpoints: Endpoint) -> None:
        after = MetadataImage(brokers={2: BrokerImage(2, endpoints)} if endpoints else {})
        before, self.image = self.image, after
        await self.peers.follow(MetadataDelta(before, after, changed_brokers=[2]))

    def _find(self, endpoint: Endpoint) -> PeerEndpoint:
        return PeerEndpoint(partial(self._open, endpoint))

    async def _open(self, endpoint: Endpoint) -> trio.abc.Stream:
        self.tried.append(endpoint.port)
        if not self.is_up:
            await trio.sleep_forever()
        if not self.answering:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = trio.testing.memory_stream_pair()
        await theirs.aclose()
        return ours


@pytest.fixture
async def doors(nursery: trio.Nursery) -> AsyncIterator[Doors]:
    doors = Doors()
    await nursery.start(doors.peers.run)
    await doors.move(Endpoint("PLAINTEXT", "h", 1), Endpoint("INTERNAL", "h", 2))
    yield doors
    nursery.cancel_scope.cancel()


async def test_calls_share_a_connection_and_connect_makes_another(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        peers, there = cluster[1].broker.peers, cluster[2].broker.listeners
        assert there is not None
        await cluster.until_connected()
        before = there.connection_count
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(peers.call, 2, ApiVersionsRequest())
        assert (await peers.call(2, DescribeClusterRequest())).controller_id == 1
        assert there.connection_count == before + 1
        async with peers.connect(2) as connection:
            assert (await connection.call(DescribeClusterRequest())).cluster_id == cluster[1].image.cluster_id
            assert there.connection_count == before + 2


async def test_a_broker_that_comes_back_elsewhere_is_reached_there(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        peers = cluster[1].broker.peers
        await peers.call(2, ApiVersionsRequest())
        former = cluster[2].port
        await cluster.stop(2)
        await cluster.until(lambda image: image.brokers[2].fenced)
        with pytest.raises(ConnectionLostError):
            await peers.call(2, ApiVersionsRequest())
        await cluster.start(2)
        assert cluster[2].port != former
        await cluster.until(lambda image: not image.brokers[2].fenced)
        await peers.call(2, ApiVersionsRequest())


async def test_a_node_stops_while_others_wait_for_it_and_while_it_waits(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        peers = cluster[1].broker.peers
        async with peers.connect(2) as connection:
            await cluster.stop(1)
            assert not connection.is_open
            with pytest.raises(ConnectionLostError):
                await connection.call(ApiVersionsRequest())
        with pytest.raises(ConnectionLostError, match="this broker is stopping"):
            await peers.call(2, ApiVersionsRequest())


async def test_a_connection_to_a_process_that_another_follows_is_waited_on_no_longer(run_cluster: RunCluster) -> None:
    """Its machine went down, and nobody has said that it has ended."""
    async with run_cluster(2) as cluster:
        topic = await cluster[1].broker.controller.create_topic(NewTopic("t", assignments={0: [2]}))
        await cluster.until(lambda image: "t" in image.topics)
        peers, before = cluster[1].broker.peers, cluster[1].image
        waiting = cluster[2].broker.replica_manager.fetch_purgatory
        failures: list[Exception] = []

        async def wait_for_records() -> None:
            topics = [FetchTopic(topic_id=topic.topic_id, partitions=[FetchPartition(partition=0)])]
            try:
                await peers.call(2, FetchRequest(max_wait_ms=30_000, min_bytes=1, topics=topics))
            except ConnectionLostError as error:
                failures.append(error)

        with trio.fail_after(20):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_for_records)
                while not waiting.watching:  # noqa: ASYNC110 - there is no event
                    await trio.sleep(0.01)
                restarted = before.brokers[2]._replace(incarnation="another")
                after = replace(before, brokers={**before.brokers, 2: restarted})
                await peers.follow(MetadataDelta(before, after, changed_brokers=[2]))
        assert len(failures) == 1


async def test_who_waits_for_an_answer_is_told_when_peers_are_closed(run_cluster: RunCluster) -> None:
    async with run_cluster(2) as cluster:
        peers = cluster[1].broker.peers
        await peers.call(2, ApiVersionsRequest())
        peers.close()
        with pytest.raises(ConnectionLostError):
            await peers.call(2, ApiVersionsRequest())


@pytest.mark.parametrize("how", ["closed", "moved"])
async def test_a_connection_that_is_being_made_is_waited_for_no_longer(
    doors: Doors, nursery: trio.Nursery, how: str
) -> None:
    """To a machine that is gone, which refuses nothing: of two who wait, one makes the connection."""
    doors.is_up = False
    failures: list[Exception] = []

    async def wait() -> None:
        try:
            await doors.peers.call(2, ApiVersionsRequest())
        except ConnectionLostError as error:
            failures.append(error)

    for _ in range(2):
        nursery.start_soon(wait)
    await trio.testing.wait_all_tasks_blocked()
    assert doors.tried == [2]
    if how == "closed":
        doors.peers.close()
    else:
        await doors.move(Endpoint("INTERNAL", "h", 3))
    await trio.testing.wait_all_tasks_blocked()
    assert len(failures) == 2
    assert doors.tried == [2]


async def test_who_is_not_registered_is_not_reached(doors: Doors) -> None:
    await doors.move()
    with pytest.raises(UnreachableError, match=r"node 2 .*not registered"):
        await doors.peers.call(2, ApiVersionsRequest())
    assert doors.tried == []


@pytest.mark.frozen_clock
async def test_after_a_refusal_others_are_refused_at_once_for_longer_and_longer(
    doors: Doors, mock_clock: trio.testing.MockClock
) -> None:
    doors.answering = False

    async def is_tried() -> bool:
        tried = len(doors.tried)
        with pytest.raises(UnreachableError, match=r"h:2 .*refused"):
            await doors.peers.call(2, ApiVersionsRequest())
        return len(doors.tried) > tried

    assert [await is_tried() for _ in range(3)] == [True, False, False]
    mock_clock.jump((1 - JITTER) * FIRST_BACKOFF_SECONDS * 0.99)
    assert not await is_tried()
    mock_clock.jump((1 + JITTER) * FIRST_BACKOFF_SECONDS)
    assert [await is_tried() for _ in range(2)] == [True, False]
    mock_clock.jump(2 * (1 - JITTER) * FIRST_BACKOFF_SECONDS * 0.99)
    assert not await is_tried()
    mock_clock.jump(2 * (1 + JITTER) * FIRST_BACKOFF_SECONDS)
    assert await is_tried()
    await doors.move(*doors.image.brokers[2].endpoints)  # it has come back: nothing about its address is new
    assert await is_tried()


async def test_the_listener_for_brokers_is_taken_or_else_the_first(doors: Doors) -> None:
    with pytest.raises(ConnectionLostError):
        await doors.peers.call(2, ApiVersionsRequest())
    await doors.move(Endpoint("PLAINTEXT", "h", 1))
    with pytest.raises(ConnectionLostError):
        await doors.peers.call(2, ApiVersionsRequest())
    assert doors.tried == [2, 1]
