"""What this broker does with its object store; the counterparts of Kafka's RemoteLogManager metrics. Nothing of it is
there without `ottla.remote.url`."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metrics.metric import Family, counter, gauge, single
from ottla.runtime.time_slice import TimeSlice
from ottla.server.telemetry.cluster import listed_topics, local_partition

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
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
SIZE: Final = gauge(
    "ottla_remote_log_size_bytes",
    "Bytes in the object store of the topic's partitions that are led here (RemoteLogSizeBytes).",
    "topic",
)
SEGMENTS: Final = gauge(
    "ottla_remote_log_segments",
    "Segments in the object store of the topic's partitions that are led here (RemoteLogMetadataCount).",
    "topic",
)
COPY_LAG_BYTES: Final = gauge(
    "ottla_remote_copy_lag_bytes",
    "Bytes led here that are sealed and not copied, as of the last look for some (RemoteCopyLagBytes).",
    "topic",
)
COPY_LAG_SEGMENTS: Final = gauge(
    "ottla_remote_copy_lag_segments", "Parts of segments that these bytes are in (RemoteCopyLagSegments).", "topic"
)

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
    SIZE,
    SEGMENTS,
    COPY_LAG_BYTES,
    COPY_LAG_SEGMENTS,
)


class _Topic(NamedTuple):
    """A tiered topic's partitions that are led here, all together."""

    size_bytes: int = 0
    segments: int = 0
    lag_bytes: int = 0
    lag_segments: int = 0


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
    topics = await _tiered_topics(broker)
    yield Family(SIZE, [((name,), topic.size_bytes) for name, topic in topics])
    yield Family(SEGMENTS, [((name,), topic.segments) for name, topic in topics])
    yield Family(COPY_LAG_BYTES, [((name,), topic.lag_bytes) for name, topic in topics])
    yield Family(COPY_LAG_SEGMENTS, [((name,), topic.lag_segments) for name, topic in topics])


async def _tiered_topics(broker: Broker) -> list[tuple[str, _Topic]]:
    time_slice = TimeSlice()
    found = []
    for topic in (await listed_topics(broker, time_slice))[0]:
        if "remote.storage.enable" in topic.configs:
            found.append((topic.name, await _tiered_topic(broker, topic, time_slice)))
    return found


async def _tiered_topic(broker: Broker, topic: TopicImage, time_slice: TimeSlice) -> _Topic:
    size_bytes = segments = lag_bytes = lag_segments = 0
    for index in range(len(topic.partitions)):
        await time_slice.maybe_yield()
        partition = local_partition(broker, topic, index)
        if partition is None or not partition.is_leader or partition.remote is None:
            continue
        remote = partition.remote
        if remote.manifest is not None:
            size_bytes += remote.manifest.size_bytes
            segments += len(remote.manifest)
        if remote.rules.is_copied:
            lag_bytes += remote.copy_lag.size_bytes
            lag_segments += remote.copy_lag.segments
    return _Topic(size_bytes, segments, lag_bytes, lag_segments)
