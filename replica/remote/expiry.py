"""Retention of a tiered partition: what goes from the disk, and what goes at all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.storage.reading.locate import wait_for_spans
from ottla.storage.reading.parts import parts_of
from ottla.storage.upkeep.retention import retained_start
from ottla.tiers.border import local_retained_start, retained_log_start
from ottla.tiers.errors import DivergedManifestError, NotContiguousError
from ottla.tiers.manifest import Manifest
from ottla.tiers.offload import in_a_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.replica.partition import Partition
    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.replica.tiered.rules import RemoteRules
    from ottla.storage.reading.parts import Part

__all__ = ["copied_until", "expire_as_follower", "expire_as_leader"]


def copied_until(parts: Sequence[Part], rules: RemoteRules, now_ms: int) -> int:
    """The offset up to which a log's parts are old enough to be copied, or followed by enough (KIP-1241)."""
    following_bytes = sum(part.size_bytes for part in parts)
    end_offset = 0
    for part in parts:
        following_bytes -= part.size_bytes
        is_old = rules.copy_lag_ms == 0 or 0 < rules.copy_lag_ms <= now_ms - part.time_ms
        is_far = 0 <= rules.copy_lag_bytes <= following_bytes
        if not (is_old or is_far):
            break
        end_offset = part.last_offset + 1
    return end_offset


async def expire_as_leader(partition: Partition, remote: RemoteLog, now_ms: int) -> None:
    """Apply `retention.*` to the whole log, and `local.retention.*` to the disk.

    Raises TierError, RemoteStorageError or StorageError. Nothing goes if the two parts do not fit together.
    """
    log, epoch = partition.log, partition.leader_epoch
    manifest = await remote.look(epoch)
    require_fitting(partition, remote, manifest)
    await wait_for_spans(log)
    start = await _retained_start(partition, remote, manifest, now_ms)
    if not _still_leads(partition, epoch):
        return
    if start > partition.log_start_offset or log.log_start_offset < manifest.log_start_offset:
        # What was deleted in the object store, and not here, is deleted here, too.
        start = min(max(start, manifest.log_start_offset), log.high_watermark)
        await remote.delete_until(start, log, epoch)
    await wait_for_spans(log)
    if _still_leads(partition, epoch):
        await _expire_locally(partition, remote, now_ms)


async def expire_as_follower(partition: Partition, remote: RemoteLog, now_ms: int) -> None:
    """Apply `local.retention.*` to the disk. The object store is asked only if something would go. Raises as above."""
    log = partition.log
    await wait_for_spans(log)
    everything = Manifest.of_all(remote.names.topic_id, partition.index, log.log_start_offset, log.log_end_offset)
    if _local_start(partition, remote.rules, everything, now_ms) <= log.log_start_offset:
        return
    manifest = await remote.file.refresh()
    require_fitting(partition, remote, manifest)
    await wait_for_spans(log)
    if not partition.is_leader:
        await _expire_locally(partition, remote, now_ms)


def require_fitting(partition: Partition, remote: RemoteLog, manifest: Manifest) -> None:
    """Raise NotContiguousError or DivergedManifestError unless the log on the disk goes on with what was copied."""
    log = partition.log
    if len(manifest) and manifest.end_offset < log.log_start_offset:
        raise NotContiguousError(f"{remote.name} begins at {log.log_start_offset} here, and {manifest!r} ends before")
    if not remote.agrees(log):
        raise DivergedManifestError(f"{remote.name} has another history than {manifest!r}")


async def _retained_start(partition: Partition, remote: RemoteLog, manifest: Manifest, now_ms: int) -> int:
    rules, log = remote.rules, partition.log
    if not rules.is_deleted:
        return manifest.log_start_offset
    config = log.config._replace(delete=True, retention_ms=rules.retention_ms, retention_bytes=rules.retention_bytes)
    only_local = [part for part in parts_of(log) if part.last_offset >= manifest.end_offset]
    size_bytes = sum(part.size_bytes for part in only_local)
    start = await in_a_thread(retained_log_start, manifest, config, only_local_bytes=size_bytes, now_ms=now_ms)
    if rules.is_copied or start < manifest.end_offset:
        return start
    # Nothing more is copied, and all that was is gone: what is only here goes as it does without an object store.
    return retained_start(only_local, config, max(start, log.log_start_offset), log.high_watermark, now_ms)


def _local_start(partition: Partition, rules: RemoteRules, manifest: Manifest, now_ms: int) -> int:
    log = partition.log
    return local_retained_start(
        parts_of(log),
        log.config._replace(delete=True),
        manifest,
        local_retention_ms=rules.local_retention_ms,
        local_retention_bytes=rules.local_retention_bytes,
        local_start=log.log_start_offset,
        high_watermark=log.high_watermark,
        now_ms=now_ms,
    )


async def _expire_locally(partition: Partition, remote: RemoteLog, now_ms: int) -> None:
    """Let the log on the disk begin where `local.retention.*` says. Its spans are known, and so is the manifest."""
    log, manifest = partition.log, remote.manifest
    if manifest is None or log.is_closed or not remote.agrees(log):
        return
    start = _local_start(partition, remote.rules, manifest, now_ms)
    if start > log.log_start_offset:
        await log.advance_log_start_offset(start)


def _still_leads(partition: Partition, epoch: int) -> bool:
    return partition.is_leader and partition.leader_epoch == epoch
