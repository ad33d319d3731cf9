"""An upstream over TCP that answers as a test says, and a proxy in front of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponseBroker
from ottla.kproto.schema import Request, Response
from ottla.kproto.versions import VersionRange
from ottla.proxy.filters.chain import Named
from ottla.proxy.proxy import Proxy, Ready
from ottla.proxy.shared import Settings
from tests.client.brokers import BrokerSide, Received, answer, versions
from tests.servers import Client

Handler = Callable[[Received], Response | None]


class UpstreamConnection:
    """One connection that the proxy has made."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._side = BrokerSide()
        self._received: list[Received] = []

    async def next(self) -> Received:
        """The next request; EOFError if the proxy hangs up."""
        while not self._received:
            try:
                data = await self.stream.receive_some(1 << 18)
            except trio.BrokenResourceError:
                data = b""
            if not data:
                raise EOFError
            self._received += self._side.feed([bytes(data)])
        return self._received.pop(0)

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)


class Upstream:
    """A listening port. What no handler is given for is left to the test: `connections` has each, as it comes."""

    def __init__(self, brokers: dict[int, tuple[str, int]] | None = None) -> None:
        self.brokers = brokers
        self.port = 0
        self.served: dict[ApiKey, VersionRange] | None = None
        self.handlers: dict[ApiKey, Handler] = {ApiKey.METADATA: lambda received: self.metadata()}
        self.requests: list[Received] = []
        self.by_hand = False
        self._sender, self.connections = trio.open_memory_channel[UpstreamConnection](100)

    def metadata(self, **fields: Any) -> MetadataResponse:
        """An answer that names the brokers: this one, unless the test has said which."""
        brokers = {1: ("127.0.0.1", self.port)} if self.brokers is None else self.brokers
        listed = [MetadataResponseBroker(node_id=it, host=host, port=port) for it, (host, port) in brokers.items()]
        return MetadataResponse(brokers=listed, **fields)

    async def run(self, task_status: trio.TaskStatus[int]) -> None:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        self.port = listeners[0].socket.getsockname()[1]
        task_status.started(self.port)
        await trio.serve_listeners(self._serve, listeners)

    async def _serve(self, stream: trio.SocketStream) -> None:
        connection = UpstreamConnection(stream)
        if self.by_hand:
            await self._sender.send(connection)
            await trio.sleep_forever()
        try:
            while True:
                received = await connection.next()
                self.requests.append(received)
                if received.key is ApiKey.API_VERSIONS:
                    await connection.send(versions(received, self.served))
                elif (response := self.handlers[received.key](received)) is not None:
                    await connection.send(answer(received, response))
        except (EOFError, trio.BrokenResourceError):
            return


class RunningProxy:
    """A proxy on a free port."""

    def __init__(self, proxy: Proxy, ready: Ready, upstream: Upstream) -> None:
        self.proxy = proxy
        self.ready = ready
        self.upstream = upstream
        self.clients: list[Client] = []

    async def connect(self, port: int | None = None) -> Client:
        """A client of the bootstrap port, or of another one."""
        client = Client(await trio.open_tcp_stream("127.0.0.1", self.ready.port if port is None else port))
        self.clients.append(client)
        return client

    async def call(self, request: Request, version: int) -> Any:
        """One request on a connection of its own."""
        return await (await self.connect()).call(request, version)


@pytest.fixture
def serve_proxy() -> Callable[..., Any]:
    """`async with serve_proxy(upstream, **settings) as proxy`: everything is given back at the end."""

    @asynccontextmanager
    async def serve(
        upstream: Upstream, *, filters: Sequence[Named] = (), **settings: Any
    ) -> AsyncIterator[RunningProxy]:
        async with trio.open_nursery() as nursery:
            port = await nursery.start(upstream.run)
            proxy = Proxy(Settings([("127.0.0.1", port)], ("127.0.0.1", 0), **settings), filters)
            async with trio.open_nursery() as serving:
                running = RunningProxy(proxy, await serving.start(proxy.serve), upstream)
                try:
                    yield running
                finally:
                    for client in running.clients:
                        await trio.aclose_forcefully(client.stream)
                    proxy.stop()
            assert_nothing_held(proxy)
            nursery.cancel_scope.cancel()

    return serve


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Wait for something that is about to happen."""
    with trio.fail_after(seconds):
        while not condition():  # noqa: ASYNC110 - nothing tells of a counter
            await trio.sleep(0.002)


def assert_nothing_held(proxy: Proxy) -> None:
    """After `serve`: every connection has given back what it took."""
    shared, listeners = proxy._shared, proxy._listeners
    assert shared.chunks.lent == 0
    assert shared.requests.used_bytes == shared.responses.used_bytes == 0
    assert shared.hits.used_bytes == 0
    assert not listeners.connection_count
