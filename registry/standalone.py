"""A registry before any Kafka: `ottla registry`, and the one that tests get."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.client.security import NO_SECURITY, Security
from ottla.client.trio_connection import TrioConnection
from ottla.registry.http.app import RegistryApp
from ottla.registry.registry import Registry
from ottla.registry.serving import known_host, served
from ottla.registry.store.log import TOPIC, SchemaLog
from ottla.server.network.network import open_listening_socket

if TYPE_CHECKING:
    import socket

logger = logging.getLogger(__name__)

_BACKLOG: Final = 100


class Running(NamedTuple):
    """A registry that answers."""

    url: str
    log: SchemaLog


async def run(
    bootstrap: Sequence[tuple[str, int]],
    listen: tuple[str, int],
    *,
    security: Security = NO_SECURITY,
    allowed_hosts: Iterable[str] = (),
    topic: str = TOPIC,
    client_id: str = "ottla-registry",
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; started when the topic has been read. Everybody who can connect may do everything.

    Raises StartupError if it cannot listen there.
    """
    host, port = listen
    listening = open_listening_socket(host, port, _BACKLOG, "--listen")
    with listening:
        connect = partial(TrioConnection, client_id=client_id, security=security)
        log = SchemaLog(connect, bootstrap, topic)
        app = RegistryApp(Registry(log), knows_host=known_host(lambda: allowed_hosts))
        serve = await trio.to_thread.run_sync(served, app, listening)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(log.run)
            nursery.start_soon(serve)
            await log.wait_until_ready()
            task_status.started(Running(_url(host, listening), log))


def _url(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host or "127.0.0.1"
    return f"http://{shown}:{listening.getsockname()[1]}"
