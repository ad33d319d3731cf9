"""What the proxy counts, and its text for Prometheus (format 0.0.4)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from ottla.kproto.api_keys import ApiKey

if TYPE_CHECKING:
    from ottla.proxy.cache.cache import Cache

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

_ESCAPES: Final = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Metrics:
    """The counters of one proxy. Whoever does something counts it."""

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

    def render(self, brokers: int) -> str:
        """All of it as text."""
        lines = [
            *_family("ottla_proxy_connections", "gauge", "Open connections of clients.", _by("listener", self.open)),
            *_family(
                "ottla_proxy_connections_accepted_total",
                "counter",
                "Connections of clients that were accepted.",
                _by("listener", self.accepted),
            ),
            *_family(
                "ottla_proxy_connections_refused_total",
                "counter",
                "Connections ended by the proxy: limit, idle, login, upstream (not there), frame (not Kafka's).",
                _by("reason", self.refused),
            ),
            *_family(
                "ottla_proxy_upstream_failures_total",
                "counter",
                "Failed attempts to connect to upstream.",
                _by("address", self.upstream_failures),
            ),
            *_family("ottla_proxy_brokers", "gauge", "Brokers of upstream that have a port here.", {"": brokers}),
            *_family(
                "ottla_proxy_requests_total", "counter", "Requests that came from clients.", _by_api(self.requests)
            ),
            *_family(
                "ottla_proxy_request_bytes_total", "counter", "Bytes of these requests.", _by_api(self.request_bytes)
            ),
            *_family(
                "ottla_proxy_response_bytes_total",
                "counter",
                "Bytes of the answers that came from upstream.",
                _by_api(self.response_bytes),
            ),
            *_family(
                "ottla_proxy_filter_calls_total",
                "counter",
                "Messages that a filter was shown.",
                _by("filter", self.filter_calls),
            ),
            *_family(
                "ottla_proxy_filter_seconds_total",
                "counter",
                "Time that this took, with what the filter waited for.",
                _by("filter", self.filter_seconds),
            ),
            *_family(
                "ottla_proxy_filter_refusals_total",
                "counter",
                "Requests that a filter refused, or on which it failed.",
                _by("filter", self.filter_refusals),
            ),
            *([] if self.cache is None else _of_cache(self.cache)),
        ]
        return "".join(lines)


def _of_cache(cache: Cache) -> Iterator[str]:
    counted = cache.counters
    partitions = {"hit": counted.hits, "miss": counted.misses, "check": counted.checks}
    yield from _family("ottla_proxy_cache_on", "gauge", "1; 0 if its disk has failed.", {"": int(cache.is_on)})
    yield from _family("ottla_proxy_cache_bytes", "gauge", "What is kept, on disk.", {"": cache.used_bytes})
    yield from _family(
        "ottla_proxy_cache_partitions_total",
        "counter",
        "Partitions in requests: served from the cache (hit), asked for at upstream (miss), or asked about (check).",
        _by("result", partitions),
    )
    yield from _family(
        "ottla_proxy_cache_joined_total",
        "counter",
        "Requests that waited for what another one had asked for.",
        {"": counted.joined},
    )
    yield from _family(
        "ottla_proxy_cache_served_bytes_total",
        "counter",
        "Bytes of records that were served from the cache.",
        {"": counted.served_bytes},
    )
    yield from _family(
        "ottla_proxy_cache_kept_bytes_total",
        "counter",
        "Bytes of records that were put into it.",
        {"": counted.kept_bytes},
    )
    yield from _family(
        "ottla_proxy_cache_unsound_total",
        "counter",
        "Answers from upstream that were not kept because their records are damaged.",
        {"": counted.unkept},
    )


def _family(name: str, kind: str, text: str, samples: Mapping[str, float]) -> Iterator[str]:
    yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
    for labels, value in samples.items():
        yield f"{name}{labels} {value}\n"


def _by(label: str, counts: Mapping[str, float]) -> dict[str, float]:
    return {f'{{{label}="{key.translate(_ESCAPES)}"}}': value for key, value in sorted(counts.items())}


def _by_api(counts: Mapping[int, float]) -> dict[str, float]:
    return _by("api", {_api(key): value for key, value in counts.items()})


def _api(key: int) -> str:
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))
