"""Servers for tests: connections over handlers made for the test, and whole nodes; and a client of both."""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.frames import build_request_frame, parse_response_frame
from ottla.kproto.schema import Request, Response
from ottla.metadata.changes.topic_changes import NewTopic
from ottla.replica.unopened import OPENED_AT_START
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.request_budget import RequestBudget
from ottla.runtime.supervisor import Supervisor
from ottla.runtime.work import LargeRequestQueue
from ottla.server.apis.pending import finish, handler_of
from ottla.server.apis.served_api import ServedApi
from ottla.server.apis.table import ApiTable, declaration
from ottla.server.main import Node, Ready
from ottla.server.network.dispatch import Dispatcher
from ottla.server.network.listener import ListenAddress, Listeners
from ottla.server.quotas.connections import ConnectionLimits
from ottla.settings.config import BrokerConfig
from ottla.simulation.turns import SoonEnded
from ottla.storage.disk import Disk
from ottla.storage.memory.buffer_pool import BufferPool


async def answered(answer: Any) -> Any:
    """The response that a handler has returned, or promised."""
    if isinstance(answer, Coroutine):
        answer = await answer
    return await finish(answer)


class Client:
    """A client of one connection: sends requests, reads responses, or any bytes at all."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._received = bytearray()
        self._correlation_id = 0

    async def send(self, request: Request, version: int) -> int:
        """Send a request and return its correlation id."""
        self._correlation_id += 1
        await self.stream.send_all(build_request_frame(request, version, self._correlation_id, "test"))
        return self._correlation_id

    async def send_frame(self, body: bytes) -> None:
        await self.stream.send_all(struct.pack(">i", len(body)) + body)

    async def receive_frame(self) -> bytes:
        """The next frame; EOFError if the server closed the connection instead."""
        (size,) = struct.unpack(">i", await self._exactly(4))
        return await self._exactly(size)

    async def receive(self, key: ApiKey, version: int) -> tuple[int, Any]:
        """The next response: its correlation id and body."""
        return parse_response_frame(key, version, await self.receive_frame())

    async def call(self, request: Request, version: int) -> Any:
        """Send a request and return its response."""
        sent = await self.send(request, version)
        received, response = await self.receive(request.API_KEY, version)
        assert received == sent
        return response

    async def is_closed(self) -> bool:
        """Wait until the server closes; False if it sends something instead."""
        try:
            return await self.stream.receive_some(65536) == b""
        except trio.BrokenResourceError:
            return True

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            data = await self.stream.receive_some(1 << 18)
            if not data:
                raise EOFError
            self._received += data
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken


class ConnectionServer:
    """Listeners over handlers made for the test."""

    def __init__(self, handlers: Mapping[ApiKey, Callable[..., Awaitable[Response | None]]], **limits: Any) -> None:
        self.apis = ApiTable(
            ServedApi(key, lambda key: (declaration(key), handler_of(handlers[key]))) for key in handlers
        )
        for api in self.apis:
            # In a worker thread this would take its time, and a test that waits for quiet would find it too early.
            for version in range(api.min_version, api.max_version + 1):
                api.load(version)
                api.prepared_versions.add(version)
        self.clients: list[Client] = []
        self.pool = BufferPool()
        self.turn = SoonEnded()
        self.budget = RequestBudget(64 * 1024 * 1024)
        self.responses = MemoryBudget(64 * 1024 * 1024)
        broker = SimpleNamespace(
            authorizer=None,
            budget=self.budget,
            large_request_queue=LargeRequestQueue(lambda: 500_000, self.budget.parsed, self.responses),
            replica_manager=SimpleNamespace(response_budget=self.responses),
        )
        self.listeners = Listeners(
            Dispatcher(self.apis, broker),  # type: ignore[arg-type]
            self.pool,
            self.budget,
            ConnectionLimits(**limits),
            responses=self.responses,
            turn=self.turn,
        )
        self.port = self.listeners.bind(ListenAddress("PLAINTEXT", "127.0.0.1", 0), backlog=50)

    async def connect(self) -> Client:
        client = Client(await trio.open_tcp_stream("127.0.0.1", self.port))
        self.clients.append(client)
        return client

    def assert_nothing_held(self) -> None:
        assert self.pool.counters.in_use == 0
        assert self.budget.used_bytes == 0
        assert self.responses.used_bytes == 0
        assert self.listeners.connection_count == 0


@pytest.fixture
def serve_handlers() -> Callable[..., Any]:
    """`async with serve_handlers({key: handler}, grace_seconds=…) as server`: leaves nothing held at the end."""

    @asynccontextmanager
    async def serve(
        handlers: Mapping[ApiKey, Callable[..., Awaitable[Response | None]]],
        *,
        grace_seconds: float = 1,
        **limits: Any,
    ) -> AsyncIterator[ConnectionServer]:
        server = ConnectionServer(handlers, **limits)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.listeners.run, grace_seconds)
            try:
                yield server
            finally:
                server.listeners.stop()
        for client in server.clients:
            await client.stream.aclose()
        server.assert_nothing_held()

    return serve


class RunningNode:
    """A node in this process, on a free port and a folder of its own."""

    def __init__(self, node: Node, ready: Ready) -> None:
        self.node = node
        self.broker = ready.broker
        self.port = ready.endpoints[0].port
        self._ports = {endpoint.listener: endpoint.port for endpoint in ready.endpoints}
        self.http_url = ready.http_url
        self.clients: list[Client] = []

    async def connect(self, listener: str | None = None) -> Client:
        """A client of a listener, of the first one unless it is named."""
        port = self.port if listener is None else self._ports[listener]
        client = Client(await trio.open_tcp_stream("127.0.0.1", port))
        self.clients.append(client)
        return client

    async def create_topic(self, name: str, partitions: int = 1, **configs: str) -> UUID:
        """Create a topic and return its id; settings by Kafka's names with underscores for dots."""
        named = {setting.replace("_", "."): value for setting, value in configs.items()}
        topic = await self.broker.controller.create_topic(NewTopic(name, partitions, 1, configs=named))
        return topic.topic_id


@pytest.fixture
def serve_node(tmp_path: Path) -> Callable[..., Any]:
    """`async with serve_node(settings={…}, disk=…) as node`: stops in order and leaves no memory held."""

    @asynccontextmanager
    async def serve(
        settings: Mapping[str, str] | None = None,
        *,
        disk: Disk | None = None,
        data_dir: Path = tmp_path,
        keeps_memory: bool = False,
        outlives_failures: bool = False,
        opened_at_start: int = OPENED_AT_START,
    ) -> AsyncIterator[RunningNode]:
        static = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data_dir), **(settings or {})}
        supervisor = Supervisor(is_strict=not outlives_failures)
        node = Node(BrokerConfig(static), disk=disk, supervisor=supervisor, opened_at_start=opened_at_start)
        async with trio.open_nursery() as nursery:
            running = RunningNode(node, await nursery.start(node.serve))
            try:
                yield running
            finally:
                for client in running.clients:
                    await trio.aclose_forcefully(client.stream)
                node.stop()
        if not keeps_memory:  # a store that went offline keeps what it could not write
            assert running.broker.pool.counters.in_use == 0
        assert running.broker.budget.used_bytes == 0

    return serve
