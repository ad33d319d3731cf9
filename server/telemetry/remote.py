"""What this broker does with its object store; the counterparts of Kafka's RemoteLogManager metrics. Nothing of it is
there without `ottla.remote.url`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from ottla.metrics.metric import Family, counter, gauge, single

if TYPE_CHECKING:
    from ottla.server.broker import Broker

COPIED_BYTES: Final = counter(
    "ottla_remote_copy_bytes_total", "Bytes of batches copied to the object store (RemoteCopyBytesPerSec)."
)
COPIES: Final = counter("ottla_remote_copy_requests_total", "Segments copied (RemoteCopyRequestsPerSec).")
COPY_ERRORS: Final = counter("ottla_remote_copy_errors_total", "Copies that failed (RemoteCopyErrorsPerSec).")
FETCHED_BYTES: Final = counter(
    "ottla_remote_fetch_bytes_total", "Bytes of batches read for clients (RemoteFetchBytesPerSec)."
)
FETCHES: Final = counter("ottla_remote_fetch_requests_total", "Reads for clients (RemoteFetchRequestsPerSec).")
FETCH_ERRORS: Final = counter("ottla_remote_fetch_errors_total", "Reads that failed (RemoteFetchErrorsPerSec).")
LATE_FETCHES: Final = counter(
    "ottla_remote_fetch_late_total", "Reads that took longer than remote.fetch.max.wait.ms, for which nothing was sent."
)
DELETES: Final = counter(
    "ottla_remote_delete_requests_total", "Segments deleted in the object store (RemoteDeleteRequestsPerSec)."
)
DELETE_ERRORS: Final = counter("ottla_remote_delete_errors_total", "Deletions that failed (RemoteDeleteErrorsPerSec).")
FAILING: Final = gauge("ottla_remote_failing", "What fails at present with the object store; the log says why.")

METRICS: Final = (
    COPIED_BYTES,
    COPIES,
    COPY_ERRORS,
    FETCHED_BYTES,
    FETCHES,
    FETCH_ERRORS,
    LATE_FETCHES,
    DELETES,
    DELETE_ERRORS,
    FAILING,
)


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    storage = broker.remote_storage
    if storage is None:
        return
    counters = storage.counters
    yield single(COPIED_BYTES, counters.copied_bytes)
    yield single(COPIES, counters.copied_segments)
    yield single(COPY_ERRORS, counters.copy_errors)
    yield single(FETCHED_BYTES, counters.fetched_bytes)
    yield single(FETCHES, counters.fetch_requests)
    yield single(FETCH_ERRORS, counters.fetch_errors)
    yield single(LATE_FETCHES, counters.late_fetches)
    yield single(DELETES, counters.deleted_segments)
    yield single(DELETE_ERRORS, counters.delete_errors)
    yield single(FAILING, len(storage.failing))
