"""The listening sockets, and the connections that they brought.

`Listeners.run` owns every connection's task. Its end is orderly: nothing more is accepted, connections answer what is
under way, and those that cannot within the grace period are cut.
"""

from __future__ import annotations

import errno
import logging
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.runtime.time_slice import TimeSlice
from ottla.server.apis.connected_client import ConnectedClient
from ottla.server.network.closed_log import ClosedLog
from ottla.server.network.connection import Connection
from ottla.server.network.network import SYSTEMS_BUFFERS, TcpNetwork
from ottla.server.network.readiness import Readiness
from ottla.server.quotas.connections import ConnectionLimits, ConnectionRates

if TYPE_CHECKING:
    from ottla.runtime.memory_budget import MemoryBudget
    from ottla.runtime.request_budget import RequestBudget
    from ottla.security.listener_auth import ListenerAuth
    from ottla.server.network.dispatch import Dispatcher
    from ottla.server.network.network import Accepted, Listening, Network, SocketBuffers
    from ottla.storage.memory.buffer_pool import BufferPool
    from ottla.storage.turn import Turn

logger = logging.getLogger(__name__)

# The machine is out of something that comes back when connections close; accepting at once would only spin.
_OUT_OF_RESOURCES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
# The peer was gone before it was accepted (see accept(2)).
_PEER_GONE: Final = frozenset(
    {errno.ECONNABORTED, errno.EPROTO, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.EPERM}
)
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_RETRY_SECONDS: Final = 0.1
_MAX_KEPT: Final = 1_000
_SLOW_SCAN_SECONDS: Final = 0.5
_STALLED_SECONDS: Final = 10


class ListenAddress(NamedTuple):
    """An address to listen on: `host:port` under a listener's name. Port 0 takes a free one."""

    name: str
    host: str
    port: int


def _unmapped(host: str) -> str:
    """An IPv4 address as such, also where a socket for both families brought it."""
    return host.removeprefix("::ffff:") if "." in host else host


class Listeners:
    """All listening sockets of a node. `bind` first, then `run` until `stop`."""

    def __init__(
        self,
        dispatcher: Dispatcher,
        pool: BufferPool,
        budget: RequestBudget,
        limits: ConnectionLimits,
        rates: ConnectionRates | None = None,
        *,
        responses: MemoryBudget,
        turn: Turn,
        network: Network | None = None,
    ) -> None:
        self._network = network or TcpNetwork()
        self._dispatcher = dispatcher
        self._pool = pool
        self._budget = budget
        self._limits = limits
        self._responses = responses
        self._listener_auths: Mapping[str, ListenerAuth] = _NOTHING
        self._rates = rates or ConnectionRates()
        self._listening: list[tuple[str, Listening]] = []
        self._connections: set[Connection] = set()
        self._per_ip: Counter[str] = Counter()
        self._per_listener: Counter[str] = Counter()
        #: How many connections were accepted, by listener, and refused, by what they were beyond.
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self._kept = 0
        #: How often accepting had to pause.
        self.delayed = 0
        self._stop = trio.Event()
        self._slot_freed = trio.Event()
        self._closed_log = ClosedLog()
        self._readiness = Readiness(turn)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def set_listener_auths(self, listener_auths: Mapping[str, ListenerAuth]) -> None:
        """Set TLS and SASL of new connections; open connections keep theirs."""
        self._listener_auths = listener_auths

    def set_limits(self, limits: ConnectionLimits) -> None:
        """Set the limits from now on; open connections stay."""
        self._limits = limits
        self._slot_freed.set()

    def open_by_listener(self) -> Mapping[str, int]:
        """How many connections each listener has now."""
        return self._per_listener

    def bind(self, address: ListenAddress, backlog: int, buffers: SocketBuffers = SYSTEMS_BUFFERS) -> int:
        """Open a listening socket and return its port. StartupError if the address cannot be had."""
        listening = self._network.listen(address.host, address.port, backlog, "--port", buffers=buffers)
        self._listening.append((address.name, listening))
        return listening.port

    def stop(self) -> None:
        """Accept nothing more and let connections finish what they have begun."""
        self._stop.set()

    async def run(self, grace_seconds: float) -> None:
        """Serve until `stop`, then for at most `grace_seconds` more. Always leaves every socket closed."""
        try:
            async with self._readiness.running(), trio.open_nursery() as serving:
                async with trio.open_nursery() as accepting:
                    accepting.start_soon(self._close_idle)
                    accepting.start_soon(self._cut_slow)
                    for name, listening in self._listening:
                        accepting.start_soon(self._accept, name, listening, serving)
                    await self._stop.wait()
                    accepting.cancel_scope.cancel()
                self.close()
                for connection in list(self._connections):
                    connection.stop()
                serving.cancel_scope.deadline = trio.current_time() + grace_seconds
            if serving.cancel_scope.cancelled_caught:
                logger.warning("requests under way did not end within %g s of the stop: closed", grace_seconds)
        finally:
            self.close()

    def close(self) -> None:
        """Close the listening sockets."""
        for _, listening in self._listening:
            listening.close()
        self._listening.clear()

    async def _accept(self, name: str, listening: Listening, serving: trio.Nursery) -> None:
        while True:
            await self._wait_for_slot(name)
            await listening.wait()
            time_slice = TimeSlice()
            while not time_slice.is_over:
                if self._is_full(name):
                    break
                try:
                    accepted, peer = listening.accept()
                except BlockingIOError:
                    break
                except OSError as error:
                    if error.errno in _PEER_GONE:
                        continue
                    hint = "; raise the limit on open files (ulimit -n)" if error.errno in _OUT_OF_RESOURCES else ""
                    logger.warning(
                        "cannot accept connections: %s%s",
                        *(error.strerror, hint),
                        extra={"listener": name, "error": error.strerror},
                    )
                    await trio.sleep(_RETRY_SECONDS)
                    break
                delay_seconds = self._rates.delay_seconds(name, self._limits)
                if delay_seconds:
                    await self._pause(name, accepted, delay_seconds)
                self._admit(name, accepted, peer, serving)

    async def _pause(self, name: str, accepted: Accepted, seconds: float) -> None:
        """Wait with a connection that has come too early (max.connection.creation.rate)."""
        self.delayed += 1
        try:
            await trio.sleep(seconds)
            await self._wait_for_slot(name)  # another listener may have taken the last place meanwhile
        except BaseException:
            accepted.close()
            raise

    async def _wait_for_slot(self, name: str) -> None:
        if not self._is_full(name):
            return
        self.delayed += 1
        limit = min(self._limits.max_connections, self._limits.of_listener(name).max_connections)
        logger.warning(
            "not accepting connections: max.connections, or what the limit on open files allows, is reached (%d)",
            limit,
            extra={"listener": name},
        )
        while self._is_full(name):
            if self._slot_freed.is_set():
                self._slot_freed = trio.Event()
            await self._slot_freed.wait()

    def _is_full(self, name: str) -> bool:
        limits = self._limits
        return (
            len(self._connections) >= limits.max_connections
            or self._per_listener[name] >= limits.of_listener(name).max_connections
        )

    def _admit(self, name: str, accepted: Accepted, peer: tuple[str, int], serving: trio.Nursery) -> None:
        host, port = _unmapped(peer[0]), peer[1]
        throttle_seconds = self._rates.throttle_seconds(host)
        if throttle_seconds:
            self.refused["connection_creation_rate"] += 1
            serving.start_soon(self._close_after, accepted, throttle_seconds)
            return
        limit = self._limits.of_address(host)
        if self._per_ip[host] >= limit:
            accepted.close()
            self.refused["max.connections.per.ip"] += 1
            keys = {"client": f"{host}:{port}", "listener": name}
            logger.warning(
                "refused a connection from %s: it has %d already (max.connections.per.ip)", host, limit, extra=keys
            )
            return
        listener_auth = self._listener_auths.get(name)
        try:
            transport = accepted.open(None if listener_auth is None else listener_auth.tls)
        except OSError:
            accepted.close()  # the peer was gone before the socket could be set up
            return
        connection = Connection(
            transport,
            ConnectedClient(name, host, port),
            self._dispatcher,
            self._pool,
            self._budget,
            max_frame_bytes=self._limits.max_frame_bytes,
            max_pipelined=self._limits.max_pipelined,
            readiness=self._readiness,
        )
        self._connections.add(connection)
        self._per_ip[host] += 1
        self._per_listener[name] += 1
        self.accepted[name] += 1
        serving.start_soon(self._serve, connection, listener_auth)

    async def _close_after(self, accepted: Accepted, seconds: float) -> None:
        """Keep a connection without an answer, so that its client does not try again at once; but not too many."""
        self._kept += 1
        try:
            if self._kept <= _MAX_KEPT:
                with trio.move_on_after(seconds):
                    await self._stop.wait()
        finally:
            self._kept -= 1
            accepted.close()

    async def _serve(self, connection: Connection, listener_auth: ListenerAuth | None) -> None:
        client = connection.client
        try:
            await connection.serve(listener_auth, self._closed_log)
        except Exception:
            logger.exception("an error in the broker ended the connection from %r", client, extra=client.log_keys())
        finally:
            self._connections.discard(connection)
            self._per_listener[client.listener] -= 1
            self._per_ip[client.host] -= 1
            if not self._per_ip[client.host]:
                del self._per_ip[client.host]
            self._slot_freed.set()

    async def _cut_slow(self) -> None:
        while True:
            await trio.sleep(_SLOW_SCAN_SECONDS)
            self._budget.cut_slow(trio.current_time())
            if not self._responses.has_room:
                await self._cut_stalled()

    async def _cut_stalled(self) -> None:
        """Limit for how long a client that does not read may keep the memory that answers to others need."""
        time_slice = TimeSlice()
        for connection in list(self._connections):
            await time_slice.maybe_yield()
            if connection.abort_if_stalled(_STALLED_SECONDS):
                logger.warning(
                    "closed the connection from %r: it has read nothing of its answer for %d s, and there is no memory "
                    "for others (ottla.memory.budget.bytes)",
                    connection,
                    _STALLED_SECONDS,
                    extra={"client": repr(connection), "client_id": connection.client.client_id},
                )

    async def _close_idle(self) -> None:
        if self._limits.max_idle_ms < 0:
            return
        idle_seconds = self._limits.max_idle_ms / 1000
        while True:
            await trio.sleep(min(max(idle_seconds / 10, 0.05), 30))
            time_slice = TimeSlice()
            for connection in list(self._connections):
                await time_slice.maybe_yield()
                connection.abort_if_idle(idle_seconds)
