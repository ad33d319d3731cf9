"""This broker as a process: its requests, connections, memory, files and loop."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing
from functools import cache
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.errors import ErrorCode
from ottla.metrics import process
from ottla.metrics.metric import Family, Metric, Sample, counter, gauge, histogram, single
from ottla.runtime.time_slice import TimeSlice
from ottla.runtime.version import version
from ottla.server.request_metrics import PHASES, RequestMetrics
from ottla.server.telemetry.readiness import unready_reasons

if TYPE_CHECKING:
    from ottla.runtime.purgatory import Purgatory
    from ottla.server.broker import Broker

INFO: Final = gauge("ottla_build_info", "1, with the version of Ottla and of Python.", "version", "python")
READY: Final = gauge("ottla_ready", "1 if the broker serves everything that it should, as /readyz says.")

TASK_FAILURES: Final = counter(
    "ottla_task_failures_total", "Failures of work in the background, which the broker outlived, by task.", "task"
)

REQUESTS: Final = counter("ottla_requests_total", "Requests answered, or that need no answer.", "api")
REQUEST_BYTES: Final = counter("ottla_request_bytes_total", "Bytes of these requests.", "api")
RESPONSE_BYTES: Final = counter("ottla_response_bytes_total", "Bytes of their responses.", "api")
ERRORS: Final = counter(
    "ottla_request_errors_total",
    "Error codes answered: one for a request, or one for each thing that it asked for.",
    *("api", "error"),
)
DURATION: Final = histogram(
    "ottla_request_duration_seconds",
    "Time of a request by phase: queue, local, remote (waiting for a flush, records, members), send; and total.",
    *("api", "phase"),
)

CONNECTIONS: Final = gauge("ottla_connections", "Open connections of clients, by listener.", "listener")
ACCEPTED: Final = counter("ottla_connections_accepted_total", "Connections accepted.", "listener")
REFUSED: Final = counter(
    "ottla_connections_refused_total",
    "Connections closed at once, by the setting or quota that was reached.",
    "reason",
)
DELAYED: Final = counter(
    "ottla_connections_delayed_total", "Times that accepting paused for a limit of connections or of their rate."
)
THROTTLED: Final = counter("ottla_throttled_requests_total", "Requests that were throttled, by kind of quota.", "quota")
THROTTLE_SECONDS: Final = counter("ottla_throttle_seconds_total", "Time that clients were told to wait.", "quota")

APPENDS: Final = counter("ottla_appends_total", "Record batches appended.")
APPEND_BYTES: Final = counter("ottla_append_bytes_total", "Bytes of these batches.")
APPEND_ERRORS: Final = counter("ottla_append_errors_total", "Record batches that were refused.")
FETCHES: Final = counter("ottla_fetches_total", "Fetch operations.")
FETCH_BYTES: Final = counter("ottla_fetch_bytes_total", "Bytes of records fetched, by followers too.")
FETCH_ERRORS: Final = counter("ottla_fetch_errors_total", "Partitions of fetches answered with an error.")
READS: Final = counter(
    "ottla_reads_total", "Partitions read by fetches, from memory or from files (and the page cache).", "source"
)
SESSIONS: Final = gauge("ottla_fetch_sessions", "Incremental fetch sessions.")
SESSION_EVICTIONS: Final = counter("ottla_fetch_session_evictions_total", "Fetch sessions that had to make room.")

PURGATORY_SIZE: Final = gauge("ottla_purgatory_operations", "Operations that wait.", "purgatory")
PURGATORY_KEYS: Final = gauge(
    "ottla_purgatory_watched_keys", "Partitions, groups and such that are waited for.", "purgatory"
)
PURGATORY_DONE: Final = counter(
    "ottla_purgatory_ended_total", "Operations that had to wait, by how that ended.", "purgatory", "how"
)

STORES: Final = gauge("ottla_stores", "Stores (topic folders) that are open.")
STORES_OFFLINE: Final = gauge("ottla_stores_offline", "Stores that have stopped because the disk has failed.")
DAMAGED_PLACES: Final = gauge("ottla_damaged_places", "Places in data files that are known to be damaged or lost.")
SCRUBBED_BYTES: Final = counter("ottla_scrubbed_bytes_total", "Bytes of closed data files read to look for damage.")
SCRUBBED_AT: Final = gauge(
    "ottla_scrub_finished_timestamp_seconds",
    "When all closed data files had been read to look for damage; 0: never.",
)
MEMSTORE_BYTES: Final = gauge("ottla_memstore_bytes", "Bytes appended and not yet written.")
BLOCK_WRITES: Final = histogram(
    "ottla_block_write_seconds", "Time to write a block, with its sync if one is asked for."
)
WRITTEN_BYTES: Final = counter("ottla_written_bytes_total", "Bytes of blocks written.")
UNSYNCED_BYTES: Final = gauge("ottla_unsynced_bytes", "Bytes written and not known to be synced.")
DATA_BYTES: Final = gauge("ottla_data_bytes", "Size of all data files.")
SEGMENTS: Final = gauge("ottla_segments", "Segments of all stores.")
TAIL_BYTES: Final = gauge("ottla_tail_cache_bytes", "Written blocks kept in memory for readers at the end of the log.")
OPEN_SEGMENT_FILES: Final = gauge("ottla_fd_cache_files", "Sealed segments' files that are open.")
FD_HITS: Final = counter("ottla_fd_cache_hits_total", "Reads that found their file open.")
FD_MISSES: Final = counter("ottla_fd_cache_misses_total", "Reads that had to open their file.")
DISK_FREE: Final = gauge("ottla_disk_free_bytes", "Room left for the data folder.")

POOL_IN_USE: Final = gauge("ottla_buffer_pool_in_use_bytes", "Pooled memory in use.")
POOL_RETAINED: Final = gauge("ottla_buffer_pool_retained_bytes", "Pooled memory kept for reuse.")
BUDGET_USED: Final = gauge("ottla_memory_budget_used_bytes", "Memory charged for requests or responses.", "budget")
BUDGET_LIMIT: Final = gauge(
    "ottla_memory_budget_limit_bytes", "Above this, the broker stops reading from clients.", "budget"
)
BUDGET_WAITING: Final = gauge("ottla_memory_budget_waiting", "Connections that wait for room in the budget.", "budget")

LOOP_LAG: Final = histogram("ottla_loop_lag_seconds", "How late a timer of the loop fires, four times a second.")
LOOP_HOLDS: Final = counter("ottla_loop_holds_total", "Steps beyond ottla.loop.hold.warning.ms, where that is set.")
LOOP_LONGEST: Final = gauge("ottla_loop_longest_hold_seconds", "The longest of these.")

METRICS: Final = (*(metric for metric in globals().values() if isinstance(metric, Metric)), *process.METRICS)

_BY_API: Final[tuple[tuple[Metric, Callable[[RequestMetrics], float]], ...]] = (
    (REQUESTS, lambda metrics: metrics.requests),
    (REQUEST_BYTES, lambda metrics: metrics.request_bytes),
    (RESPONSE_BYTES, lambda metrics: metrics.response_bytes),
)
_OF_PURGATORY: Final[tuple[tuple[Metric, Callable[[Purgatory], float]], ...]] = (
    (PURGATORY_SIZE, lambda purgatory: purgatory.watching),
    (PURGATORY_KEYS, lambda purgatory: purgatory.watched_keys),
)


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    yield single(READY, int(not unready_reasons(broker)))
    yield Family(TASK_FAILURES, [((task,), count) for task, count in broker.supervisor.failures.items()])
    yield Family(INFO, [(version_labels(), 1)])
    for part in (_requests, _connections, _replicas, _memory, _loop):
        for family in part(broker):
            yield family
    async with aclosing(_storage(broker)) as families:
        async for family in families:
            yield family
    # Counting descriptors and asking for free space are the system's work, and may take it a while.
    for family in await trio.to_thread.run_sync(_process, broker.log_manager.node_dir.path):
        yield family


def _requests(broker: Broker) -> Iterator[Family]:
    called = [(api.key.name.lower(), api.metrics) for api in broker.apis if api.metrics is not None]
    for metric, read in _BY_API:
        yield Family(metric, [((name,), read(metrics)) for name, metrics in called])
    yield Family(
        ERRORS,
        [
            ((name, _error_name(code)), count)
            for name, metrics in called
            for code, count in sorted(metrics.errors.items())
        ],
    )
    yield Family(DURATION, (((name, phase), getattr(metrics, phase)) for name, metrics in called for phase in PHASES))


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name.lower()
    except ValueError:
        return str(code)


def _connections(broker: Broker) -> Iterator[Family]:
    listeners = broker.listeners
    if listeners is not None:
        yield Family(CONNECTIONS, [((name,), count) for name, count in listeners.open_by_listener().items()])
        yield Family(ACCEPTED, [((name,), count) for name, count in listeners.accepted.items()])
        yield Family(REFUSED, [((reason,), count) for reason, count in listeners.refused.items()])
        yield single(DELAYED, listeners.delayed)
    throttles = broker.quotas.throttles
    yield Family(THROTTLED, [((kind,), throttle.count) for kind, throttle in throttles.items()])
    yield Family(THROTTLE_SECONDS, [((kind,), throttle.seconds) for kind, throttle in throttles.items()])


def _replicas(broker: Broker) -> Iterator[Family]:
    manager = broker.replica_manager
    counters = manager.counters
    yield single(APPENDS, counters.appends)
    yield single(APPEND_BYTES, counters.appended_bytes)
    yield single(APPEND_ERRORS, counters.append_errors)
    yield single(FETCHES, counters.fetches)
    yield single(FETCH_BYTES, counters.fetched_bytes)
    yield single(FETCH_ERRORS, counters.fetch_errors)
    yield Family(READS, [(("memory",), counters.memory_reads), (("file",), counters.file_reads)])
    yield single(SESSIONS, len(manager.fetch_sessions))
    yield single(SESSION_EVICTIONS, manager.fetch_sessions.evictions)
    purgatories = [
        manager.append_purgatory,
        manager.fetch_purgatory,
        manager.delete_records_purgatory,
        manager.share_fetch_purgatory,
        broker.group_coordinator.purgatory,
        broker.group_coordinator.answers,
    ]
    named = [(purgatory.name.replace(" ", "_"), purgatory) for purgatory in purgatories]
    for metric, read in _OF_PURGATORY:
        yield Family(metric, [((name,), read(purgatory)) for name, purgatory in named])
    yield Family(PURGATORY_DONE, [sample for name, purgatory in named for sample in _endings(name, purgatory)])


def _endings(name: str, purgatory: Purgatory) -> Iterator[Sample]:
    yield (name, "completed"), purgatory.completed_later
    yield (name, "expired"), purgatory.expired


async def _storage(broker: Broker) -> AsyncGenerator[Family, None]:
    stores = list(broker.log_manager.stores())
    context = broker.log_manager.context
    offline = memstore_bytes = unsynced_bytes = data_bytes = segments = 0
    time_slice = TimeSlice()
    for store in stores:
        offline += store.error is not None
        memstore_bytes += store.writer.active.size_bytes
        unsynced_bytes += store.files.unsynced_bytes
        data_bytes += store.files.size_bytes
        segments += len(store.files.segments)
        await time_slice.maybe_yield()
    yield single(STORES, len(stores))
    yield single(STORES_OFFLINE, offline)
    yield single(DAMAGED_PLACES, len(context.damage))
    scrubber = broker.log_manager.scrubber
    yield single(SCRUBBED_BYTES, scrubber.read_bytes)
    yield single(SCRUBBED_AT, scrubber.state.finished_ms / 1000)
    yield single(MEMSTORE_BYTES, memstore_bytes)
    yield Family(BLOCK_WRITES, [((), context.block_writes)])
    yield single(WRITTEN_BYTES, context.written_bytes)
    yield single(UNSYNCED_BYTES, unsynced_bytes)
    yield single(DATA_BYTES, data_bytes)
    yield single(SEGMENTS, segments)
    yield single(TAIL_BYTES, context.tail.size_bytes)
    yield single(OPEN_SEGMENT_FILES, len(context.fd_cache))
    yield single(FD_HITS, context.fd_cache.counters.hits)
    yield single(FD_MISSES, context.fd_cache.counters.misses)


def _memory(broker: Broker) -> Iterator[Family]:
    yield single(POOL_IN_USE, broker.pool.counters.in_use_bytes)
    yield single(POOL_RETAINED, broker.pool.counters.retained_bytes)
    budgets = (("requests", broker.budget), ("responses", broker.replica_manager.response_budget))
    yield Family(BUDGET_USED, [((name,), budget.used_bytes) for name, budget in budgets])
    yield Family(BUDGET_LIMIT, [((name,), budget.limit_bytes) for name, budget in budgets])
    yield Family(BUDGET_WAITING, [((name,), budget.waiting) for name, budget in budgets])


def _loop(broker: Broker) -> Iterator[Family]:
    yield Family(LOOP_LAG, [((), broker.loop_lag)])
    if broker.watchdog is not None:
        yield single(LOOP_HOLDS, broker.watchdog.holds)
        yield single(LOOP_LONGEST, broker.watchdog.longest_hold_ms / 1000)


def _process(data_path: str) -> list[Family]:
    """The system's figures of the process and of its disk. May block."""
    families = process.collect()
    try:
        found = os.statvfs(data_path)
        families.append(single(DISK_FREE, found.f_bavail * found.f_frsize))
    except OSError:
        pass  # a disk that is simulated, or a folder that is gone
    return families


@cache
def version_labels() -> tuple[str, str]:
    """The versions of Ottla and of Python. Slow when it is first called."""
    return version(), sys.version.split()[0]
