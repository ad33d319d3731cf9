"""Metrics that clients push (KIP-714): one series for each number, up to a limit."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from ottla.metrics.metric import Family, Sample, counter, gauge, single
from ottla.runtime.time_slice import TimeSlice
from ottla.server.client_metrics.errors import (
    ClientMetricsError,
    InvalidTelemetryRequestError,
    TelemetryTooEarlyError,
    TelemetryTooLargeError,
    UnknownSubscriptionError,
    UnreadableTelemetryError,
    UnsupportedTelemetryCompressionError,
)

if TYPE_CHECKING:
    from ottla.server.broker import Broker

_LABELS: Final = ("client_instance_id", "client_id", "metric", "attributes")

CLIENTS: Final = gauge("ottla_client_metrics_clients", "Clients that were told which metrics to push.")
PUSHES: Final = counter("ottla_client_metrics_pushes_total", "Pushes of metrics that were accepted.")
ERRORS: Final = counter("ottla_client_metrics_errors_total", "Requests for or with metrics that were refused.", "error")
DROPPED: Final = counter(
    "ottla_client_metrics_dropped_series_total",
    "Numbers of a push for which there was no room (`ottla.metrics.max.client.series`).",
)
GAUGE: Final = gauge("ottla_client_gauge", "What a client pushed last, by the metric's own name.", *_LABELS)
COUNTER: Final = counter(
    "ottla_client_counter_total",
    "What a client has counted while it is known here, by the metric's own name.",
    *_LABELS,
)

METRICS: Final = (CLIENTS, PUSHES, ERRORS, DROPPED, GAUGE, COUNTER)

_NAMES: Final[dict[type[ClientMetricsError], str]] = {
    InvalidTelemetryRequestError: "invalid_request",
    TelemetryTooEarlyError: "too_early",
    UnknownSubscriptionError: "unknown_subscription",
    UnsupportedTelemetryCompressionError: "unsupported_compression",
    TelemetryTooLargeError: "too_large",
    UnreadableTelemetryError: "unreadable",
}


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module; nothing before a client has come."""
    manager = broker.client_metrics
    clients = list(manager.clients())
    if not clients and not manager.pushes and not manager.errors:
        return
    time_slice = TimeSlice()
    gauges: list[Sample] = []
    counters: list[Sample] = []
    for client in clients:
        who = client.attributes["client_instance_id"], client.attributes["client_id"][:_MAX_CLIENT_ID]
        for kept, samples in ((client.pushed.gauges, gauges), (client.pushed.counters, counters)):
            samples += [((*who, *series), value) for series, value in kept.items()]
        await time_slice.maybe_yield()
    yield single(CLIENTS, len(clients))
    yield single(PUSHES, manager.pushes)
    yield Family(ERRORS, [((_NAMES[error],), count) for error, count in manager.errors.items()])
    yield single(DROPPED, manager.dropped_series)
    yield Family(GAUGE, gauges)
    yield Family(COUNTER, counters)


_MAX_CLIENT_ID: Final = 200
