"""One connection: order, pipelining, backpressure, the peer's faults, and its end."""

import logging
import socket
import struct
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.kproto.messages.groups.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.runtime.errors import CloseConnectionError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.pending import Pending
from tests.flags import Flag

Serve = Callable[..., Any]

MAX_PIPELINED = 5


def produce(index: int, *, acks: int = -1, records: bytes = b"") -> ProduceRequest:
    partition = PartitionProduceData(index=index, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )


def produced(request: ProduceRequest) -> ProduceResponse:
    index = request.topic_data[0].partition_data[0].index
    response = PartitionProduceResponse(index=index, base_offset=index)
    return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[response])])


class Flush(Pending):
    """Waits for an event, then answers."""

    def __init__(self, request: ProduceRequest, flushed: Flag) -> None:
        self._request = request
        self._flushed = flushed

    @property
    def is_ready(self) -> bool:
        return self._flushed.is_set()

    def watch(self, ready: Callable[[], None]) -> None:
        self._flushed.watch(ready)

    def response(self) -> ProduceResponse | None:
        return None if self._request.acks == 0 else produced(self._request)


class Flushes:
    """A Produce handler whose appends are noted in order and whose flushes end when the test says so."""

    def __init__(self) -> None:
        self.appended: list[int] = []
        self.flushed = [Flag() for _ in range(32)]

    async def handle(self, request: ProduceRequest, context: RequestContext) -> Flush:
        index = request.topic_data[0].partition_data[0].index
        self.appended.append(index)
        return Flush(request, self.flushed[index])


async def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    return MetadataResponse(cluster_id="c", controller_id=7)


async def test_a_request_is_answered(serve_handlers: Serve) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}) as server:
        client = await server.connect()
        for version in (0, 5, 12):
            response = await client.call(MetadataRequest(), version)
            assert version < 1 or response.controller_id == 7


async def test_requests_are_worked_on_one_at_a_time_and_in_order(serve_handlers: Serve) -> None:
    working = 0
    seen = []

    async def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        nonlocal working
        working += 1
        assert working == 1
        seen.append(context.header.correlation_id)
        await trio.lowlevel.checkpoint()
        await trio.lowlevel.checkpoint()
        working -= 1
        return ListGroupsResponse()

    async with serve_handlers({ApiKey.LIST_GROUPS: handle}) as server:
        client = await server.connect()
        sent = [await client.send(ListGroupsRequest(), 2) for _ in range(50)]
        received = [(await client.receive(ApiKey.LIST_GROUPS, 2))[0] for _ in range(50)]
    assert received == sent == seen


async def test_produce_is_appended_while_earlier_flushes_are_awaited(serve_handlers: Serve) -> None:
    flushes = Flushes()
    async with serve_handlers({ApiKey.PRODUCE: flushes.handle}, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        sent = [await client.send(produce(index), 7) for index in range(12)]
        await wait_all_tasks_blocked(0.01)
        assert flushes.appended == list(range(MAX_PIPELINED))

        for index in reversed(range(MAX_PIPELINED)):  # the flushes end in another order than the requests came
            flushes.flushed[index].set()
        for index in range(MAX_PIPELINED, 12):
            flushes.flushed[index].set()
        received = [(await client.receive(ApiKey.PRODUCE, 7))[0] for _ in sent]
    assert received == sent
    assert flushes.appended == list(range(12))


class Committing(Pending):
    """A commit whose record is stored when the test says so."""

    def __init__(self, stored: Flag) -> None:
        self._stored = stored

    @property
    def is_ready(self) -> bool:
        return self._stored.is_set()

    def watch(self, ready: Callable[[], None]) -> None:
        self._stored.watch(ready)

    def response(self) -> OffsetCommitResponse:
        return OffsetCommitResponse()


class Commits:
    """An OffsetCommit handler that notes the order of the commits; each is stored when the test says so."""

    def __init__(self) -> None:
        self.begun: list[int] = []
        self.stored = [Flag() for _ in range(32)]

    async def handle(self, request: OffsetCommitRequest, context: RequestContext) -> Committing:
        number = request.generation_id_or_member_epoch
        self.begun.append(number)
        return Committing(self.stored[number])


def commit(number: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(group_id="g", generation_id_or_member_epoch=number)


async def test_commits_that_are_sent_ahead_overlap_and_are_answered_in_order(serve_handlers: Serve) -> None:
    commits = Commits()
    async with serve_handlers({ApiKey.OFFSET_COMMIT: commits.handle}, max_pipelined=MAX_PIPELINED) as server:
        client = await server.connect()
        sent = [await client.send(commit(number), 8) for number in range(12)]
        await wait_all_tasks_blocked(0.01)
        commits.stored[0].set()
        await wait_all_tasks_blocked(0.01)
        assert commits.begun == list(range(MAX_PIPELINED + 1))
        for number in reversed(range(12)):
            commits.stored[number].set()
        received = [(await client.receive(ApiKey.OFFSET_COMMIT, 8))[0] for _ in sent]
    assert received == sent
    assert commits.begun == list(range(12))


async def test_a_client_that_awaits_each_commit_is_served_by_one_task(serve_handlers: Serve) -> None:
    commits = Commits()
    async with serve_handlers({ApiKey.OFFSET_COMMIT: commits.handle}) as server:
        client = await server.connect()
        await client.send(commit(0), 8)
        await wait_all_tasks_blocked(0.01)
        tasks = trio.lowlevel.current_statistics().tasks_living
        commits.stored[0].set()
        assert (await client.receive(ApiKey.OFFSET_COMMIT, 8))[0] == 1
        for number in range(1, 4):
            commits.stored[number].set()
            await client.send(commit(number), 8)
            assert (await client.receive(ApiKey.OFFSET_COMMIT, 8))[0] == number + 1
        assert trio.lowlevel.current_statistics().tasks_living == tasks


async def test_other_requests_wait_for_the_produces_before_them(serve_handlers: Serve) -> None:
    flushes = Flushes()
    asked = []

    async def handle(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        asked.append(list(flushes.appended))
        return MetadataResponse()

    async with serve_handlers({ApiKey.PRODUCE: flushes.handle, ApiKey.METADATA: handle}) as server:
        client = await server.connect()
        await client.send(produce(0), 7)
        await client.send(MetadataRequest(), 5)
        await client.send(produce(1), 7)
        await wait_all_tasks_blocked(0.01)
        assert asked == []
        assert flushes.appended == [0]
        flushes.flushed[0].set()
        flushes.flushed[1].set()
        assert (await client.receive(ApiKey.PRODUCE, 7))[0] == 1
        assert (await client.receive(ApiKey.METADATA, 5))[0] == 2
        assert (await client.receive(ApiKey.PRODUCE, 7))[0] == 3
    assert asked == [[0]]


async def test_a_handler_that_defers_nothing_is_not_overtaken(serve_handlers: Serve) -> None:
    started = []
    go_on = trio.Event()

    async def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        started.append(request.topic_data[0].partition_data[0].index)
        await go_on.wait()
        return produced(request)

    async with serve_handlers({ApiKey.PRODUCE: handle}) as server:
        client = await server.connect()
        await client.send(produce(0), 7)
        await client.send(produce(1), 7)
        await wait_all_tasks_blocked(0.01)
        assert started == [0]
        go_on.set()
        await client.receive(ApiKey.PRODUCE, 7)
        await client.receive(ApiKey.PRODUCE, 7)
    assert started == [0, 1]


async def test_nothing_answers_a_produce_without_acks(serve_handlers: Serve) -> None:
    flushes = Flushes()
    flushes.flushed[0].set()
    async with serve_handlers({ApiKey.PRODUCE: flushes.handle, ApiKey.METADATA: metadata}) as server:
        client = await server.connect()
        await client.send(produce(0, acks=0), 7)
        second = await client.send(MetadataRequest(), 5)
        assert (await client.receive(ApiKey.METADATA, 5))[0] == second


async def test_a_handler_may_close_the_connection(serve_handlers: Serve, caplog: pytest.LogCaptureFixture) -> None:
    async def handle(request: ProduceRequest, context: RequestContext) -> None:
        raise CloseConnectionError("acks=0 has no other way to say it")

    async with serve_handlers({ApiKey.PRODUCE: handle}) as server:
        client = await server.connect()
        await client.send(produce(0, acks=0), 7)
        assert await client.is_closed()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "acks=0 has no other way" in caplog.text


async def test_a_handlers_fault_is_answered_and_logged_and_the_connection_goes_on(
    serve_handlers: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(request: Any, context: RequestContext) -> ProduceResponse:
        raise ZeroDivisionError("a bug")

    async with serve_handlers({ApiKey.PRODUCE: fail, ApiKey.LIST_GROUPS: fail, ApiKey.METADATA: metadata}) as server:
        client = await server.connect()
        response = await client.call(ListGroupsRequest(), 2)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        response = await client.call(produce(3), 7)
        (partition,) = response.responses[0].partition_responses
        assert (partition.index, partition.error_code) == (3, ErrorCode.UNKNOWN_SERVER_ERROR)
        await client.call(MetadataRequest(), 5)

        await client.send(produce(0, acks=0), 7)
        assert await client.is_closed()
    assert caplog.text.count("ZeroDivisionError: a bug") == 3


async def test_a_client_that_never_reads_holds_up_only_itself(serve_handlers: Serve) -> None:
    partition = PartitionProduceResponse(error_message="x" * 16_000)
    megabyte = ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[partition] * 64)])
    handled = released = 0

    class Held:
        def release(self) -> None:
            nonlocal released
            released += 1

    async def handle(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        nonlocal handled
        handled += 1
        context.release_after_send(Held())
        return megabyte

    async with serve_handlers({ApiKey.PRODUCE: handle, ApiKey.METADATA: metadata}, grace_seconds=0.1) as server:
        deaf = await server.connect()
        deaf.stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for index in range(200):
            await deaf.send(produce(index), 8)
        other = await server.connect()
        for _ in range(20):
            await other.call(MetadataRequest(), 5)
        await wait_all_tasks_blocked(0.02)
        assert handled < 100
        assert 1 <= handled - released <= 16
    assert handled == released


async def test_an_idle_connection_is_closed_and_a_working_one_is_not(
    serve_handlers: Serve, autojump_clock: trio.testing.MockClock
) -> None:
    async def slow(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        await trio.sleep(60)
        return MetadataResponse(controller_id=1)

    async with serve_handlers({ApiKey.METADATA: slow}, max_idle_ms=10_000) as server:
        idle = await server.connect()
        working = await server.connect()
        await working.send(MetadataRequest(), 5)
        autojump_clock.autojump_threshold = 0.02
        assert await idle.is_closed()
        assert (await working.receive(ApiKey.METADATA, 5))[1].controller_id == 1


async def test_who_does_not_read_is_closed_when_the_memory_for_answers_is_spent(
    serve_handlers: Serve, autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def large(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        topics = [MetadataResponseTopic(name="x" * 30_000) for _ in range(1_000)]
        return MetadataResponse(topics=topics)

    async with serve_handlers({ApiKey.METADATA: large}) as server:
        deaf, idle = await server.connect(), await server.connect()
        await deaf.send(MetadataRequest(), 5)
        await wait_all_tasks_blocked(0.05)
        assert server.responses.used_bytes > 30_000_000
        autojump_clock.autojump_threshold = 0.02
        await trio.sleep(60)
        assert server.listeners.connection_count == 2  # there is memory: it may take its time
        left_bytes = server.responses.limit_bytes - server.responses.used_bytes
        server.responses.charge(left_bytes)
        await trio.sleep(11)
        assert server.listeners.connection_count == 1
        assert "has read nothing of its answer for 10 s" in caplog.text
        assert server.responses.used_bytes == left_bytes
        server.responses.refund(left_bytes)
        await idle.stream.aclose()


async def test_connections_beyond_the_limit_of_an_address_are_refused(
    serve_handlers: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}, max_connections_per_ip=2) as server:
        first, second = await server.connect(), await server.connect()
        await first.call(MetadataRequest(), 5)
        await second.call(MetadataRequest(), 5)
        third = await server.connect()
        assert await third.is_closed()
        await first.stream.aclose()
        await wait_all_tasks_blocked(0.01)
        fourth = await server.connect()
        await fourth.call(MetadataRequest(), 5)
    assert "max.connections.per.ip" in caplog.text


async def test_connections_beyond_the_limit_wait_for_a_slot(serve_handlers: Serve) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}, max_connections=1) as server:
        first = await server.connect()
        await first.call(MetadataRequest(), 5)
        second = await server.connect()  # the kernel's backlog takes it
        await second.send(MetadataRequest(), 5)
        await wait_all_tasks_blocked(0.02)
        assert server.listeners.connection_count == 1
        await first.stream.aclose()
        assert (await second.receive(ApiKey.METADATA, 5))[1].controller_id == 7


async def test_a_burst_of_connections_does_not_go_beyond_the_limit(serve_handlers: Serve) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}, max_connections=2) as server:
        waiting = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(8)]
        await wait_all_tasks_blocked(0.02)
        assert server.listeners.connection_count == 2
        for one in waiting:
            one.close()
        await (await server.connect()).call(MetadataRequest(), 5)


async def test_stop_answers_what_is_under_way(serve_handlers: Serve) -> None:
    flushes = Flushes()
    async with serve_handlers({ApiKey.PRODUCE: flushes.handle, ApiKey.METADATA: metadata}) as server:
        producer, idle = await server.connect(), await server.connect()
        await idle.call(MetadataRequest(), 5)
        sent = [await producer.send(produce(index), 7) for index in range(3)]
        await wait_all_tasks_blocked(0.01)
        server.listeners.stop()
        assert await idle.is_closed()
        for index in range(3):
            flushes.flushed[index].set()
        assert [(await producer.receive(ApiKey.PRODUCE, 7))[0] for _ in sent] == sent
        assert await producer.is_closed()


async def test_stop_cuts_what_does_not_end_in_time(serve_handlers: Serve) -> None:
    flushes = Flushes()
    async with serve_handlers({ApiKey.PRODUCE: flushes.handle}, grace_seconds=0.05) as server:
        producer = await server.connect()
        await producer.send(produce(0), 7)
        await wait_all_tasks_blocked(0.01)
        server.listeners.stop()
        assert await producer.is_closed()


async def test_a_reset_is_no_fault_of_the_server(serve_handlers: Serve, caplog: pytest.LogCaptureFixture) -> None:
    flushes = Flushes()
    async with serve_handlers({ApiKey.PRODUCE: flushes.handle, ApiKey.METADATA: metadata}) as server:
        for _ in range(5):
            client = await server.connect()
            await client.send(produce(0), 7)
            await wait_all_tasks_blocked(0.005)
            client.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            await client.stream.aclose()
        flushes.flushed[0].set()
        other = await server.connect()
        await other.call(MetadataRequest(), 5)
    assert all(record.levelno < logging.WARNING for record in caplog.records)
    assert "Traceback" not in caplog.text
