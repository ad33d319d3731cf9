"""A registry on a broker, both in this process."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pytest
import trio

from ottla.client.trio_connection import TrioConnection
from ottla.registry.http.access import Access
from ottla.registry.http.app import RegistryApp
from ottla.registry.registry import Registry
from ottla.registry.store.log import SchemaLog
from ottla.testing.broker import Broker

V1 = "application/vnd.schemaregistry.v1+json"


class Client:
    """Asks an application as a web server would."""

    def __init__(self, registry: Registry, access: Access | None = None) -> None:
        self.registry = registry
        self.app = RegistryApp(registry, access)

    async def ask(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> tuple[int, Any]:
        status, answer, _ = await self.whole(method, path, body, raw=raw, **headers)
        return status, answer

    async def whole(
        self, method: str, path: str, body: object = None, *, raw: bytes | None = None, **headers: str
    ) -> tuple[int, Any, dict[str, str]]:
        data = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
        parts = urlsplit(path)
        given = {"content-type": V1} | {name.replace("_", "-"): value for name, value in headers.items()}
        scope = {
            "type": "http",
            "method": method,
            "path": parts.path,
            "raw_path": parts.path.encode(),
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
            "client": ("127.0.0.1", 1),
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": data, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.app(scope, receive, send)
        text = b"".join(message.get("body", b"") for message in sent[1:]).decode()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = text
        return sent[0]["status"], answer, {name.decode(): value.decode() for name, value in sent[0]["headers"]}

    async def register(self, subject: str, schema: object, **more: object) -> int:
        """Register, and return the id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        status, answer = await self.ask("POST", f"/subjects/{subject}/versions", {"schema": text} | more)
        assert status == 200, answer
        return int(answer["id"])


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Registry]:
    """A registry for a broker."""
    connect = partial(TrioConnection, client_id="test-registry")
    log = SchemaLog(connect, [("127.0.0.1", broker.port)])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(log.run)
        await log.wait_ready()
        yield Registry(log)
        nursery.cancel_scope.cancel()


@pytest.fixture(scope="session")
def shared_broker() -> Any:
    with Broker() as broker:
        yield broker


@pytest.fixture
def broker(shared_broker: Broker) -> Broker:
    shared_broker.reset()
    return shared_broker


@pytest.fixture
async def client(broker: Broker) -> AsyncIterator[Client]:
    async with running(broker) as registry:
        yield Client(registry)


Registrations = Callable[[], Any]
