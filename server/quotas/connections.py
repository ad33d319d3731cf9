"""How many connections there may be, and how fast new ones may come (KIP-306, KIP-612).

- `max.connections` of the broker and of a listener: beyond it nothing is accepted until one closes.
- `max.connections.per.ip` and its overrides: what is beyond it is closed at once.
- `max.connection.creation.rate` of the broker and of a listener: accepting pauses.
- `connection_creation_rate` of an address, a quota of the cluster's metadata: what is beyond it is kept without an
  answer for as long as the address is ahead, at most one window, and then closed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.metadata.image import IP
from ottla.runtime.time_slice import TimeSlice
from ottla.server.quotas.rates import Rate
from ottla.settings.types import INT32_MAX

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta, QuotaEntity

CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

_MAX_RATES: Final = 10_000
_NO_OVERRIDES: Final[Mapping[str, int]] = MappingProxyType({})


class ListenerLimits(NamedTuple):
    """The limits of one listener."""

    max_connections: int = INT32_MAX
    max_creation_rate: int = INT32_MAX


_NO_LIMITS: Final = ListenerLimits()


class ConnectionLimits(NamedTuple):
    """Settings of connections as such; `max_pipelined` is how many Produce requests of one may overlap."""

    max_frame_bytes: int = 104_857_600
    max_pipelined: int = 16
    max_connections: int = INT32_MAX
    max_creation_rate: int = INT32_MAX
    max_connections_per_ip: int = INT32_MAX
    max_idle_ms: int = 600_000
    per_ip_overrides: Mapping[str, int] = _NO_OVERRIDES
    listeners: Mapping[str, ListenerLimits] = MappingProxyType({})

    def of_listener(self, name: str) -> ListenerLimits:
        return self.listeners.get(name, _NO_LIMITS)

    def of_address(self, host: str) -> int:
        """Connections that an address may have."""
        return self.per_ip_overrides.get(host, self.max_connections_per_ip)


class ConnectionRates:
    """How fast connections come: on the broker, on each listener, from each address that has a quota."""

    def __init__(self, windows: int = 11, window_seconds: float = 1.0) -> None:
        self._windows = windows
        self._window_seconds = window_seconds
        self._quotas: dict[str | None, float] = {}
        self._by_listener: dict[str, Rate] = {}
        self._by_address: OrderedDict[str, Rate] = OrderedDict()

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow the quotas of the cluster's metadata."""
        if delta.quotas_changed:
            await self.set_quotas(delta.after.quotas)

    async def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace the quotas of all addresses: read in steps, and then all at once."""
        found: dict[str | None, float] = {}
        time_slice = TimeSlice()
        for ((type_, name), *_), values in quotas.items():
            await time_slice.maybe_yield()
            if type_ == IP and CONNECTION_CREATION_RATE in values:
                found[None if name is None else str(ip_address(name))] = values[CONNECTION_CREATION_RATE]
        self._quotas = found
        if not self._quotas:
            self._by_address.clear()

    def delay_seconds(self, listener: str, limits: ConnectionLimits) -> float:
        """Count a connection of a listener; how long accepting has to pause after it."""
        longest = 0.0
        of_listener = limits.of_listener(listener).max_creation_rate
        for name, limit in (("", limits.max_creation_rate), (listener, of_listener)):
            if limit < INT32_MAX:
                rate = self._by_listener.setdefault(name, Rate(self._windows, self._window_seconds))
                longest = max(longest, self._count(rate, limit))
        return longest

    def throttle_seconds(self, host: str) -> float:
        """Count a connection from an address; how long to keep it before it is closed, 0 if it may stay."""
        if not self._quotas:
            return 0.0
        limit = self._quotas.get(host, self._quotas.get(None))
        if limit is None:
            return 0.0
        rate = self._by_address.get(host)
        if rate is None:
            if len(self._by_address) >= _MAX_RATES:
                self._by_address.popitem(last=False)
            rate = self._by_address[host] = Rate(self._windows, self._window_seconds)
        self._by_address.move_to_end(host)
        seconds = self._count(rate, limit)
        if seconds:
            rate.record(-1, trio.current_time())
        return seconds

    def _count(self, rate: Rate, limit: float) -> float:
        now = trio.current_time()
        rate.record(1, now)
        # A limit of 0 lets nobody in: wait one window at a time.
        seconds = rate.throttle_seconds(limit, now) if limit else self._window_seconds
        return min(seconds, self._window_seconds)
