"""Accepting: what the machine lacks for a moment must not end the server."""

import errno
import logging
import os
import socket
from collections.abc import Callable
from typing import Any

import pytest
import trio.testing

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataResponse
from ottla.runtime.errors import StartupError
from ottla.runtime.memory_budget import MemoryBudget
from ottla.server.network.listener import ListenAddress, Listeners
from ottla.server.network.network import Accepted, Listening
from ottla.server.quotas.connections import CONNECTION_CREATION_RATE, ConnectionLimits
from ottla.storage.turn import Turn

Serve = Callable[..., Any]


async def metadata(request: MetadataRequest, context: Any) -> MetadataResponse:
    return MetadataResponse(controller_id=7)


class Failing:
    """One who listens, and whose first accepts fail."""

    def __init__(self, listening: Listening, errors: list[int]) -> None:
        self._listening = listening
        self._errors = errors

    @property
    def port(self) -> int:
        return self._listening.port

    async def wait(self) -> None:
        await self._listening.wait()

    def accept(self) -> tuple[Accepted, tuple[str, int]]:
        if self._errors:
            number = self._errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self._listening.accept()

    def close(self) -> None:
        self._listening.close()


@pytest.mark.parametrize(
    ("errors", "warnings"),
    [
        ([errno.EMFILE], 1),
        ([errno.ENFILE, errno.ENOBUFS, errno.ENOMEM], 3),
        ([errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN], 0),
    ],
)
async def test_an_accept_that_fails_is_tried_again(
    serve_handlers: Serve,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    errors: list[int],
    warnings: int,
) -> None:
    bind = Listeners.bind

    def bind_failing(self: Listeners, address: ListenAddress, backlog: int) -> int:
        port = bind(self, address, backlog)
        name, listening = self._listening.pop()
        self._listening.append((name, Failing(listening, list(errors))))
        return port

    monkeypatch.setattr(Listeners, "bind", bind_failing)
    async with serve_handlers({ApiKey.METADATA: metadata}) as server:
        client = await server.connect()
        assert (await client.call(MetadataRequest(), 5)).controller_id == 7
    assert sum(record.levelno == logging.WARNING for record in caplog.records) == warnings


def test_an_address_that_cannot_be_had_is_said_with_what_to_do() -> None:
    listeners = Listeners(None, None, None, ConnectionLimits(), responses=MemoryBudget(1), turn=Turn())  # type: ignore[arg-type]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=r"already in use.*--port"):
            listeners.bind(ListenAddress("PLAINTEXT", "127.0.0.1", port), 5)
    with pytest.raises(StartupError, match="cannot listen on"):
        listeners.bind(ListenAddress("PLAINTEXT", "no.such.host.invalid", 1), 5)


async def test_a_connection_that_came_too_often_is_not_kept_beyond_the_stop(
    serve_handlers: Serve, mock_clock: trio.testing.MockClock
) -> None:
    """It is kept for the rest of its time without an answer, which never comes: no time passes here."""
    async with serve_handlers({ApiKey.METADATA: metadata}) as server:
        await server.listeners._rates.set_quotas({(("ip", "127.0.0.1"),): {CONNECTION_CREATION_RATE: 1.0}})
        while not server.listeners.refused["connection_creation_rate"]:
            refused = await server.connect()
            await trio.testing.wait_all_tasks_blocked()
        server.listeners.stop()
        assert await refused.is_closed()
