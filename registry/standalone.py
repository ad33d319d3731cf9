"""A registry in front of any Kafka: `ottla registry`, and the one for tests."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple

import trio

from ottla.client.security import NO_SECURITY, Security
from ottla.client.trio_connection import TrioConnection
from ottla.registry.http.app import RegistryApp
from ottla.registry.registry import Registry
from ottla.registry.serving import identity_of, is_loopback, known_host, served
from ottla.registry.store.log import TOPIC, SchemaLog
from ottla.registry.writer.election import GROUP, Election
from ottla.server.network.network import open_listening_socket

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
        identity = identity_of(listening, "http", host if is_loopback(host) else socket.gethostname())
        # Registries on other topics are others.
        group_id = GROUP if topic == TOPIC else f"{GROUP}-{topic}"
        election = Election(connect, bootstrap, identity, group_id)
        registry = Registry(log, election)
        app = RegistryApp(registry, knows_host=known_host(lambda: allowed_hosts))
        serve = await trio.to_thread.run_sync(served, app, listening)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(registry.run)
            nursery.start_soon(serve)
            await log.wait_until_ready()
            task_status.started(Running(_url(host, listening), log))


def _url(host: str, listening: socket.socket) -> str:
    shown = f"[{host}]" if ":" in host else host or "127.0.0.1"
    return f"http://{shown}:{listening.getsockname()[1]}"
