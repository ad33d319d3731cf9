"""What is served in the turn that receives it, and what is left to the connection's task."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from ottla.kproto.messages.groups.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.errors import CloseConnectionError
from ottla.server.apis.context import RequestContext
from ottla.server.apis.pending import Pending
from ottla.server.network import readiness, response_sender
from ottla.server.network.readiness import Served
from ottla.storage.turn import Turn
from tests.flags import Flag

Serve = Callable[..., Any]

NO_TASK = "the event loop's wait"


class _Watcher(trio.abc.Instrument):
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Asks to see each step."""


def _task_at_work() -> str:
    try:
        return trio.lowlevel.current_task().name
    except RuntimeError:
        return NO_TASK


@pytest.fixture(params=["in the wait", "in a task", "one at a time"])
async def served(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How requests are served that need no waiting: the name of what does it."""
    if request.param == "one at a time":
        monkeypatch.setattr(readiness, "TURN_SECONDS", 0)
    if request.param != "in a task":
        return NO_TASK
    trio.lowlevel.add_instrument(_Watcher())
    return "Readiness._run"


class Handlers:
    """Metadata is answered at once, ListGroups by a coroutine that waits until the test says so."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.go_on = trio.Event()

    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        self.tasks.append(_task_at_work())
        return MetadataResponse(cluster_id="c", controller_id=context.header.correlation_id)

    async def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        self.tasks.append(_task_at_work())
        await self.go_on.wait()
        return ListGroupsResponse()

    @property
    def all(self) -> dict[ApiKey, Any]:
        return {ApiKey.METADATA: self.metadata, ApiKey.LIST_GROUPS: self.list_groups}


async def test_what_needs_no_waiting_needs_no_task_of_its_own(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        clients = [await server.connect() for _ in range(3)]
        for _ in range(3):
            for client in clients:
                await client.call(MetadataRequest(), 5)
    assert len(set(handlers.tasks)) == 1
    assert served in handlers.tasks[0]


async def test_a_request_that_waits_holds_up_only_what_is_behind_it(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        slow, quick = await server.connect(), await server.connect()
        sent = [
            await slow.send(MetadataRequest(), 5),
            await slow.send(ListGroupsRequest(), 2),
            await slow.send(MetadataRequest(), 5),
        ]
        for _ in range(5):
            await quick.call(MetadataRequest(), 5)
        await wait_all_tasks_blocked(0.01)
        assert handlers.tasks.count(handlers.tasks[0]) == 6
        # Its bytes are there and its task is at work: nobody is told of them in vain.
        await slow.send(MetadataRequest(), 5)
        await wait_all_tasks_blocked(0.01)
        handlers.go_on.set()
        received = [(await slow.receive(key, 2 if key is ApiKey.LIST_GROUPS else 5))[0] for key in _keys()]
        assert received == [*sent, sent[-1] + 1]
        # And then it sleeps again, and is served without its task.
        await slow.call(MetadataRequest(), 5)
        await slow.call(MetadataRequest(), 5)
        assert served in handlers.tasks[-1]


async def test_who_has_waited_is_served_without_its_task_again(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    handlers.go_on.set()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        for _ in range(20):
            await client.call(ListGroupsRequest(), 2)
            await client.call(MetadataRequest(), 5)
    assert served not in "".join(handlers.tasks[::2])
    assert {served in name for name in handlers.tasks[3::2]} == {True}


def _keys() -> list[ApiKey]:
    return [ApiKey.METADATA, ApiKey.LIST_GROUPS, ApiKey.METADATA, ApiKey.METADATA]


async def test_a_burst_is_answered_in_order(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        frames = [build_request_frame(MetadataRequest(), 5, number, "test") for number in range(100)]
        await client.stream.send_all(b"".join(frames))
        assert [(await client.receive(ApiKey.METADATA, 5))[0] for _ in frames] == list(range(100))


async def test_a_request_may_come_byte_by_byte(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        frame = build_request_frame(MetadataRequest(), 5, 3, "test")
        for byte in frame + frame:
            await client.stream.send_all(bytes([byte]))
            await wait_all_tasks_blocked()
        assert [(await client.receive(ApiKey.METADATA, 5))[0] for _ in range(2)] == [3, 3]


async def test_who_does_not_read_its_answers_holds_up_nobody_else(serve_handlers: Serve, served: str) -> None:
    groups = [ListedGroup(group_id=f"{number:0200}") for number in range(100)]

    def list_groups(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
        return ListGroupsResponse(groups=groups)

    handlers = Handlers()
    async with serve_handlers({**handlers.all, ApiKey.LIST_GROUPS: list_groups}) as server:
        deaf, other = await server.connect(), await server.connect()
        frames = [build_request_frame(ListGroupsRequest(), 2, number, "test") for number in range(600)]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deaf.stream.send_all, b"".join(frames))
            await wait_all_tasks_blocked(0.01)
            for _ in range(5):
                await other.call(MetadataRequest(), 5)
            for number in range(600):
                correlation_id, response = await deaf.receive(ApiKey.LIST_GROUPS, 2)
                assert correlation_id == number
                assert response.groups[-1].group_id == groups[-1].group_id


@pytest.mark.parametrize("large_answer_bytes", [10, 1 << 20])
async def test_an_answer_is_sent_whole_by_the_turn_and_by_the_task(
    serve_handlers: Serve, monkeypatch: pytest.MonkeyPatch, large_answer_bytes: int
) -> None:
    monkeypatch.setattr(response_sender, "LARGE_ANSWER_BYTES", large_answer_bytes)
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        for _ in range(3):
            assert (await client.call(MetadataRequest(), 5)).cluster_id == "c"


async def test_a_fault_of_a_handler_is_its_own_connections(
    serve_handlers: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        if request.topics is None:
            raise CloseConnectionError("the handler says so")
        raise RuntimeError("not meant to happen")

    handlers = Handlers()
    async with serve_handlers({**handlers.all, ApiKey.METADATA: metadata}) as server:
        one, other = await server.connect(), await server.connect()
        answer = await one.call(MetadataRequest(topics=[]), 5)
        assert answer.topics == []
        await one.send(MetadataRequest(topics=None), 5)
        assert await one.is_closed()
        await other.stream.send_all(struct.pack(">i", -5))
        assert await other.is_closed()
        handlers.go_on.set()
        assert (await (await server.connect()).call(ListGroupsRequest(), 2)).error_code == ErrorCode.NONE
    assert [record.getMessage() for record in caplog.records if "the handler says so" in record.getMessage()]


async def test_a_connection_that_sleeps_ends_with_its_client_and_with_the_server(
    serve_handlers: Serve, served: str
) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        gone, kept = await server.connect(), await server.connect()
        for client in (gone, kept):
            await client.call(MetadataRequest(), 5)
        assert server.listeners.connection_count == 2
        await gone.stream.aclose()
        with trio.fail_after(5):
            while server.listeners.connection_count == 2:
                await trio.lowlevel.checkpoint()
        # A descriptor that is used again is another connection's.
        again = await server.connect()
        await again.call(MetadataRequest(), 5)
        await kept.call(MetadataRequest(), 5)
        server.listeners.stop()
        assert await kept.is_closed()
        assert await again.is_closed()


class _AlwaysReadable:
    """A transport from which nobody receives what has come."""

    def __init__(self) -> None:
        self._ends = socket.socketpair()
        self._ends[1].send(b"x")
        self.descriptor = self._ends[0].fileno()

    def close(self) -> None:
        for end in self._ends:
            end.close()


async def test_who_always_has_more_leaves_others_their_turn(served: str) -> None:
    waiting = readiness.Readiness(Turn())
    transports: list[Any] = [_AlwaysReadable() for _ in range(5)]
    turns = [0] * len(transports)
    ways = [Served.ALL, Served.HAS_MORE, Served.ALL, Served.HAS_MORE, Served.ALL]
    async with waiting.running():
        async with trio.open_nursery() as nursery:

            def serve_one(number: int) -> Served:
                turns[number] += 1
                return ways[number] if turns[number] < 1_000 else Served.NEEDS_TASK

            for number, transport in enumerate(transports):
                nursery.start_soon(waiting.serve, transport, partial(serve_one, number))
            while max(turns) < 100:
                await trio.lowlevel.checkpoint()
            assert min(turns) > 10
        for transport in transports:
            waiting.forget(transport)
            transport.close()


async def test_tasks_go_on_while_a_crowd_is_served(serve_handlers: Serve, served: str) -> None:
    handlers = Handlers()
    turns = 0
    async with serve_handlers(handlers.all) as server, trio.open_nursery() as nursery:
        clients = [await server.connect() for _ in range(3)]

        async def ask(client: Any) -> None:
            for _ in range(50):
                await client.call(MetadataRequest(), 5)

        async def work() -> None:
            nonlocal turns
            while True:
                await trio.lowlevel.checkpoint()
                turns += 1

        nursery.start_soon(work)
        async with trio.open_nursery() as asking:
            for client in clients:
                asking.start_soon(ask, client)
        assert turns >= 50
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("ends_first", [True, False])
async def test_two_servers_on_one_loop_serve_until_each_ends(serve_handlers: Serve, *, ends_first: bool) -> None:
    """One of them has the place in the loop's wait, and may end before the other one or after it."""
    handlers = [Handlers(), Handlers()]
    async with serve_handlers(handlers[0].all) as one, serve_handlers(handlers[1].all) as other:
        clients = [await one.connect(), await other.connect()]
        for client in clients:
            await client.call(MetadataRequest(), 5)
            await client.call(MetadataRequest(), 5)
        in_wait = [NO_TASK in each.tasks[-1] for each in handlers]
        assert sorted(in_wait) == [False, True]
        ended = in_wait.index(ends_first)
        (one, other)[ended].listeners.stop()
        assert await clients[ended].is_closed()
        await wait_all_tasks_blocked(0.01)
        for _ in range(3):
            await clients[1 - ended].call(MetadataRequest(), 5)


async def test_timers_and_threads_are_heeded_while_nobody_asks(serve_handlers: Serve) -> None:
    async with serve_handlers(Handlers().all) as server:
        client = await server.connect()
        await client.call(MetadataRequest(), 5)
        with trio.fail_after(5):
            await trio.sleep(0.01)
            assert await trio.to_thread.run_sync(lambda: 1) == 1
            await client.call(MetadataRequest(), 5)


async def test_timers_and_threads_are_heeded_while_somebody_asks_without_a_pause(serve_handlers: Serve) -> None:
    """The event loop's wait serves one request after the other, and goes back to Trio when that has something to do."""
    handlers = Handlers()
    stops = threading.Event()
    async with serve_handlers(handlers.all) as server, trio.open_nursery() as nursery:
        nursery.start_soon(trio.to_thread.run_sync, ask_until, stops, server.port)
        with trio.fail_after(20):
            while len(handlers.tasks) < 10:  # noqa: ASYNC110 - nobody else may set an event in that wait
                await trio.sleep(0.001)
            asked = len(handlers.tasks)
            for _ in range(10):
                await trio.sleep(0.001)
                assert await trio.to_thread.run_sync(lambda: 1) == 1
            while len(handlers.tasks) < asked + 10:  # noqa: ASYNC110 - nor in this one
                await trio.sleep(0.001)
        stops.set()


async def test_a_timer_that_a_request_sets_is_heeded_in_time(serve_handlers: Serve) -> None:
    handlers = Handlers()
    sleep = trio.CancelScope()

    def wake_soon(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        sleep.deadline = trio.current_time() + 0.05
        return handlers.metadata(request, context)

    stops = threading.Event()
    stops.set()  # after one request
    async with serve_handlers({**handlers.all, ApiKey.METADATA: wake_soon}) as server, trio.open_nursery() as nursery:
        client = await server.connect()
        await client.call(MetadataRequest(), 5)
        sleep = trio.CancelScope()
        with trio.fail_after(20):
            nursery.start_soon(trio.to_thread.run_sync, ask_until, stops, server.port)
            with sleep:
                await trio.sleep_forever()
        assert sleep.cancelled_caught


def ask_until(stops: threading.Event, port: int) -> None:
    """Ask again as soon as there is an answer, from a thread."""
    frame = build_request_frame(MetadataRequest(), 5, 1, "thread")
    with socket.create_connection(("127.0.0.1", port)) as connected, connected.makefile("rb") as answers:
        while True:
            connected.sendall(frame)
            assert answers.read(int.from_bytes(answers.read(4), "big"))
            if stops.is_set():
                return


class Produced(Pending):
    """What a handler of Produce leaves to the end of the turn: it is ready when the test says that it is written."""

    def __init__(self, handlers: Producing, number: int) -> None:
        self._handlers = handlers
        self._number = number

    @property
    def is_ready(self) -> bool:
        return self._number < self._handlers.written

    def watch(self, ready: Callable[[], None]) -> None:
        self._handlers.more_written.watch(ready)

    def response(self) -> ProduceResponse:
        topic = TopicProduceResponse(partition_responses=[PartitionProduceResponse(base_offset=self._number)])
        return ProduceResponse(responses=[topic])


class Producing(Handlers):
    """Produce appends, and the end of the turn writes what was appended, unless the disk is slow."""

    def __init__(self) -> None:
        super().__init__()
        self.appended = self.written = 0
        self.is_slow = False
        self.more_written = Flag()
        self.turns: list[int] = []
        self.turn: Turn

    def produce(self, request: ProduceRequest, context: RequestContext) -> Produced:
        self.tasks.append(_task_at_work())
        if not self.turns or self.turns[-1] < 0:
            self.turns.append(0)
            self.turn.write(self._end_turn)
        self.turns[-1] += 1
        self.appended += 1
        return Produced(self, self.appended - 1)

    def _end_turn(self) -> None:
        self.turns.append(-1)
        if not self.is_slow:
            self.write()

    def write(self) -> None:
        self.written = self.appended
        more_written, self.more_written = self.more_written, Flag()
        more_written.set()

    @property
    def all(self) -> dict[ApiKey, Any]:
        return {**super().all, ApiKey.PRODUCE: self.produce}


def produce_frame(number: int) -> bytes:
    return build_request_frame(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[]), 9, number, "test")


async def offsets_of(client: Any, count: int) -> list[tuple[int, int]]:
    """The correlation ids and offsets of the next answers."""
    found = []
    for _ in range(count):
        correlation_id, response = await client.receive(ApiKey.PRODUCE, 9)
        found.append((correlation_id, response.responses[0].partition_responses[0].base_offset))
    return found


async def test_what_the_end_of_the_turn_completes_needs_no_task(serve_handlers: Serve, served: str) -> None:
    handlers = Producing()
    async with serve_handlers(handlers.all) as server:
        handlers.turn = server.turn
        clients = [await server.connect() for _ in range(3)]
        for turn in range(5):
            for client in clients:
                await client.stream.send_all(produce_frame(turn))
            answers = [(await offsets_of(client, 1))[0] for client in clients]
            assert [correlation_id for correlation_id, _ in answers] == [turn] * 3
            assert sorted(offset for _, offset in answers) == list(range(3 * turn, 3 * turn + 3))
    assert len(set(handlers.tasks)) == 1
    assert served in handlers.tasks[0]


async def test_a_client_that_sends_ahead_is_served_a_few_at_a_time_and_answered_in_order(
    serve_handlers: Serve, served: str
) -> None:
    handlers = Producing()
    async with serve_handlers(handlers.all) as server:
        handlers.turn = server.turn
        client = await server.connect()
        await client.stream.send_all(b"".join(produce_frame(number) for number in range(50)))
        assert await offsets_of(client, 50) == [(number, number) for number in range(50)]
    assert max(handlers.turns) == 4


@pytest.mark.parametrize("max_pipelined", [1, 2])
async def test_no_more_are_begun_ahead_than_may_be(serve_handlers: Serve, served: str, max_pipelined: int) -> None:
    handlers = Producing()
    async with serve_handlers(handlers.all, max_pipelined=max_pipelined) as server:
        handlers.turn = server.turn
        client = await server.connect()
        await client.stream.send_all(b"".join(produce_frame(number) for number in range(20)))
        assert await offsets_of(client, 20) == [(number, number) for number in range(20)]
    assert max(handlers.turns) == max_pipelined


@pytest.mark.parametrize("size", [1, 7, 50])
async def test_requests_that_come_in_parts_need_no_task_either(serve_handlers: Serve, served: str, size: int) -> None:
    handlers = Producing()
    async with serve_handlers(handlers.all) as server:
        handlers.turn = server.turn
        client = await server.connect()
        sent = b"".join(produce_frame(number) for number in range(6))
        for start in range(0, len(sent), size):
            await client.stream.send_all(sent[start : start + size])
            await wait_all_tasks_blocked()
        assert await offsets_of(client, 6) == [(number, number) for number in range(6)]
    assert len(set(handlers.tasks)) == 1
    assert served in handlers.tasks[0]


async def test_what_takes_longer_than_the_turn_is_answered_by_the_task_and_in_order(
    serve_handlers: Serve, served: str
) -> None:
    handlers = Producing()
    handlers.is_slow = True
    async with serve_handlers(handlers.all) as server:
        handlers.turn = server.turn
        client, other = await server.connect(), await server.connect()
        frames = [produce_frame(number) for number in range(3)]
        await client.stream.send_all(b"".join(frames) + build_request_frame(MetadataRequest(), 5, 3, "test"))
        await wait_all_tasks_blocked(0.01)
        assert (handlers.appended, len(handlers.tasks)) == (3, 3), "what is behind them waits"
        await other.call(MetadataRequest(), 5)
        await client.stream.send_all(produce_frame(4))
        handlers.write()
        assert await offsets_of(client, 3) == [(number, number) for number in range(3)]
        assert (await client.receive(ApiKey.METADATA, 5))[0] == 3
        await wait_all_tasks_blocked(0.01)
        handlers.write()
        assert await offsets_of(client, 1) == [(4, 3)]
        # And then it is served without its task again.
        handlers.is_slow = False
        for number in range(5, 50):
            await client.stream.send_all(produce_frame(number))
            assert await offsets_of(client, 1) == [(number, number - 1)]
        assert served in handlers.tasks[-1]


async def test_what_was_appended_before_a_fault_is_answered(serve_handlers: Serve, served: str) -> None:
    handlers = Producing()
    async with serve_handlers(handlers.all) as server:
        handlers.turn = server.turn
        client = await server.connect()
        await client.stream.send_all(produce_frame(0) + produce_frame(1) + struct.pack(">i", -5))
        assert await offsets_of(client, 2) == [(0, 0), (1, 1)]
        assert await client.is_closed()


async def test_a_connection_that_ends_before_the_turn_does_holds_nothing(serve_handlers: Serve, served: str) -> None:
    handlers = Producing()
    handlers.is_slow = True
    async with serve_handlers(handlers.all, grace_seconds=0) as server:
        handlers.turn = server.turn
        client = await server.connect()
        await client.stream.send_all(produce_frame(0) + produce_frame(1) + produce_frame(2)[:9])
        await wait_all_tasks_blocked(0.01)
        server.listeners.stop()
        assert await client.is_closed()


async def test_a_deadline_that_the_end_of_a_turn_sets_is_kept() -> None:
    """How long the loop waits is decided before it ends the turn of its tasks."""
    turn = Turn()
    async with readiness.Readiness(turn).running():
        with trio.move_on_after(20) as late, trio.CancelScope() as scope:

            def begin_to_count() -> None:
                scope.deadline = trio.current_time() + 0.05

            turn.answer(begin_to_count)
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert not late.cancelled_caught
