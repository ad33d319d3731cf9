"""Copies what this node leads to the object store: sealed segments, one upload at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

from ottla.kproto.errors import ApiError
from ottla.replica.remote.expiry import copied_until, require_fitting
from ottla.storage.errors import LogClosedError
from ottla.storage.reading.locate import wait_for_spans
from ottla.storage.reading.parts import parts_of, sealed_parts_of
from ottla.tiers.copying import Copying
from ottla.tiers.errors import (
    FencedUploadError,
    ObjectStoreUnavailableError,
    OverlappingUploadError,
    StaleUploadError,
    TierError,
)
from ottla.tiers.log_stretch import LogStretch, next_stretch
from ottla.tiers.rate import ByteRate

if TYPE_CHECKING:
    from ottla.replica.partition import Partition
    from ottla.replica.remote.failure_log import FailureLog
    from ottla.replica.tiered.remote_log import RemoteCounters, RemoteLog
    from ottla.tiers.manifest import Manifest
    from ottla.tiers.object_store import ObjectStore

__all__ = ["Copier"]

_CONCURRENT_PARTITIONS: Final = 8
#: Nothing to tell anybody: somebody else leads, or has copied it already, or the log was deleted.
_PASSING: Final = (FencedUploadError, OverlappingUploadError, StaleUploadError, LogClosedError)

Held = tuple["Partition", "RemoteLog"]


class CopySettings(Protocol):
    """How fast it may copy."""

    @property
    def remote_log_manager_copy_max_bytes_per_second(self) -> int: ...


class Copier:
    """One for the node. What is under way of a topic is gone on with after a failure, as long as the process lives."""

    def __init__(self, store: ObjectStore, counters: RemoteCounters, settings: CopySettings, node_id: int) -> None:
        self._store = store
        self._counters = counters
        self._settings = settings
        self._node_id = node_id
        self._rate = ByteRate(0)
        self._copying: dict[UUID, Copying] = {}

    async def copy_topic(self, group: Sequence[Held], time_ms: Callable[[], int], failures: FailureLog) -> bool:
        """Copy a topic's partitions as far as one upload of each goes; whether anything was copied."""
        self._rate.change(self._settings.remote_log_manager_copy_max_bytes_per_second)
        stretches: list[tuple[Held, LogStretch]] = []
        for held, remote in group:
            try:
                stretch = await self._stretch(held, remote, time_ms())
            except _PASSING:
                continue
            except (ApiError, OSError) as error:
                failures.failed(remote.name, "is not copied", error)
                continue
            if stretch is not None:
                stretches.append(((held, remote), stretch))
        has_copied = False
        for first in range(0, len(stretches), _CONCURRENT_PARTITIONS):
            has_copied |= await self._copy(stretches[first : first + _CONCURRENT_PARTITIONS], failures)
        return has_copied

    async def _stretch(self, held: Partition, remote: RemoteLog, now_ms: int) -> LogStretch | None:
        log, epoch = held.log, held.leader_epoch
        manifest = await remote.look(epoch)
        require_fitting(held, remote, manifest)
        await wait_for_spans(log)
        if not held.is_leader or held.leader_epoch != epoch:
            return None
        remote.note_sealed(sealed_parts_of(log))
        return await next_stretch(
            log,
            manifest,
            leader_epoch=epoch,
            leadership=held,
            max_bytes=log.config.segment_bytes,
            due_until=copied_until(parts_of(log), remote.rules, now_ms),
        )

    async def _copy(self, some: Sequence[tuple[Held, LogStretch]], failures: FailureLog) -> bool:
        try:
            results = await self._upload(some)
        except ObjectStoreUnavailableError as error:
            self._counters.copy_failed()
            failures.failed(some[0][0][1].name, "is not copied", error)
            return False
        except _PASSING:
            return False
        except (ApiError, OSError) as error:
            self._counters.copy_failed()
            if len(some) == 1:
                failures.failed(some[0][0][1].name, "is not copied", error)
                return False
            # One of them cannot be read, perhaps: it must not hold up the others.
            copied = [await self._copy([each], failures) for each in some]
            return any(copied)
        has_copied = False
        for (_, remote), stretch in some:
            result = results[stretch.partition]
            if isinstance(result, OverlappingUploadError):
                has_copied = True  # somebody else has; what follows can be copied now
            elif isinstance(result, TierError):
                if not isinstance(result, _PASSING):
                    self._counters.copy_failed()
                    failures.failed(remote.name, "is not copied", result)
            else:
                has_copied = True
                self._counters.copied(result[len(result) - 1].size_bytes)
                failures.well(remote.name)
        return has_copied

    async def _upload(self, some: Sequence[tuple[Held, LogStretch]]) -> dict[int, Manifest | TierError]:
        (held, remote), _ = some[0]
        copying = self._copying.get(held.topic_id)
        if copying is None:
            probe = f"{remote.names.cluster_id}/probes/{self._node_id}"
            copying = self._copying[held.topic_id] = Copying(self._store, remote.names, self._rate, probe=probe)
        files = {each.index: known.file for (each, known), _ in some}
        return await copying.copy([stretch for _, stretch in some], files)

    def forget(self, topic_id: UUID) -> None:
        """The topic was deleted."""
        self._copying.pop(topic_id, None)
