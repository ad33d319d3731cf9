"""Client quotas: how many bytes a second a user or client id may produce and fetch (KIP-13, KIP-124).

A client beyond its quota is answered at once, with the time by which it is ahead, and its connection is not read for
that long; a Fetch beyond it is answered without records, which the client asks for again. Rates and throttle times are
those of Kafka's SampledStat, Rate and QuotaUtils: bytes over the last windows, divided by the time that these span.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.server.metadata.quota_changes import CLIENT_ID, USER

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.server.context import RequestContext
    from ottla.server.metadata.image import MetadataDelta, QuotaEntity

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"

#: Rates that are kept; beyond it the one that was used least lately is forgotten, and begins anew at zero.
MAX_RATES: Final = 10_000

_RATE_OF: Final = {ApiKey.PRODUCE: PRODUCER_BYTE_RATE, ApiKey.FETCH: CONSUMER_BYTE_RATE}


class Rate:
    """Amounts over the last `windows` windows. Times are seconds of one monotonic clock and never go back."""

    __slots__ = ("_samples", "_window_seconds", "_windows")

    def __init__(self, windows: int, window_seconds: float) -> None:
        self._windows = windows
        self._window_seconds = window_seconds
        #: (begin, amount) of each window in which something was recorded, oldest first.
        self._samples: deque[list[float]] = deque()

    def record(self, amount: float, now: float) -> None:
        """Count an amount; a negative one takes a count back."""
        if not self._samples or now - self._samples[-1][0] >= self._window_seconds:
            self._samples.append([now, 0.0])
        self._samples[-1][1] += amount

    def measure(self, now: float) -> tuple[float, float]:
        """The rate per second, and the seconds that it is taken over: never less than all windows but one."""
        while self._samples and now - self._samples[0][0] >= self._windows * self._window_seconds:
            self._samples.popleft()
        if not self._samples:
            return 0.0, (self._windows - 1) * self._window_seconds or self._window_seconds
        elapsed = now - self._samples[0][0]
        missing = self._windows - 1 - int(elapsed / self._window_seconds)
        span = elapsed + max(0, missing) * self._window_seconds
        span = span or self._window_seconds
        return sum(amount for _, amount in self._samples) / span, span

    def throttle_seconds(self, quota: float, now: float) -> float:
        """How long nothing may come until the rate is down to `quota`; 0 if it is not above it."""
        rate, span = self.measure(now)
        return (rate - quota) / quota * span if rate > quota else 0.0


class Throttle:
    """How often one kind of quota has made clients wait, and for how long together."""

    __slots__ = ("count", "seconds")

    def __init__(self) -> None:
        self.count = 0
        self.seconds = 0.0


class ClientQuotas:
    """The rates of all clients against the quotas of the cluster's metadata, which `apply` follows."""

    def __init__(self, windows: int = 11, window_seconds: float = 1.0) -> None:
        self._windows = windows
        self._window_seconds = window_seconds
        self._quotas: Mapping[QuotaEntity, Mapping[str, float]] = {}
        self._rates: OrderedDict[tuple[str, QuotaEntity], Rate] = OrderedDict()
        self.throttles = {kind: Throttle() for kind in _RATE_OF.values()}
        #: False as long as no byte rate is limited, so that requests need not be counted.
        self.is_active = False

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster's metadata."""
        if delta.quotas_changed:
            self.set_quotas(delta.after.quotas)

    def set_quotas(self, quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> None:
        """Replace all quotas; rates that were measured stay."""
        self._quotas = quotas
        self.is_active = any(key in values for values in quotas.values() for key in _RATE_OF.values())
        if not self.is_active:
            self._rates.clear()

    def charge(self, context: RequestContext, response: Response | None, sent_bytes: int) -> Response | None:
        """Count an answered request. Returns the response to send instead, if its client is beyond its quota.

        A Produce counts with the bytes of its request, a Fetch with those of its response.
        """
        kind = _RATE_OF.get(context.api.key)
        if kind is None:
            return None
        is_produce = kind == PRODUCER_BYTE_RATE
        amount = len(context.frame) if is_produce else sent_bytes
        seconds = self.throttle_seconds(kind, context.principal, context.header.client_id or "", amount)
        if not seconds:
            return None
        self.throttles[kind].count += 1
        self.throttles[kind].seconds += seconds
        context.connection.mute(seconds)
        if response is None:
            return None
        if not is_produce:
            self._take_back(kind, context, amount)
            session_id = getattr(response, "session_id", 0)
            response = type(response)()
            response.session_id = session_id  # type: ignore[attr-defined]
        response.throttle_time_ms = int(seconds * 1000)  # type: ignore[attr-defined]
        return response

    def throttle_seconds(self, kind: str, principal: str, client_id: str, amount: float) -> float:
        """Count an amount for a client and return by how many seconds it is ahead of its quota."""
        found = self._find(kind, principal, client_id)
        if found is None:
            return 0.0
        quota, rate = found
        now = trio.current_time()
        rate.record(amount, now)
        return rate.throttle_seconds(quota, now)

    def _take_back(self, kind: str, context: RequestContext, amount: float) -> None:
        found = self._find(kind, context.principal, context.header.client_id or "")
        if found is not None:
            found[1].record(-amount, trio.current_time())

    def _find(self, kind: str, principal: str, client_id: str) -> tuple[float, Rate] | None:
        """The quota that applies to a client, and the rate of those that share it."""
        _, _, user = principal.partition(":")
        for entity, sharing in _entities(user, client_id):
            quota = self._quotas.get(entity, {}).get(kind)
            if quota is not None:
                return quota, self._rate((kind, sharing))
        return None

    def _rate(self, key: tuple[str, QuotaEntity]) -> Rate:
        rate = self._rates.get(key)
        if rate is None:
            if len(self._rates) >= MAX_RATES:
                self._rates.popitem(last=False)
            rate = self._rates[key] = Rate(self._windows, self._window_seconds)
        else:
            self._rates.move_to_end(key)
        return rate


def _entities(user: str, client_id: str) -> Iterable[tuple[QuotaEntity, QuotaEntity]]:
    """The entities whose quota may apply, the first that has one does; each with who shares its rate."""
    both = ((CLIENT_ID, client_id), (USER, user))
    yield both, both
    yield ((CLIENT_ID, None), (USER, user)), both
    yield ((USER, user),), ((USER, user),)
    yield ((CLIENT_ID, client_id), (USER, None)), both
    yield ((CLIENT_ID, None), (USER, None)), both
    yield ((USER, None),), ((USER, user),)
    yield ((CLIENT_ID, client_id),), ((CLIENT_ID, client_id),)
    yield ((CLIENT_ID, None),), ((CLIENT_ID, client_id),)
