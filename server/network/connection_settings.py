"""The settings that limit connections, as the listeners have them.

Limits hold at once. Names in `max.connections.per.ip.overrides` are looked up beside everything else: a name server
that answers late, or never, holds up no change of the metadata, no start and no stop. Until a name is known its host is
like any other.
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Iterable, Mapping, Set
from ipaddress import ip_address
from math import inf
from typing import TYPE_CHECKING, Final

import trio

from ottla.server.network.endpoints import client_listeners
from ottla.server.quotas.connections import ConnectionLimits, ListenerLimits

if TYPE_CHECKING:
    from ottla.server.network.listener import Listeners
    from ottla.server.network.network import Network
    from ottla.settings.config import BrokerConfig

logger = logging.getLogger(__name__)

# For the writers of stores, the metadata, indexes that are being built, the HTTP port; and, for each file that is kept
# open for readers, its index.
_OWN_DESCRIPTORS: Final = 192
_LOOK_AGAIN_SECONDS: Final = 60.0
_NONE_KNOWN: Final[Mapping[str, Set[str]]] = {}


def connection_limits(config: BrokerConfig, known: Mapping[str, Set[str]] = _NONE_KNOWN) -> ConnectionLimits:
    """The limits on connections as they are configured now. `known` are the addresses of hosts with names."""
    per_listener = {}
    for name in (address.name for address in client_listeners(config)):
        own = config.for_listener(name)
        per_listener[name] = ListenerLimits(own.max_connections, own.max_connection_creation_rate)
    return ConnectionLimits(
        max_frame_bytes=config.socket_request_max_bytes,
        max_pipelined=config.ottla_max_in_flight_requests_per_connection,
        max_connections=min(config.max_connections, _room_for_connections(config)),
        max_creation_rate=config.max_connection_creation_rate,
        max_connections_per_ip=config.max_connections_per_ip,
        max_idle_ms=config.connections_max_idle_ms,
        per_ip_overrides={
            address: count
            for host, count in _overrides(config)
            for address in ([host] if _is_address(host) else known.get(host, ()))
        },
        listeners=per_listener,
    )


class ConnectionSettings:
    """Gives the listeners the limits that are configured. `run` looks names up."""

    def __init__(self, config: BrokerConfig, network: Network, listeners: Listeners) -> None:
        self._config = config
        self._network = network
        self._listeners = listeners
        #: The addresses of the hosts that are named. They are looked up once, as Kafka does it.
        self._known: dict[str, Set[str]] = {}
        self._changed = trio.Event()

    def renew(self) -> None:
        """The settings may have changed: give the listeners what holds from now on."""
        named = self._named()
        self._known = {host: addresses for host, addresses in self._known.items() if host in named}
        self._listeners.set_limits(connection_limits(self._config, self._known))
        self._changed.set()

    async def run(self) -> None:
        """Look up the configured host names until cancelled, one at a time. A name that is not found is logged once,
        and looked up again each minute.
        """
        logged: set[str] = set()
        while True:
            self._changed = trio.Event()
            missing = self._named() - self._known.keys()
            for host in sorted(missing):
                try:
                    self._known[host] = await self._network.look_up(host)
                except OSError as error:
                    if host not in logged:
                        _log_unknown(host, error)
                else:
                    self._listeners.set_limits(connection_limits(self._config, self._known))
            logged = missing - self._known.keys()
            with trio.move_on_after(_LOOK_AGAIN_SECONDS if logged else inf):
                await self._changed.wait()

    def _named(self) -> set[str]:
        return {host for host, _ in _overrides(self._config) if not _is_address(host)}


def _log_unknown(host: str, error: OSError) -> None:
    text = "max.connections.per.ip.overrides: %s is not known: %s"
    logger.warning(text, host, error.strerror, extra={"error": error.strerror})


def _overrides(config: BrokerConfig) -> Iterable[tuple[str, int]]:
    """The hosts of `host:count, …`: addresses as peers have them, or names."""
    for entry in filter(None, map(str.strip, config.max_connections_per_ip_overrides.split(","))):
        host, _, count = entry.rpartition(":")
        host = host.strip("[]")
        yield (str(ip_address(host)) if _is_address(host) else host), int(count)


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _room_for_connections(config: BrokerConfig) -> int:
    """How many connections leave the store the descriptors that it needs, whatever clients do."""
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit == resource.RLIM_INFINITY:
        return config.max_connections
    return max(limit - _OWN_DESCRIPTORS - 2 * config.ottla_open_files, limit // 2)
