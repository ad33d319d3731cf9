"""The state that all connections of a proxy share."""

from __future__ import annotations

import socket
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.client.security import NO_SECURITY
from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.chain import Filters, Named
from ottla.proxy.login import SASL_KEYS
from ottla.proxy.memory import Chunks, FrameBudget
from ottla.proxy.metrics import Metrics
from ottla.proxy.transport import Accepted, Transport, accept_tcp, connect_tcp
from ottla.proxy.versions import Offer

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from ottla.client.security import Security
    from ottla.proxy.cache.cache import Cache

_CLIENT_PATIENCE_SECONDS: Final = 5.0

CONNECT_SECONDS: Final = 10.0
"""How long a client waits for the connection to upstream."""


class CacheSettings(NamedTuple):
    """The settings of the cache: its size and its folder."""

    size_bytes: int
    folder: str
    vouched: re.Pattern[str] | None = None
    """Topics that are not compacted, whether or not upstream can be asked."""


class Settings(NamedTuple):
    """The operator's settings."""

    upstream: Sequence[tuple[str, int]]
    """The bootstrap servers of upstream."""
    listen: tuple[str, int]
    """The bootstrap address; brokers get the ports that follow, or free ones if the port is 0."""
    advertise: str | None = None
    """The host that clients are told; by default the one that they connected to."""
    max_connections: int = 10_000
    max_frame_bytes: int = 104_857_600
    """The largest request or answer: Kafka's default of socket.request.max.bytes."""
    memory_bytes: int = 256 * 1024 * 1024
    """For frames that are held whole; half for requests, half for answers."""
    cache: CacheSettings | None = None
    idle_seconds: float = 660.0
    """A connection on which nothing moves ends; a minute later than a broker would end it."""


class Ways:
    """How clients connect, and how upstream is reached. By default there is neither TLS nor SASL on either side."""

    @property
    def asks_clients(self) -> bool:
        """Whether clients have to authenticate here."""
        return False

    @property
    def security(self) -> Security:
        """How upstream is reached now; its login is the proxy's own."""
        return NO_SECURITY

    async def accept(self, accepted: socket.socket) -> Accepted:
        """Make a transport of an accepted socket, whose owner it becomes; raises NotLetInError and OSError."""
        return await accept_tcp(accepted)

    async def connect(self, host: str, port: int) -> Transport:
        """Connect to host and port. Raises OSError, and ClientError if it is not let in. If it is cancelled, nothing
        stays open.
        """
        return await connect_tcp(host, port)


PLAIN_WAYS: Final = Ways()


class Shared:
    """One proxy's limits, memory, counters, and its ways to reach sockets."""

    def __init__(self, settings: Settings, filters: Sequence[Named] = (), ways: Ways = PLAIN_WAYS) -> None:
        self.settings = settings
        self.filters = Filters(filters)
        self.ways = ways
        #: Clients authenticate to upstream by themselves only if neither side of the proxy does it for them.
        self.own_login = ways.asks_clients or ways.security.login is not None
        self.offer = Offer(
            self.filters,
            own=SASL_KEYS if ways.asks_clients else (),
            hidden=SASL_KEYS if self.own_login and not ways.asks_clients else (),
        )
        self.chunks = Chunks()
        # Each gets half: requests wait for upstream, which may itself be waiting until an answer finds room.
        self.requests = FrameBudget(settings.memory_bytes // 2)
        # A client that does not read soon has to ask again; a broker does not read from clients that it throttles.
        self.responses = FrameBudget(settings.memory_bytes // 2, patience_seconds=_CLIENT_PATIENCE_SECONDS)
        # For answers from the cache: a holder of this budget waits for neither of the other two.
        self.hits = FrameBudget(settings.memory_bytes // 2, patience_seconds=_CLIENT_PATIENCE_SECONDS)
        self.cache = self._make_cache()
        self.max_frame_bytes = settings.max_frame_bytes
        self.metrics = Metrics()
        self.metrics.cache = self.cache
        #: The client id of the proxy's own requests: one that comes back shows a loop.
        self.own_client_id = f"ottla-proxy-{uuid.uuid4()}"
        self.failure: ProxyError | None = None
        self.failed = trio.Event()

    def _make_cache(self) -> Cache | None:
        chosen = self.settings.cache
        if chosen is None:
            return None
        from ottla.proxy.cache.cache import Cache
        from ottla.storage.disk.real_disk import RealDisk

        return Cache(RealDisk(), chosen.folder, chosen.size_bytes, chosen.vouched)

    def fail(self, error: ProxyError) -> ProxyError:
        """End the proxy with this error, unless another came first. Returns the error."""
        if self.failure is None:
            self.failure = error
            self.failed.set()
        return error

    def found_loop(self) -> ProxyError:
        """A request of this proxy has come back to it."""
        addresses = ", ".join(f"{host}:{port}" for host, port in self.settings.upstream)
        return self.fail(
            ProxyError(f"upstream {addresses} leads back to this proxy: name the brokers of the cluster themselves")
        )
