"""A connection has one task, which whatever completes a request interrupts where it is needed."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.server.apis.context import RequestContext
from ottla.server.apis.pending import Pending
from ottla.server.network import readiness
from tests.flags import Flag

Serve = Callable[..., Any]

VERSION = 9
# More than a socket takes of a peer that does not read.
LARGE_BYTES = 6_000_000
MAX_PIPELINED = 3


class Written(Pending):
    def __init__(self, flag: Flag, response: ProduceResponse) -> None:
        self._flag = flag
        self._response = response

    @property
    def is_ready(self) -> bool:
        return self._flag.is_set()

    def watch(self, ready: Callable[[], None]) -> None:
        self._flag.watch(ready)

    def response(self) -> ProduceResponse:
        return self._response


class Produces:
    """Each Produce is written when the test says so. Its answer is large if its `timeout_ms` says that."""

    def __init__(self) -> None:
        self.begun = 0
        self.tasks: list[str] = []
        self.written = [Flag() for _ in range(32)]

    def produce(self, request: ProduceRequest, context: RequestContext) -> Written:
        self.tasks.append(_task_at_work())
        partitions = [PartitionProduceResponse(error_message="x" * 30_000)] * (request.timeout_ms // 30_000)
        answer = ProduceResponse(
            throttle_time_ms=self.begun, responses=[TopicProduceResponse(partition_responses=partitions)]
        )
        self.begun += 1
        return Written(self.written[self.begun - 1], answer)

    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        return MetadataResponse(controller_id=self.begun)

    @property
    def all(self) -> dict[ApiKey, Any]:
        return {ApiKey.PRODUCE: self.produce, ApiKey.METADATA: self.metadata}


def _task_at_work() -> str:
    try:
        return trio.lowlevel.current_task().name
    except RuntimeError:
        return ""


def produce(number: int, *, answer_bytes: int = 0, size_bytes: int = 0) -> bytes:
    data = PartitionProduceData(records=b"x" * size_bytes)
    topics = [TopicProduceData(name="t", partition_data=[data])] if size_bytes else []
    request = ProduceRequest(acks=1, timeout_ms=answer_bytes, topic_data=topics)
    return build_request_frame(request, VERSION, number, "test")


async def numbers_of(client: Any, count: int) -> list[int]:
    found = []
    for _ in range(count):
        number, response = await client.receive(ApiKey.PRODUCE, VERSION)
        assert response.throttle_time_ms == number
        found.append(number)
    return found


@pytest.fixture(params=["epoll", "no epoll"])
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a system that waits for many sockets at one place; without, each task waits, as with TLS."""
    if request.param == "no epoll":
        monkeypatch.setattr(readiness, "select", object())


async def test_what_takes_longer_than_its_turn_needs_no_second_task(serve_handlers: Serve, waits: None) -> None:
    handlers = Produces()
    async with serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        await client.call(MetadataRequest(), 5)
        tasks = trio.lowlevel.current_statistics().tasks_living
        for number in range(MAX_PIPELINED):
            await client.stream.send_all(produce(number))
            await wait_all_tasks_blocked()
        assert handlers.begun == MAX_PIPELINED
        assert trio.lowlevel.current_statistics().tasks_living == tasks
        for number in reversed(range(MAX_PIPELINED)):
            handlers.written[number].set()
        assert await numbers_of(client, MAX_PIPELINED) == list(range(MAX_PIPELINED))


async def test_while_requests_wait_others_are_taken_without_the_task(serve_handlers: Serve) -> None:
    handlers = Produces()
    async with serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        await client.call(MetadataRequest(), 5)
        for number in range(20):
            await client.stream.send_all(produce(number))
            await wait_all_tasks_blocked()
            if number:
                handlers.written[number - 1].set()
                assert await numbers_of(client, 1) == [number - 1]
        handlers.written[19].set()
        assert await numbers_of(client, 1) == [19]
    assert handlers.tasks == [""] * 20


async def test_the_rest_of_an_answer_is_sent_while_a_large_request_arrives(serve_handlers: Serve, waits: None) -> None:
    handlers = Produces()
    async with serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        large = produce(2, size_bytes=500_000)
        await client.stream.send_all(produce(0, answer_bytes=LARGE_BYTES) + produce(1) + large[:200_000])
        await wait_all_tasks_blocked(0.01)
        assert handlers.begun == 2
        for flag in handlers.written:
            flag.set()
        assert await numbers_of(client, 2) == [0, 1]
        await client.stream.send_all(large[200_000:])
        assert await numbers_of(client, 1) == [2]


async def test_the_rest_of_an_answer_is_sent_while_a_request_waits_for_memory(
    serve_handlers: Serve, waits: None
) -> None:
    handlers = Produces()
    async with serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        spent = server.budget.large.limit_bytes
        server.budget.large.charge(spent)
        await client.stream.send_all(produce(0, answer_bytes=LARGE_BYTES) + produce(1, size_bytes=500_000)[:200_000])
        await wait_all_tasks_blocked(0.01)
        assert (handlers.begun, server.budget.large.waiting) == (1, 1)
        for flag in handlers.written:
            flag.set()
        assert await numbers_of(client, 1) == [0]
        # And then it waits again, has lost nothing, and goes on.
        await wait_all_tasks_blocked(0.01)
        assert server.budget.large.waiting == 1
        server.budget.large.refund(spent)
        await client.stream.send_all(produce(1, size_bytes=500_000)[200_000:])
        assert await numbers_of(client, 1) == [1]


async def test_the_rest_of_an_answer_is_sent_while_a_client_is_beyond_its_quota(
    serve_handlers: Serve, waits: None
) -> None:
    handlers = Produces()

    def throttled(request: ProduceRequest, context: RequestContext) -> Written:
        context.connection.mute(1_000)
        return handlers.produce(request, context)

    async with serve_handlers({**handlers.all, ApiKey.PRODUCE: throttled}, grace_seconds=0) as server:
        client = await server.connect()
        await client.stream.send_all(produce(0, answer_bytes=LARGE_BYTES))
        await wait_all_tasks_blocked(0.01)
        await client.stream.send_all(produce(1))
        await wait_all_tasks_blocked(0.01)
        handlers.written[0].set()
        assert await numbers_of(client, 1) == [0]
        assert handlers.begun == 1


async def test_what_is_under_way_is_answered_after_the_client_has_sent_its_last(
    serve_handlers: Serve, waits: None
) -> None:
    handlers = Produces()
    async with serve_handlers(handlers.all, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        await client.stream.send_all(produce(0, answer_bytes=LARGE_BYTES) + produce(1))
        client.stream.socket.shutdown(socket.SHUT_WR)
        await wait_all_tasks_blocked(0.01)
        for flag in handlers.written:
            flag.set()
        assert await numbers_of(client, 2) == [0, 1]
        assert await client.is_closed()
