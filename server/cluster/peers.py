"""Connections from this broker to the others, on the listener for brokers.

All requests of one kind to a broker share a connection (`Peers.call`); anything that takes time, such as a follower's
fetches, has a connection of its own (`Peers.connect`). All belong to the nursery of `Peers.run`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.kproto.versions import OPEN_END
from ottla.runtime.backoff import Backoff

if TYPE_CHECKING:
    from ottla.client.security import Login
    from ottla.client.trio_connection import TrioConnection
    from ottla.kproto.schema import Request
    from ottla.metadata.image import Endpoint, MetadataDelta, MetadataImage, MetadataView

#: Kafka's `reconnect.backoff.ms` and `reconnect.backoff.max.ms` of connections among brokers.
FIRST_BACKOFF_SECONDS: Final = 0.05
MAX_BACKOFF_SECONDS: Final = 1.0
TIMEOUT_SECONDS: Final = 30.0
"""How long connecting and each request may take, unless the caller says otherwise (`request.timeout.ms`)."""


class PeerEndpoint(NamedTuple):
    """How a connection to a broker's listener is made, and as whom this broker logs in there."""

    open_stream: Callable[[], Awaitable[trio.abc.Stream]]
    login: Login | None = None


class Peers:
    """The other brokers of the cluster, as this one reaches them.

    Every method raises a ClientError (`ottla.client.errors`): UnreachableError if nothing was sent, any other
    ConnectionLostError if it is not known whether the request was carried out. After a connection that could not be
    made, others to that broker are refused for a while, at once and with the same error.
    """

    def __init__(
        self,
        metadata: MetadataView,
        *,
        node_id: int,
        listener: str | None,
        find_endpoint: Callable[[Endpoint], PeerEndpoint] | None = None,
    ) -> None:
        """`listener` is the name of the listener for brokers, None for the first that a broker has. `find_endpoint`
        says how to connect to an endpoint, or raises SecurityConfigError; without it that is plain TCP."""
        self._metadata = metadata
        self._node_id = node_id
        self._listener = listener
        self._find_endpoint = find_endpoint
        self._links: dict[tuple[int, str], _Link] = {}
        #: Connections that are being opened: until they are open, they belong to the caller.
        self._opening: dict[TrioConnection, _Link] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Own the connections until cancelled; then all of them are closed."""
        async with trio.open_nursery() as self._nursery:
            try:
                task_status.started()
                await trio.sleep_forever()
            finally:
                self.close()  # nothing new begins while the existing ones end
                self._links.clear()

    def close(self) -> None:
        """Make no more calls; calls that wait for an answer, or for a connection, fail as disconnected."""
        nursery, self._nursery = self._nursery, None
        if nursery is not None:
            nursery.cancel_scope.cancel()
        for connection in list(self._opening):
            connection.close()

    async def call(
        self,
        node_id: int,
        request: Request,
        *,
        channel: str = "",
        timeout_seconds: float = TIMEOUT_SECONDS,
        at_most: int = OPEN_END,
    ) -> Any:
        """The answer of a broker, over the connection that all callers of a channel share, in the highest common
        version that is `at_most` this one.

        Answers come in the order of the requests: what waits at the broker (for a flush, for replicas) needs another
        channel than what does not.
        """
        link = self._link(node_id, channel)
        async with link.opening:
            connection = link.connection
            if connection is None or not connection.is_open:
                connection = await self._open(link)
                if self._links.get((node_id, channel)) is link:
                    link.connection = connection
                else:
                    connection.close()  # the broker has moved meanwhile: the call says that the connection is lost
        return await connection.call(request, at_most=at_most, timeout_seconds=timeout_seconds)

    @asynccontextmanager
    async def connect(self, node_id: int) -> AsyncIterator[TrioConnection]:
        """A separate connection, closed at the end of the block."""
        connection = await self._open(self._link(node_id, ""))
        try:
            yield connection
        finally:
            connection.close()

    async def follow(self, delta: MetadataDelta) -> None:
        """Follow a change of the metadata: a broker that has moved is reached where it is now, and one that has come
        back is tried at once. After a machine crash no FIN arrives, so the old process's connection is closed here.
        """
        changed = set(delta.changed_brokers)
        for (node_id, channel), link in list(self._links.items()):
            if node_id not in changed:
                continue
            link.refused_until = 0.0
            if self._endpoint(delta.after, node_id) != link.endpoint or _process(delta.after, node_id) != link.process:
                del self._links[node_id, channel]
                for connection in (link.connection, *(it for it, of in self._opening.items() if of is link)):
                    if connection is not None:
                        connection.close()

    @property
    def own_epoch(self) -> int:
        """The epoch of this node's registration, -1 before there is one."""
        registered = self._metadata.image.brokers.get(self._node_id)
        return -1 if registered is None else registered.epoch

    def _endpoint(self, image: MetadataImage, node_id: int) -> Endpoint | None:
        broker = image.brokers.get(node_id)
        if broker is None or not broker.endpoints:
            return None
        named = None if self._listener is None else broker.endpoint(self._listener)
        return named or broker.endpoints[0]

    def _link(self, node_id: int, channel: str) -> _Link:
        from ottla.client.errors import UnreachableError

        assert node_id != self._node_id, "a broker has no connection to itself"
        link = self._links.get((node_id, channel))
        if link is None:
            endpoint = self._endpoint(self._metadata.image, node_id)
            if endpoint is None:
                raise UnreachableError(f"node {node_id}", "it is not registered")
            link = self._links[node_id, channel] = _Link(endpoint, _process(self._metadata.image, node_id))
        return link

    async def _open(self, link: _Link) -> TrioConnection:
        from ottla.client.errors import ClientError, ConnectionLostError, UnreachableError
        from ottla.client.security import NO_SECURITY, Security
        from ottla.client.trio_connection import TrioConnection

        host, port = link.endpoint.host, link.endpoint.port
        if self._nursery is None:
            raise ConnectionLostError(f"this broker is stopping: no connection to {host}:{port} is made")
        if trio.current_time() < link.refused_until:
            raise UnreachableError(f"{host}:{port}", link.refusal)
        peer = None if self._find_endpoint is None else self._find_endpoint(link.endpoint)
        connection = TrioConnection(
            host,
            port,
            client_id=f"broker-{self._node_id}",
            timeout_seconds=TIMEOUT_SECONDS,
            open_stream=None if peer is None else peer.open_stream,
            security=NO_SECURITY if peer is None else Security(peer.login),
        )
        self._opening[connection] = link
        try:
            opened: TrioConnection = await self._nursery.start(connection.run)
        except ClientError as error:
            link.refuse(error.reason if isinstance(error, UnreachableError) else str(error))
            raise
        finally:
            del self._opening[connection]
        link.backoff.reset()
        return opened


def _process(image: MetadataImage, node_id: int) -> str:
    broker = image.brokers.get(node_id)
    return "" if broker is None else broker.incarnation


class _Link:
    """A broker's address and process, the shared connection to it, and until when it is not tried again."""

    __slots__ = ("backoff", "connection", "endpoint", "opening", "process", "refusal", "refused_until")

    def __init__(self, endpoint: Endpoint, process: str) -> None:
        self.endpoint = endpoint
        self.process = process
        self.opening = trio.Lock()
        self.connection: TrioConnection | None = None
        self.backoff = Backoff(FIRST_BACKOFF_SECONDS, MAX_BACKOFF_SECONDS)
        self.refused_until = 0.0
        self.refusal = ""

    def refuse(self, reason: str) -> None:
        """A connection could not be made: make none for a while, longer each time."""
        self.refusal = reason
        self.refused_until = trio.current_time() + self.backoff.fail()
