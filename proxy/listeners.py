"""The ports to which clients connect: one for the bootstrap address, and one for each broker.

`Listeners.run` owns every listening socket and every connection's task. Its end is orderly: nothing more is accepted,
what is under way is answered, and whatever takes longer than the grace period is cut off.
"""

from __future__ import annotations

import errno
import logging
import socket
from typing import TYPE_CHECKING, Final

import trio

from ottla.client.errors import ClientError, system_reason
from ottla.proxy.brokers import Broker, BrokerTable, LocalAddresses
from ottla.proxy.connection import Connection
from ottla.proxy.errors import NotLetInError, ProxyError
from ottla.proxy.shared import CONNECT_SECONDS
from ottla.proxy.transport import unmapped
from ottla.runtime.pacing import Pacing
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from ottla.proxy.shared import Shared
    from ottla.proxy.transport import Accepted, Transport

logger = logging.getLogger(__name__)

BOOTSTRAP: Final = "bootstrap"

_BACKLOG: Final = 128
_ACCEPT_BURST: Final = 16
_RETRY_SECONDS: Final = 0.1
_SCAN_SECONDS: Final = 15.0
_MAX_TRIED_PORTS: Final = 100
_HIGHEST_PORT: Final = 65_535
# These resources are free again when connections close; another accept at once would only spin.
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})


class Listeners:
    """All ports of a proxy. `open_bootstrap` first, then `run` until `stop`."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self.brokers = BrokerTable(self)
        self._sockets: list[tuple[str, socket.socket]] = []
        self._connections: set[Connection] = set()
        self._count = 0
        self._reaching: set[trio.CancelScope] = set()
        self._accepting: trio.Nursery | None = None
        self._serving: trio.Nursery | None = None
        self._targets: dict[str, Callable[[], Sequence[tuple[str, int]]]] = {}
        self._next_port = 0
        self._stop = trio.Event()

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return self._count

    def open_bootstrap(self) -> int:
        """Listen on the bootstrap address and return its port. Raises ProxyError if that is not possible."""
        host, port = self._shared.settings.listen
        try:
            listening = _listen(host, port)
        except OSError as error:
            raise ProxyError(f"cannot listen on {host or '*'}:{port}: {error.strerror or error}") from None
        taken: int = listening.getsockname()[1]
        self._next_port = taken + 1 if port else 0
        self._add(BOOTSTRAP, listening, lambda: self._shared.settings.upstream)
        return taken

    def stop(self) -> None:
        """Accept nothing more, and let connections finish what they have begun."""
        self._stop.set()

    async def run(self, grace_seconds: float) -> None:
        """Serve until `stop`, then for at most `grace_seconds` more. Always leaves every socket closed."""
        try:
            async with trio.open_nursery() as self._serving:
                async with trio.open_nursery() as self._accepting:
                    for name, listening in self._sockets:
                        self._accepting.start_soon(self._accept, name, listening)
                    self._accepting.start_soon(self._end_idle)
                    await self._stop.wait()
                    self._accepting.cancel_scope.cancel()
                self._accepting = None
                self._serving.cancel_scope.deadline = trio.current_time() + grace_seconds
                for scope in list(self._reaching):
                    scope.cancel()
                for connection in list(self._connections):
                    connection.stop()
        finally:
            for _, listening in self._sockets:
                listening.close()

    # Ports

    def listen_for(self, broker: Broker) -> int:
        """Listen on a new port for a broker, and return the port. Raises ProxyError if none is free."""
        host = self._shared.settings.listen[0]
        for _ in range(_MAX_TRIED_PORTS):
            port = self._next_port
            if port > _HIGHEST_PORT:
                break
            self._next_port += 1 if port else 0
            try:
                listening = _listen(host, port)
            except OSError:
                continue
            self._add(f"broker-{broker.node_id}", listening, lambda: [(broker.host, broker.port)])
            return int(listening.getsockname()[1])
        raise ProxyError(f"there is no free port for broker {broker.node_id} behind that of the bootstrap address")

    def _add(self, name: str, listening: socket.socket, targets: Callable[[], Sequence[tuple[str, int]]]) -> None:
        self._sockets.append((name, listening))
        self._targets[name] = targets
        if self._accepting is not None:
            self._accepting.start_soon(self._accept, name, listening)

    # Connections

    async def _accept(self, name: str, listening: socket.socket) -> None:
        assert self._serving is not None
        pacing = Pacing(listening)
        while True:
            await trio.lowlevel.wait_readable(listening)
            for _ in range(_ACCEPT_BURST):
                try:
                    accepted, peer = listening.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _OUT_OF_RESOURCES:
                        logger.warning("cannot accept connections: %s", error.strerror, extra={"listener": name})
                        await trio.sleep(_RETRY_SECONDS)
                    break
                if self._count >= self._shared.settings.max_connections:
                    self._shared.metrics.refused["limit"] += 1
                    accepted.close()
                    continue
                pacing.begin(accepted)
                self._shared.metrics.accepted[name] += 1
                self._shared.metrics.open[name] += 1
                self._count += 1
                self._serving.start_soon(self._serve, name, accepted, f"{unmapped(peer[0])}:{peer[1]}")

    async def _serve(self, name: str, accepted: socket.socket, peer: str) -> None:
        try:
            client = await self._shared.ways.accept(accepted)
            try:
                upstream = await self._reach(name, client.transport, peer)
                if upstream is not None:
                    await self._carry(name, client, upstream, peer)
            finally:
                client.transport.close()
        except NotLetInError as error:
            self._shared.metrics.refused["login"] += 1
            keys = {"client": peer, "listener": name, "error": str(error)}
            logger.warning("closed the connection from %s: %s", peer, error, extra=keys)
        except OSError as error:
            logger.debug("the connection from %s was lost: %s", peer, error, extra={"client": peer})
        finally:
            self._shared.metrics.open[name] -= 1
            self._count -= 1

    async def _carry(self, name: str, client: Accepted, upstream: Transport, peer: str) -> None:
        # By the host that is told to everybody, or by the one to which this client has connected.
        addresses = LocalAddresses(self.brokers, self._shared.settings.advertise or client.transport.local_host())
        connection = Connection(client, upstream, self._shared, addresses, peer=peer, listener=name)
        self._connections.add(connection)
        try:
            await connection.serve()
        finally:
            self._connections.discard(connection)

    async def _reach(self, name: str, client: Transport, peer: str) -> Transport | None:
        """A connection to upstream, made when the client first sends something; None if it cannot be made."""
        with trio.CancelScope() as scope:
            self._reaching.add(scope)
            try:
                return await self._reach_for(name, client, peer)
            finally:
                self._reaching.discard(scope)
        return None

    async def _reach_for(self, name: str, client: Transport, peer: str) -> Transport | None:
        with trio.move_on_after(self._shared.settings.idle_seconds) as patience:
            await client.wait_readable()
        if patience.cancelled_caught:
            self._shared.metrics.refused["idle"] += 1
            return None
        for host, port in self._targets[name]():
            try:
                with trio.fail_after(CONNECT_SECONDS):
                    return await self._shared.ways.connect(host, port)
            except (OSError, ClientError, trio.TooSlowError) as error:
                reason = (
                    f"not within {CONNECT_SECONDS:g} s"
                    if isinstance(error, trio.TooSlowError)
                    else system_reason(error)
                )
                self._shared.metrics.upstream_failures[f"{host}:{port}"] += 1
                keys = {"client": peer, "listener": name, "error": reason}
                logger.warning("cannot reach upstream %s:%d for %s: %s", host, port, peer, reason, extra=keys)
        self._shared.metrics.refused["upstream"] += 1
        return None

    async def _end_idle(self) -> None:
        """End connections on which nothing moves any more: their clients, or upstream, are gone without a word."""
        while True:
            await trio.sleep(min(_SCAN_SECONDS, self._shared.settings.idle_seconds / 2))
            time_slice = TimeSlice()
            for connection in tuple(self._connections):
                if connection.end_if_idle(self._shared.settings.idle_seconds):
                    self._shared.metrics.refused["idle"] += 1
                if time_slice.is_over:
                    await time_slice.maybe_yield()


def _listen(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setblocking(False)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6 and not host:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listening.bind(address)
        listening.listen(_BACKLOG)
    except OSError:
        listening.close()
        raise
    return listening
