"""The rules of a log that is in two places: where each part of it begins, and which epochs it has (KIP-405).

The *log start* is where the log begins at all, the *local log start* where it begins on the disk. Between them it is
only in the object store; from the local log start to the manifest's end it is in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.storage.state.leader_epochs import LeaderEpochs
from ottla.storage.upkeep.retention import retained_start

if TYPE_CHECKING:
    from ottla.storage.config import LogConfig
    from ottla.storage.reading.parts import Part
    from ottla.tiers.manifest import Manifest, RemoteSegment

__all__ = ["joined_epochs", "local_retained_start", "retained_log_start"]


def local_retained_start(
    parts: Sequence[Part],
    config: LogConfig,
    manifest: Manifest,
    *,
    local_retention_ms: int,
    local_retention_bytes: int,
    local_start: int,
    high_watermark: int,
    now_ms: int,
) -> int:
    """Where the log should begin on the disk (Kafka's `UnifiedLog.deleteOldSegments`).

    As without an object store, by `local.retention.ms` and `local.retention.bytes`, but nothing goes that the manifest
    does not name: neither what is not copied yet, nor what it would be a gap before.
    """
    if not manifest.log_start_offset <= local_start <= manifest.end_offset:
        return local_start
    local = config._replace(retention_ms=local_retention_ms, retention_bytes=local_retention_bytes)
    return retained_start(parts, local, local_start, min(high_watermark, manifest.end_offset), now_ms)


def retained_log_start(manifest: Manifest, config: LogConfig, *, only_local_bytes: int, now_ms: int) -> int:
    """Where the log should begin in the object store (Kafka's `RLMExpirationTask`).

    `retention.ms` counts for each segment, `retention.bytes` for both parts together; `only_local_bytes` is the size of
    what is not in the object store. Segments go as a whole, from the oldest on, and none of which the log without it
    would be smaller than `retention.bytes`.
    """
    start = manifest.log_start_offset
    if not config.delete:
        return start
    excess_bytes = manifest.size_bytes + only_local_bytes - config.retention_bytes
    for segment in manifest:
        is_expired = config.retention_ms >= 0 and now_ms - _time_ms(segment) >= config.retention_ms
        is_surplus = config.retention_bytes >= 0 and excess_bytes >= segment.size_bytes
        if not (is_expired or is_surplus):
            break
        start = segment.last_offset + 1
        excess_bytes -= segment.size_bytes
    return start


def joined_epochs(manifest: Manifest, local: LeaderEpochs) -> LeaderEpochs:
    """The leader epochs of the whole log: those of the manifest, and after its part those of the local log."""
    joined = LeaderEpochs()
    border = local.earliest
    for entry in manifest.epochs:
        if border is None or entry.start_offset < border.start_offset:
            joined.assign(*entry)
    # The first local epoch may have begun before: then the manifest has it already.
    for entry in local:
        joined.assign(*entry)
    return joined


def _time_ms(segment: RemoteSegment) -> int:
    """The time of its last write; where its records have no times, that of its upload."""
    return segment.max_timestamp_ms if segment.max_timestamp_ms >= 0 else segment.uploaded_at_ms
