"""A port of the schema registry or of the REST proxy, which build on a client of the broker (`http_ports`)."""

from __future__ import annotations

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Final

import trio

from ottla.server.http.mount import Mounted
from ottla.server.http.server import follow_certificate, url
from ottla.server.network.network import open_listening_socket

if TYPE_CHECKING:
    import socket
    from ssl import SSLContext

    from ottla.security.tls import ReloadedTls
    from ottla.server.broker import Broker
    from ottla.server.http.login import HttpLogin
    from ottla.server.network.http_ports import HttpPort
    from ottla.server.network.listener import ListenAddress

logger = logging.getLogger(__name__)

_BACKLOG: Final = 100
_END_SECONDS: Final = 6.0


class MountedServer:
    """Serves one of `http_ports` on one address; listens from the first, and answers once `run` has begun."""

    def __init__(self, port: HttpPort, address: ListenAddress, tls: ReloadedTls | None = None) -> None:
        self.port = port
        self._tls = tls
        self._socket = open_listening_socket(address.host, address.port, _BACKLOG, port.flag)
        #: What is listened on, with the real port.
        self.address = address._replace(port=int(self._socket.getsockname()[1]))
        self.url = url(self.address, "http" if tls is None else "https")
        self._mounted: Mounted | None = None

    async def run(self, broker: Broker) -> None:
        """Serve until cancelled, for a broker that serves. Its failure ends it alone, with a log line."""
        from ottla.server.http.login import login_of

        try:
            login = login_of(broker)
            context = None if self._tls is None else self._tls.context
            mounted = await trio.to_thread.run_sync(_mount, self.port.module, broker, login, self._socket, context)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(mounted.service.run)
                if self._tls is not None:
                    nursery.start_soon(follow_certificate, self._tls)
                self._mounted = mounted
                await mounted.serve()
        except Exception:
            logger.exception("the %s on %s has failed and is closed; the broker continues", self.port.what, self.url)
        finally:
            self._mounted = None
            self.close()

    async def end(self) -> None:
        """Let what it has begun in the cluster come to its end: the broker stops next. It takes 6 seconds at most."""
        if self._mounted is None:
            return
        with trio.move_on_after(_END_SECONDS):
            try:
                await self._mounted.service.end()
            except Exception:
                logger.exception("the %s on %s could not end what it has begun", self.port.what, self.url)

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()


def _mount(
    module: str, broker: Broker, login: HttpLogin | None, listening: socket.socket, context: SSLContext | None
) -> Mounted:
    mounted: Mounted = import_module(module).mount(broker, login, listening, context)
    return mounted
