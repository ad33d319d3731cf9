"""Appending through a cluster whose brokers move, refuse and fall silent: what is sent again, and what never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import trio
import trio.testing

from ottla.client.errors import BrokerError, ConnectionLostError, UnknownTopicError, UnreachableError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from ottla.kproto.messages.topics.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.rest.cluster import Appended, Cluster

TOPIC_ID = UUID(int=7)


class Brokers:
    """Brokers 1 and 2 at ports 1 and 2; `leader` leads the only partition, and each append takes the next answer."""

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.answers = list(answers)
        self.leader = 1
        self.produced: list[int] = []
        self.connected: list[int] = []
        self.down: set[int] = set()
        self.topic_error = ErrorCode.NONE
        self.on_refusal: Callable[[], None] = lambda: None

    def connect(self, host: str, port: int) -> Any:
        return Connection(self, port)

    def metadata(self) -> MetadataResponse:
        partitions = [MetadataResponsePartition(partition_index=0, leader_id=self.leader, replica_nodes=[1, 2])]
        topic = MetadataResponseTopic(
            error_code=self.topic_error, name="orders", topic_id=TOPIC_ID, partitions=partitions
        )
        brokers = [MetadataResponseBroker(node_id=node, host="b", port=node) for node in (1, 2)]
        return MetadataResponse(brokers=brokers, cluster_id="c", controller_id=1, topics=[topic])

    def produce(self, port: int) -> ProduceResponse:
        self.produced.append(port)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if answer:
            self.on_refusal()
        partition = PartitionProduceResponse(index=0, error_code=answer, base_offset=-1 if answer else 42)
        return ProduceResponse(responses=[TopicProduceResponse(topic_id=TOPIC_ID, partition_responses=[partition])])


class Connection:
    """One connection to them."""

    def __init__(self, brokers: Brokers, port: int) -> None:
        self._brokers = brokers
        self._port = port
        self._end = trio.Event()
        self.is_open = False

    async def run(self, task_status: Any = trio.TASK_STATUS_IGNORED) -> None:
        if self._port in self._brokers.down:
            raise UnreachableError(f"b:{self._port}", "it is down")
        self._brokers.connected.append(self._port)
        self.is_open = True
        task_status.started(self)
        await self._end.wait()

    def close(self) -> None:
        self.is_open = False
        self._end.set()

    async def call(self, request: Any, **_: object) -> Any:
        await trio.lowlevel.checkpoint()
        if isinstance(request, MetadataRequest):
            return self._brokers.metadata()
        return self._brokers.produce(self._port)


async def append(brokers: Brokers, count: int = 1) -> list[Appended]:
    cluster = Cluster(brokers.connect, [("b", 1)])
    found: list[Appended] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cluster.run)
        await trio.testing.wait_all_tasks_blocked()
        try:
            for _ in range(count):
                found.append(await cluster.append("orders", 0, b"batch"))
        finally:
            nursery.cancel_scope.cancel()
    return found


async def test_a_batch_follows_its_leader(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE)

    def move() -> None:
        brokers.leader = 2

    brokers.on_refusal = move
    assert await append(brokers) == [Appended(42, -1)]
    assert brokers.produced == [1, 2]


async def test_a_leader_that_is_not_reached_is_tried_again(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(ErrorCode.NONE)
    brokers.leader, brokers.down = 2, {2}
    async with trio.open_nursery() as nursery:

        async def come_back() -> None:
            await trio.sleep(1)
            brokers.down.clear()

        nursery.start_soon(come_back)
        assert await append(brokers) == [Appended(42, -1)]


@pytest.mark.parametrize(
    "answer",
    [
        ConnectionLostError("it fell silent"),
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.MESSAGE_TOO_LARGE,
    ],
)
async def test_what_may_have_been_appended_is_not_sent_again(
    answer: ErrorCode | Exception, autojump_clock: trio.testing.MockClock
) -> None:
    brokers = Brokers(answer, ErrorCode.NONE)
    with pytest.raises((BrokerError, ConnectionLostError)):
        await single(append(brokers))
    assert brokers.produced == [1]


async def test_a_refusal_is_told_after_a_while(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(*[ErrorCode.NOT_ENOUGH_REPLICAS] * 1000)
    began = trio.current_time()
    with pytest.raises(BrokerError):
        await single(append(brokers))
    assert 10 <= trio.current_time() - began < 11


async def test_a_topic_that_is_deleted_meanwhile_is_not_waited_for(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(ErrorCode.UNKNOWN_TOPIC_ID)

    def delete() -> None:
        brokers.topic_error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    brokers.on_refusal = delete
    with pytest.raises(UnknownTopicError):
        await single(append(brokers))


async def test_a_connection_is_shared_and_made_again_when_it_ends(autojump_clock: trio.testing.MockClock) -> None:
    brokers = Brokers(ErrorCode.NONE, ErrorCode.NONE)
    assert len(await append(brokers, 2)) == 2
    assert brokers.connected == [1]


async def single(work: Any) -> Any:
    """Awaits; raises what is alone in a group of exceptions by itself."""
    try:
        return await work
    except BaseExceptionGroup as group:
        (error,) = group.exceptions
        raise error from None
