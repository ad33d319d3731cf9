"""A REST proxy in front of other brokers, without users: the one for tests."""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import trio

from ottla.client.security import NO_SECURITY, Security
from ottla.client.trio_connection import TrioConnection
from ottla.registry.serving import known_host
from ottla.rest.access import Everybody
from ottla.rest.cluster import Address, Cluster
from ottla.rest.consumers.consumers import Consumers
from ottla.rest.groups import Groups
from ottla.rest.http.app import application
from ottla.rest.http.call import Proxy
from ottla.rest.producing import Producing
from ottla.rest.schemas import SchemaStore
from ottla.rest.work import Work
from ottla.server.http.server import prepare
from ottla.server.network.network import open_listening_socket

_BACKLOG: Final = 100


class Running(NamedTuple):
    """A REST proxy that answers."""

    url: str
    consumers: Consumers


async def run(
    bootstrap: Sequence[Address],
    listen: Address,
    schemas: SchemaStore,
    *,
    security: Security = NO_SECURITY,
    client_id: str = "ottla-rest",
    task_status: trio.TaskStatus[Running] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled. Everybody who can connect may do everything.

    Raises StartupError if it cannot listen there.
    """
    new_cluster = partial(Cluster, partial(TrioConnection, client_id=client_id, security=security), bootstrap)
    cluster, work = new_cluster(), Work()
    consumers = Consumers(cluster, new_cluster, work)
    proxy = Proxy(
        cluster=cluster,
        producing=Producing(cluster, work, random.randrange),
        consumers=consumers,
        groups=Groups(cluster),
        work=work,
        access=Everybody(),
        schemas=schemas,
        knows_host=known_host(lambda: ()),
        now_ms=_now_ms,
    )
    with open_listening_socket(*listen, _BACKLOG, "--listen") as listening:
        serve = await trio.to_thread.run_sync(_served, proxy, listening)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(cluster.run)
            nursery.start_soon(consumers.run)
            nursery.start_soon(serve)
            task_status.started(Running(f"http://{listen[0]}:{listening.getsockname()[1]}", consumers))


def _served(proxy: Proxy, listening: socket.socket) -> Any:
    app: Any = application(proxy)
    return prepare(app, listening)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
