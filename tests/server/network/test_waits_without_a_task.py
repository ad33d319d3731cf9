"""What waits in stages for something that calls (`CalledWait`) needs no task until then, and mostly none after it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.produce import ProduceRequest, ProduceResponse
from ottla.kproto.messages.groups.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.stages import Stages
from ottla.server.apis.context import RequestContext
from ottla.server.apis.pending import Answer, begin
from ottla.server.network import readiness
from tests.flags import Flag, FlagWait

Serve = Callable[..., Any]


class Handlers:
    """ListGroups waits until the test says so, and does what it is to do then; Metadata is answered at once."""

    def __init__(self) -> None:
        self.flags = [Flag() for _ in range(8)]
        self.waits: list[FlagWait] = []
        self.tasks: list[str] = []
        self.ended: list[bool] = []
        self.rest: Callable[[], Stages[None]] | None = None

    def list_groups(self, request: ListGroupsRequest, context: RequestContext) -> Answer:
        return begin(self._list_groups(context))

    def _list_groups(self, context: RequestContext) -> Stages[ListGroupsResponse]:
        wait = FlagWait(self.flags[len(self.waits)])
        self.waits.append(wait)
        self.ended.append(False)
        number = len(self.waits) - 1
        try:
            yield wait
            self.tasks.append(_task_at_work())
            if self.rest is not None:
                yield from self.rest()
            return ListGroupsResponse(throttle_time_ms=number)
        finally:
            self.ended[number] = True

    def metadata(self, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
        return MetadataResponse(controller_id=len(self.waits))

    @property
    def all(self) -> dict[ApiKey, Any]:
        return {ApiKey.LIST_GROUPS: self.list_groups, ApiKey.METADATA: self.metadata}


def _task_at_work() -> str:
    try:
        return trio.lowlevel.current_task().name
    except RuntimeError:
        return ""


@pytest.fixture(params=["epoll", "no epoll"], autouse=True)
def waits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With and without a system that waits for many sockets at one place; without, each task waits, as with TLS."""
    if request.param == "no epoll":
        monkeypatch.setattr(readiness, "select", object())


async def test_it_is_answered_without_a_task(serve_handlers: Serve) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        await client.call(MetadataRequest(), 5)
        for number in range(8):
            await client.send(ListGroupsRequest(), 2)
            await wait_all_tasks_blocked(0.01)
            assert len(handlers.waits) == number + 1
            handlers.flags[number].set()
            assert (await client.receive(ApiKey.LIST_GROUPS, 2))[1].throttle_time_ms == number
    assert [wait.tasks for wait in handlers.waits] == [0] * 8
    assert {name for name in handlers.tasks if "Connection" in name or "_serve" in name} == set()


async def test_where_it_needs_a_task_then_it_gets_the_connections_own(serve_handlers: Serve) -> None:
    handlers = Handlers()
    read = trio.Event()

    def rest() -> Stages[None]:
        yield read.wait
        handlers.tasks.append(_task_at_work())

    handlers.rest = rest
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        await client.send(ListGroupsRequest(), 2)
        await wait_all_tasks_blocked(0.01)
        handlers.flags[0].set()
        await wait_all_tasks_blocked(0.01)
        assert len(handlers.tasks) == 1
        read.set()
        await client.receive(ApiKey.LIST_GROUPS, 2)
        await client.call(MetadataRequest(), 5)
    assert handlers.waits[0].tasks == 0
    assert "_serve" in handlers.tasks[1]


async def test_what_is_sent_meanwhile_is_answered_after_it(serve_handlers: Serve) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        sent = [await client.send(ListGroupsRequest(), 2)]
        await wait_all_tasks_blocked(0.01)
        sent += [await client.send(MetadataRequest(), 5), await client.send(ListGroupsRequest(), 2)]
        await wait_all_tasks_blocked(0.01)
        assert len(handlers.waits) == 1
        handlers.flags[0].set()
        keys = [(ApiKey.LIST_GROUPS, 2), (ApiKey.METADATA, 5)]
        assert [(await client.receive(*key))[0] for key in keys] == sent[:2]
        await wait_all_tasks_blocked(0.01)
        handlers.flags[1].set()
        assert (await client.receive(ApiKey.LIST_GROUPS, 2))[0] == sent[2]
    assert handlers.ended == [True, True]


async def test_what_was_sent_with_it_is_not_begun_before_it_is_answered(serve_handlers: Serve) -> None:
    handlers = Handlers()
    begun = []

    def produce(request: ProduceRequest, context: RequestContext) -> ProduceResponse:
        begun.append(context.header.correlation_id)
        return ProduceResponse()

    async with serve_handlers({**handlers.all, ApiKey.PRODUCE: produce}) as server:
        client = await server.connect()
        burst = [ListGroupsRequest(), ProduceRequest(acks=1, timeout_ms=1), ProduceRequest(acks=1, timeout_ms=1)]
        versions = [2, 9, 9]
        asked = list(zip(burst, versions, strict=True))
        await client.stream.send_all(b"".join(build_request_frame(*it, n, "") for n, it in enumerate(asked)))
        await wait_all_tasks_blocked(0.01)
        assert begun == []
        handlers.flags[0].set()
        assert [(await client.receive(it.API_KEY, version))[0] for it, version in asked] == [0, 1, 2]
    assert begun == [1, 2]


async def test_a_fault_after_the_wait_is_answered_and_logged_and_the_connection_goes_on(
    serve_handlers: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers()

    def rest() -> Stages[None]:
        yield from ()
        raise ZeroDivisionError("a bug")

    handlers.rest = rest
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        await client.send(ListGroupsRequest(), 2)
        await wait_all_tasks_blocked(0.01)
        handlers.flags[0].set()
        response = (await client.receive(ApiKey.LIST_GROUPS, 2))[1]
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        await client.call(MetadataRequest(), 5)
    assert "ZeroDivisionError: a bug" in caplog.text


async def test_what_comes_after_the_wait_may_close_the_connection(
    serve_handlers: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    handlers = Handlers()

    def rest() -> Stages[None]:
        yield from ()
        raise CloseConnectionError("there is no other answer")

    handlers.rest = rest
    async with serve_handlers(handlers.all) as server:
        client = await server.connect()
        await client.send(ListGroupsRequest(), 2)
        await wait_all_tasks_blocked(0.01)
        handlers.flags[0].set()
        assert await client.is_closed()
    assert "there is no other answer" in caplog.text


async def test_a_connection_that_ends_meanwhile_gives_it_up(serve_handlers: Serve) -> None:
    handlers = Handlers()
    async with serve_handlers(handlers.all, grace_seconds=0) as server:
        client = await server.connect()
        await client.send(ListGroupsRequest(), 2)
        await wait_all_tasks_blocked(0.01)
        server.listeners.stop()
        assert await client.is_closed()
    assert handlers.ended == [True]
    assert handlers.waits[0].is_given_up
    handlers.flags[0].set()
