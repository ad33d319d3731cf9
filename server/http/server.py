"""The HTTP server beside the broker, on the same loop.

Its libraries take a fifth of a second to import and some megabytes: they are loaded in a worker thread, and only where
the HTTP port is configured. Whatever goes wrong in here is logged, and the broker goes on.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.server.network.network import open_listening_socket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.applications import Starlette

    from ottla.server.broker import Broker
    from ottla.server.network.listener import ListenAddress
    from ottla.storage.histogram import Histogram

logger = logging.getLogger(__name__)

_BACKLOG: Final = 100
_STOP_SECONDS: Final = 1.0
_LAG_INTERVAL_SECONDS: Final = 0.25
_MAX_HEADER_BYTES: Final = 32_768


class HttpServer:
    """Serves `application(broker, site)` on one address; listens from the first, and answers once `run` has begun."""

    def __init__(self, address: ListenAddress, site: str | None = None) -> None:
        self._site = site
        self._socket = open_listening_socket(address.host, address.port, _BACKLOG, "--http")
        #: What is listened on, with the real port.
        self.address = address._replace(port=int(self._socket.getsockname()[1]))
        self.url = url(self.address)

    async def run(self, broker: Broker) -> None:
        """Serve until cancelled. Its failure ends it alone, with a log line."""
        try:
            serve = await trio.to_thread.run_sync(_prepare, broker, self._site, self._socket)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_measure_loop_lag, broker.loop_lag)
                await serve()
        except Exception:
            logger.exception("the HTTP server on %s has failed and is closed; the broker goes on", self.url)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def url(address: ListenAddress) -> str:
    """Where to ask for what is served on an address."""
    host = address.host
    return f"http://{f'[{host}]' if ':' in host else host or socket.gethostname()}:{address.port}"


async def _measure_loop_lag(lag: Histogram) -> None:
    """Observe how late a timer fires: what every client of this loop feels. Nobody can ask without the HTTP port."""
    while True:
        due = trio.current_time() + _LAG_INTERVAL_SECONDS
        await trio.sleep_until(due)
        lag.observe(trio.current_time() - due)


async def _warm_up() -> None:
    """Let anyio load what it leaves to its first use, which would hold the loop at the first request."""
    import anyio

    async with anyio.create_task_group():
        pass


def _prepare(broker: Broker, site: str | None, listening: socket.socket) -> Callable[[], Awaitable[None]]:
    from ottla.server.http.application import application

    return prepare(application(broker, site), listening)


def prepare(application: Starlette, listening: socket.socket) -> Callable[[], Awaitable[None]]:
    """Import what serving needs, which blocks for long; the result serves the application until cancelled."""
    from functools import partial

    from hypercorn.config import Config, Sockets
    from hypercorn.trio.run import worker_serve
    from hypercorn.utils import wrap_app

    trio.run(_warm_up)
    config = Config()
    config.errorlog = logging.getLogger(f"{__name__}.requests")
    config.errorlog.setLevel(logging.WARNING)
    config.accesslog = None
    config.graceful_timeout = _STOP_SECONDS
    config.h11_max_incomplete_size = _MAX_HEADER_BYTES
    config.include_server_header = False
    sockets = Sockets(secure_sockets=[], insecure_sockets=[listening], quic_sockets=[])
    app: Any = application
    return partial(worker_serve, wrap_app(app, config.wsgi_max_body_size, "asgi"), config, sockets=sockets)
