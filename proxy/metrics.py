"""The proxy's counters, as families of metrics (`ottla.metrics`)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey
from ottla.metrics.metric import Family, Metric, counter, gauge, single

if TYPE_CHECKING:
    from ottla.proxy.cache.cache import Cache

_CONNECTIONS: Final = gauge("ottla_proxy_connections", "Open connections of clients.", "listener")
_ACCEPTED: Final = counter(
    "ottla_proxy_connections_accepted_total", "Connections of clients that were accepted.", "listener"
)
_REFUSED: Final = counter(
    "ottla_proxy_connections_refused_total",
    "Connections ended by the proxy: limit, idle, login, upstream (not there), frame (not Kafka's).",
    "reason",
)
_UPSTREAM_FAILURES: Final = counter(
    "ottla_proxy_upstream_failures_total", "Failed attempts to connect to upstream.", "address"
)
_BROKERS: Final = gauge("ottla_proxy_brokers", "Brokers of upstream that have a port here.")
_REQUESTS: Final = counter("ottla_proxy_requests_total", "Requests that came from clients.", "api")
_REQUEST_BYTES: Final = counter("ottla_proxy_request_bytes_total", "Bytes of these requests.", "api")
_RESPONSE_BYTES: Final = counter(
    "ottla_proxy_response_bytes_total", "Bytes of the answers that came from upstream.", "api"
)
_FILTER_CALLS: Final = counter("ottla_proxy_filter_calls_total", "Messages that a filter was shown.", "filter")
_FILTER_SECONDS: Final = counter(
    "ottla_proxy_filter_seconds_total", "Time that this took, with what the filter waited for.", "filter"
)
_FILTER_REFUSALS: Final = counter(
    "ottla_proxy_filter_refusals_total", "Requests that a filter refused, or on which it failed.", "filter"
)
_CACHE_ON: Final = gauge("ottla_proxy_cache_on", "1; 0 if its disk has failed.")
_CACHE_BYTES: Final = gauge("ottla_proxy_cache_bytes", "What is kept, on disk.")
_CACHE_PARTITIONS: Final = counter(
    "ottla_proxy_cache_partitions_total",
    "Partitions in requests: served from the cache (hit), asked for at upstream (miss), or asked about (check).",
    "result",
)
_CACHE_JOINED: Final = counter(
    "ottla_proxy_cache_joined_total", "Requests that waited for what another one had asked for."
)
_CACHE_SERVED: Final = counter(
    "ottla_proxy_cache_served_bytes_total", "Bytes of records that were served from the cache."
)
_CACHE_KEPT: Final = counter("ottla_proxy_cache_kept_bytes_total", "Bytes of records that were put into it.")
_CACHE_UNSOUND: Final = counter(
    "ottla_proxy_cache_unsound_total", "Answers from upstream that were not kept because their records are damaged."
)


class Metrics:
    """The counters of one proxy, incremented where things happen."""

    def __init__(self) -> None:
        self.accepted: Counter[str] = Counter()  # connections, by listener
        self.refused: Counter[str] = Counter()  # connections ended by the proxy, by reason
        self.open: Counter[str] = Counter()  # connections now, by listener
        self.upstream_failures: Counter[str] = Counter()  # connections that were not made, by address
        self.requests: Counter[int] = Counter()  # by API key
        self.request_bytes: Counter[int] = Counter()
        self.response_bytes: Counter[int] = Counter()
        self.filter_calls: Counter[str] = Counter()  # by the filter's name
        self.filter_refusals: Counter[str] = Counter()
        self.filter_seconds: defaultdict[str, float] = defaultdict(float)

        self.cache: Cache | None = None

    async def families(self, brokers: int) -> AsyncGenerator[Family, None]:
        """All of it; so many brokers of upstream have a port here."""
        yield _by(_CONNECTIONS, self.open)
        yield _by(_ACCEPTED, self.accepted)
        yield _by(_REFUSED, self.refused)
        yield _by(_UPSTREAM_FAILURES, self.upstream_failures)
        yield single(_BROKERS, brokers)
        yield _by_api(_REQUESTS, self.requests)
        yield _by_api(_REQUEST_BYTES, self.request_bytes)
        yield _by_api(_RESPONSE_BYTES, self.response_bytes)
        yield _by(_FILTER_CALLS, self.filter_calls)
        yield _by(_FILTER_SECONDS, self.filter_seconds)
        yield _by(_FILTER_REFUSALS, self.filter_refusals)
        if self.cache is not None:
            for family in _of_cache(self.cache):
                yield family


def _of_cache(cache: Cache) -> Iterator[Family]:
    counted = cache.counters
    yield single(_CACHE_ON, int(cache.is_on))
    yield single(_CACHE_BYTES, cache.used_bytes)
    yield _by(_CACHE_PARTITIONS, {"hit": counted.hits, "miss": counted.misses, "check": counted.checks})
    yield single(_CACHE_JOINED, counted.joined)
    yield single(_CACHE_SERVED, counted.served_bytes)
    yield single(_CACHE_KEPT, counted.kept_bytes)
    yield single(_CACHE_UNSOUND, counted.unkept)


def _by(metric: Metric, counts: Mapping[str, float]) -> Family:
    return Family(metric, [((key,), value) for key, value in sorted(counts.items())])


def _by_api(metric: Metric, counts: Mapping[int, float]) -> Family:
    return _by(metric, {ApiKey(key).kafka_name: value for key, value in counts.items()})
