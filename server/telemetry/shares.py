"""Share groups as the leaders of their partitions see them. Nothing of it is there before a member has come."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from ottla.metrics.metric import Family, counter, gauge, single
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from ottla.server.broker import Broker

SESSIONS: Final = gauge("ottla_share_sessions", "Share sessions of members that fetch from this broker.")
EVICTIONS: Final = counter("ottla_share_session_evictions_total", "Share sessions that ended with their connection.")
PARTITIONS: Final = gauge("ottla_share_partitions", "Share partitions that are held in memory, by group.", "group")
IN_FLIGHT: Final = gauge(
    "ottla_share_in_flight_records", "Records from the start offset to the last one fetched, by group.", "group"
)
FETCHES: Final = counter("ottla_share_fetches_total", "Share fetches.")
ACQUIRED: Final = counter("ottla_share_acquired_records_total", "Records that were given to members.")
ACKNOWLEDGED: Final = counter(
    "ottla_share_acknowledged_records_total", "Records that members acknowledged, by how.", "type"
)
EXPIRED: Final = counter("ottla_share_expired_locks_total", "Locks that ended before what they held was acknowledged.")
LETTERS: Final = counter(
    "ottla_share_dead_letters_total", "Records that were written to dead-letter queues, by group.", "group"
)
LETTER_REQUESTS: Final = counter(
    "ottla_share_dead_letter_requests_total",
    "Batches for dead-letter queues that were to be written, by group.",
    "group",
)
FAILED_LETTER_REQUESTS: Final = counter(
    "ottla_share_dead_letter_failures_total", "Those of them that were not written, by group.", "group"
)

METRICS: Final = (
    SESSIONS,
    EVICTIONS,
    PARTITIONS,
    IN_FLIGHT,
    FETCHES,
    ACQUIRED,
    ACKNOWLEDGED,
    EXPIRED,
    LETTERS,
    LETTER_REQUESTS,
    FAILED_LETTER_REQUESTS,
)

_TYPES: Final = ("gap", "accept", "release", "reject", "renew")


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    manager = broker.share.made
    if manager is None:
        return
    counters = manager.counters
    time_slice = TimeSlice()
    partitions: Counter[str] = Counter()
    in_flight: Counter[str] = Counter()
    expired = counters.expired_locks
    for share in list(manager):
        partitions[share.key.group_id] += 1
        in_flight[share.key.group_id] += share.in_flight_count
        expired += share.expired_locks
        await time_slice.maybe_yield()
    room = broker.config.ottla_metrics_max_partitions
    groups = sorted(partitions)[:room]
    yield single(SESSIONS, len(manager.sessions))
    yield single(EVICTIONS, manager.sessions.evictions)
    yield Family(PARTITIONS, [((group,), partitions[group]) for group in groups])
    yield Family(IN_FLIGHT, [((group,), in_flight[group]) for group in groups])
    yield single(FETCHES, counters.fetches)
    yield single(ACQUIRED, counters.acquired_records)
    yield Family(ACKNOWLEDGED, [((_TYPES[kind],), count) for kind, count in sorted(counters.acknowledged.items())])
    yield single(EXPIRED, expired)
    queues = sorted(manager.dead_letters.counters.items())[:room]
    yield Family(LETTERS, [((group,), counted.records) for group, counted in queues])
    yield Family(LETTER_REQUESTS, [((group,), counted.requests) for group, counted in queues])
    yield Family(FAILED_LETTER_REQUESTS, [((group,), counted.failed_requests) for group, counted in queues])
