"""The HTTP server beside the broker, on the same loop.

Its libraries take a fifth of a second to import and some megabytes: they are loaded in a worker thread, and only where
the HTTP port is configured. Whatever goes wrong in here is logged, and the broker goes on.
"""

from __future__ import annotations

import logging
import os
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import trio

from ottla.runtime.errors import StartupError
from ottla.server.network.network import open_listening_socket
from ottla.settings.config import ConfigError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from ssl import SSLContext

    from starlette.applications import Starlette

    from ottla.security.tls import ReloadedTls
    from ottla.server.broker import Broker
    from ottla.server.network.listener import ListenAddress
    from ottla.storage.histogram import Histogram

logger = logging.getLogger(__name__)

_BACKLOG: Final = 100
_STOP_SECONDS: Final = 1.0
_LAG_INTERVAL_SECONDS: Final = 0.25
_HANDSHAKE_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 5.0
_MAX_HEADER_BYTES: Final = 32_768


class HttpServer:
    """Serves `application(broker, site)` on one address; listens from the first, and answers once `run` has begun.

    Beside other nodes it also answers at `page_socket`, a path at which their common page asks: in plain text, and only
    to processes that may open that path.
    """

    def __init__(
        self,
        address: ListenAddress,
        site: str | None = None,
        tls: ReloadedTls | None = None,
        page_socket: str | None = None,
    ) -> None:
        self._site = site
        self._tls = tls
        self._socket = open_listening_socket(address.host, address.port, _BACKLOG, "--http")
        try:
            self._page_socket = None if page_socket is None else _listen_at_path(page_socket)
        except StartupError:
            self._socket.close()
            raise
        #: What is listened on, with the real port.
        self.address = address._replace(port=int(self._socket.getsockname()[1]))
        self.url = url(self.address, "http" if tls is None else "https")

    async def run(self, broker: Broker) -> None:
        """Serve until cancelled. Its failure ends it alone, with a log line."""
        try:
            context = None if self._tls is None else self._tls.context
            serve = await trio.to_thread.run_sync(
                _prepare, broker, self._site, self._socket, context, self._page_socket
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_measure_loop_lag, broker.loop_lag)
                if self._tls is not None:
                    nursery.start_soon(follow_certificate, self._tls)
                await serve()
        except Exception:
            logger.exception("the HTTP server on %s has failed and is closed; the broker continues", self.url)
        finally:
            self.close()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()
        if self._page_socket is not None:
            self._page_socket.close()


def url(address: ListenAddress, scheme: str = "http") -> str:
    """The URL of a server at an address."""
    host = address.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host or socket.gethostname()}:{address.port}"


def _listen_at_path(path: str) -> socket.socket:
    """A socket of this machine, in place of one that a former process has left behind."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with suppress(FileNotFoundError):
            os.unlink(path)
        listening.bind(path)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise StartupError(f"cannot listen at {path}: {error.strerror or error}") from None
    return listening


async def _measure_loop_lag(lag: Histogram) -> None:
    """Observe how late a timer fires: what every client of this loop feels. Nobody can ask without the HTTP port."""
    while True:
        due = trio.current_time() + _LAG_INTERVAL_SECONDS
        await trio.sleep_until(due)
        lag.observe(trio.current_time() - due)


async def follow_certificate(tls: ReloadedTls, look_seconds: float = _LOOK_SECONDS) -> None:
    """Read the certificate again when its file changes. A bad one is logged once, and read again each time."""
    logged = ""
    while True:
        await trio.sleep(look_seconds)
        wrong = ""
        try:
            if await trio.to_thread.run_sync(tls.renew):
                logger.info("new connections to the HTTP port get the new certificate")
        except ConfigError as error:
            wrong = str(error)
        if wrong and wrong != logged:
            logger.warning("the HTTP port keeps its certificate: %s", wrong, extra={"error": wrong})
        logged = wrong


async def _warm_up() -> None:
    """Let anyio load what it leaves to its first use, which would hold the loop at the first request."""
    import anyio

    async with anyio.create_task_group():
        pass


def _prepare(
    broker: Broker,
    site: str | None,
    listening: socket.socket,
    context: SSLContext | None,
    page_socket: socket.socket | None,
) -> Callable[[], Awaitable[None]]:
    from ottla.server.http.application import application

    return prepare(application(broker, site), listening, context, page_socket)


def prepare(
    application: Starlette,
    listening: socket.socket,
    context: SSLContext | None = None,
    page_socket: socket.socket | None = None,
) -> Callable[[], Awaitable[None]]:
    """Import what serving needs, which blocks for long; the result serves the application until cancelled: on
    `listening`, encrypted where there is a context, and in plain text on `page_socket`."""
    from functools import partial

    from hypercorn.config import Config, Sockets
    from hypercorn.trio.run import worker_serve
    from hypercorn.utils import wrap_app

    from ottla.server.http.client_certificates import tell_certificates

    trio.run(_warm_up)

    class OwnConfig(Config):
        def create_ssl_context(self) -> SSLContext | None:
            return context

    config = OwnConfig()
    config.ssl_handshake_timeout = _HANDSHAKE_SECONDS
    config.errorlog = logging.getLogger(f"{__name__}.requests")
    config.errorlog.setLevel(logging.WARNING)
    config.accesslog = None
    config.graceful_timeout = _STOP_SECONDS
    config.h11_max_incomplete_size = _MAX_HEADER_BYTES
    config.include_server_header = False
    plain, secure = ([listening], []) if context is None else ([], [listening])
    if page_socket is not None:
        plain.append(page_socket)
    sockets = Sockets(secure_sockets=secure, insecure_sockets=plain, quic_sockets=[])
    app: Any = tell_certificates(application, context)
    return partial(worker_serve, wrap_app(app, config.wsgi_max_body_size, "asgi"), config, sockets=sockets)
