"""An answer that its client takes in pieces: the event loop's wait sends it, and its connection's task sleeps."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from ottla.server.apis.context import RequestContext
from ottla.server.network import readiness
from ottla.server.network.readiness import Served
from ottla.server.network.response_sender import ResponseSender

Serve = Callable[..., Any]

VERSION = 5
NAME = "x" * 32_000
LARGE_BYTES = 8_000_000  # more than the buffers of both sockets take
NO_TASK = "the event loop's wait"


class _Watcher(trio.abc.Instrument):
    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """Asks to see each step."""


@pytest.fixture(params=["in the wait", "in a task", "no epoll"])
async def sender(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What sends the answers, by name."""
    if request.param == "in the wait":
        return NO_TASK
    if request.param == "in a task":
        trio.lowlevel.add_instrument(_Watcher())
        return "readiness.Readiness._run"
    monkeypatch.setattr(readiness, "select", object())
    return "listener.Listeners._serve"


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, Served]]:
    """Each call that has sent some of an answer: by what, and how it ended."""
    found: list[tuple[str, Served]] = []
    go_on = ResponseSender.go_on

    def noted(self: ResponseSender) -> Served:
        served = go_on(self)
        try:
            found.append((trio.lowlevel.current_task().name.rpartition("network.")[2], served))
        except RuntimeError:
            found.append((NO_TASK, served))
        return served

    monkeypatch.setattr(ResponseSender, "go_on", noted)
    return found


def metadata(request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    """Answer at length if all topics are asked for."""
    count = LARGE_BYTES // len(NAME) if request.topics is None else 0
    return MetadataResponse(
        controller_id=context.header.correlation_id, topics=[MetadataResponseTopic(name=NAME)] * count
    )


async def read_large(client: Any) -> int:
    """Read a large answer, which has to be whole; its request's number."""
    number, answer = await client.receive(ApiKey.METADATA, VERSION)
    assert [topic.name for topic in answer.topics] == [NAME] * (LARGE_BYTES // len(NAME))
    assert isinstance(number, int)
    return number


async def test_it_is_sent_as_the_client_takes_it(
    serve_handlers: Serve, sender: str, steps: list[tuple[str, Served]]
) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}) as server:
        client, other = await server.connect(), await server.connect()
        await client.call(MetadataRequest(topics=[]), VERSION)
        await client.send(MetadataRequest(topics=None), VERSION)
        await wait_all_tasks_blocked()
        assert steps[-1] == (sender, Served.BLOCKED)
        assert (await other.call(MetadataRequest(topics=[]), VERSION)).topics == []
        await read_large(client)
        assert (await client.call(MetadataRequest(topics=[]), VERSION)).topics == []
    assert {name for name, _ in steps} == {sender}
    assert steps[-1][1] is Served.ALL


async def test_requests_that_follow_are_answered_after_it(
    serve_handlers: Serve, sender: str, steps: list[tuple[str, Served]]
) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}) as server:
        client = await server.connect()
        numbers = [await client.send(MetadataRequest(topics=None), VERSION) for _ in range(3)]
        await wait_all_tasks_blocked()
        assert steps[-1][1] is Served.BLOCKED
        assert [await read_large(client) for _ in numbers] == numbers


async def test_a_stop_waits_until_it_has_left(serve_handlers: Serve, sender: str) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}, grace_seconds=30) as server:
        client = await server.connect()
        await client.send(MetadataRequest(topics=None), VERSION)
        await wait_all_tasks_blocked()
        server.listeners.stop()
        await wait_all_tasks_blocked()
        await read_large(client)
        assert await client.is_closed()


async def test_a_client_that_leaves_meanwhile_ends_its_connection(
    serve_handlers: Serve, sender: str, steps: list[tuple[str, Served]]
) -> None:
    async with serve_handlers({ApiKey.METADATA: metadata}, grace_seconds=30) as server:
        client = await server.connect()
        await client.send(MetadataRequest(topics=None), VERSION)
        await wait_all_tasks_blocked()
        assert steps[-1][1] is Served.BLOCKED
        await client.stream.aclose()
        with trio.fail_after(10):
            while server.listeners.connection_count:  # noqa: ASYNC110 - nobody tells
                await trio.sleep(0.005)


async def test_one_that_is_not_read_is_cut_when_the_grace_of_a_stop_is_over(
    serve_handlers: Serve, sender: str, steps: list[tuple[str, Served]]
) -> None:
    with trio.fail_after(10):
        async with serve_handlers({ApiKey.METADATA: metadata}, grace_seconds=0.05) as server:
            client = await server.connect()
            await client.send(MetadataRequest(topics=None), VERSION)
            await wait_all_tasks_blocked()
            assert steps[-1] == (sender, Served.BLOCKED)
    assert server.listeners.connection_count == 0
    assert Served.ALL not in {served for _, served in steps}


@pytest.mark.parametrize(
    ("setting", "option"),
    [("socket.send.buffer.bytes", socket.SO_SNDBUF), ("socket.receive.buffer.bytes", socket.SO_RCVBUF)],
)
async def test_the_kernel_holds_no_more_than_the_setting_says(
    serve_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, setting: str, option: int
) -> None:
    found = []
    send = ResponseSender.send_at_once

    def noted(self: ResponseSender, *words: Any) -> bool:
        assert self._transport.descriptor is not None
        with socket.socket(fileno=os.dup(self._transport.descriptor)) as connected:
            found.append(connected.getsockopt(socket.SOL_SOCKET, option))
        return send(self, *words)

    monkeypatch.setattr(ResponseSender, "send_at_once", noted)
    async with serve_node({setting: "50000"}) as node:
        await (await node.connect()).call(MetadataRequest(topics=[]), VERSION)
    # Linux takes twice of what is asked for, to account for what it needs itself.
    assert set(found) <= {50_000, 100_000}
    assert found
