"""Metrics of what this broker copies from a mirrored cluster. None of them exists without a mirror."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Final

from ottla.metrics.metric import Family, counter, gauge, single

if TYPE_CHECKING:
    from ottla.server.broker import Broker

UP: Final = gauge("ottla_mirror_source_up", "1 if the source answered when it was last asked.")
PARTITIONS: Final = gauge("ottla_mirror_partitions", "Partitions that this broker copies.")
LAG: Final = gauge(
    "ottla_mirror_lag_records", "Offsets that the source has and this broker does not show yet.", "topic"
)
BYTES: Final = counter("ottla_mirror_copied_bytes_total", "Bytes of record batches copied.")
OFFSETS: Final = counter("ottla_mirror_committed_offsets_total", "Offsets of groups committed here as at the source.")
PROBLEMS: Final = gauge(
    "ottla_mirror_failed_topics",
    "Topics that should be mirrored and cannot be, as the controller knows; the log says why.",
)

METRICS: Final = (UP, PARTITIONS, LAG, BYTES, OFFSETS, PROBLEMS)


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    progress = broker.mirror.progress
    if progress is None:
        return
    lags = progress.lag_by_topic()
    yield single(UP, int(progress.is_reachable))
    yield single(PARTITIONS, progress.partitions)
    yield Family(LAG, [((topic,), lags[topic]) for topic in sorted(lags)[: broker.config.ottla_metrics_max_partitions]])
    yield single(BYTES, progress.copied_bytes)
    yield single(OFFSETS, progress.committed_offsets)
    yield single(PROBLEMS, len(progress.problems))
