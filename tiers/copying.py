"""Copying parts of logs to the object store: uploaded first, then named by the manifest of each partition.

A crash at any moment leaves objects that no manifest names, or manifests that name what is there: never one that names
what is not. Only the manifest that `copy` returns says what may be deleted from the disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID, uuid4

from ottla.tiers.errors import (
    CorruptObjectError,
    DivergedManifestError,
    FencedUploadError,
    NotContiguousError,
    ObjectStoreUnavailableError,
    OverlappingUploadError,
    StaleUploadError,
    TierError,
    UploadExpiredError,
)
from ottla.tiers.manifest import Manifest, RemoteSegment
from ottla.tiers.names import TopicNames, UploadId
from ottla.tiers.offload import Offload, in_a_thread
from ottla.tiers.packing import PART_BYTES
from ottla.tiers.sweep import store_time_ms
from ottla.tiers.upload import COMMIT_WITHIN_MS, Upload, UploadedSegment, UploadNote, UploadSource

if TYPE_CHECKING:
    from ottla.tiers.manifest_file import ManifestFile
    from ottla.tiers.object_store import ObjectStore
    from ottla.tiers.rate import ByteRate

__all__ = ["CopySource", "Copying"]

_OF_ONE_PARTITION: Final = (
    CorruptObjectError,
    DivergedManifestError,
    FencedUploadError,
    NotContiguousError,
    ObjectStoreUnavailableError,
    OverlappingUploadError,
    StaleUploadError,
)


class CopySource(UploadSource, Protocol):
    """A stretch of a log that this node leads. It begins where the partition's manifest ends."""

    @property
    def leader_epoch(self) -> int:
        """The epoch in which this node leads."""

    @property
    def previous_epoch(self) -> int:
        """The epoch of the record before the stretch, -1 if the log no longer has that record."""

    def require_current(self) -> None:
        """Raise StaleUploadError if the log no longer has its records, or this node no longer leads the log."""


class Copying:
    """Copies what is given to it, one upload at a time for one topic.

    `note` is that of an unfinished upload, None if there is none. To resume it after a restart, keep the last note that
    `noted` was called with, and give it to the next `Copying`.
    """

    def __init__(
        self,
        store: ObjectStore,
        names: TopicNames,
        rate: ByteRate,
        *,
        probe: str,
        note: UploadNote | None = None,
        noted: Callable[[UploadNote | None], object] = lambda note: None,
        new_number: Callable[[], UUID] = uuid4,
        offload: Offload = in_a_thread,
        part_bytes: int = PART_BYTES,
    ) -> None:
        """`probe` is the name of an object that this node alone writes."""
        self._store = store
        self._names = names
        self._rate = rate
        self._probe = probe
        self._note = note
        self._noted = noted
        self._new_number = new_number
        self._offload = offload
        self._part_bytes = part_bytes

    async def copy(
        self, sources: Sequence[CopySource], files: Mapping[int, ManifestFile]
    ) -> dict[int, Manifest | TierError]:
        """Copy these stretches, at most one of each partition.

        Returns for each partition the manifest that names it, or why none does: somebody else leads, has uploaded it
        already, or the store cannot say. Raises what makes an end of all of it; after ObjectStoreUnavailableError
        the next call goes on with what is uploaded.
        """
        now_ms = await store_time_ms(self._store, self._probe)
        note = self._note
        if note is None or now_ms - note.began_at_ms > COMMIT_WITHIN_MS // 2:
            epoch = max(source.leader_epoch for source in sources)
            note = UploadNote(UploadId(max(0, epoch), self._new_number()), now_ms)
            self._remember(note)
        upload = Upload(
            self._store,
            self._names,
            self._rate,
            note,
            noted=self._remember,
            offload=self._offload,
            part_bytes=self._part_bytes,
        )
        try:
            segments = await upload.run(sources)
        except CorruptObjectError:
            self._remember(None)
            raise
        # From here on some manifest may name its objects: no other attempt may touch them.
        self._remember(None)
        now_ms = await store_time_ms(self._store, self._probe)
        if now_ms - note.began_at_ms > COMMIT_WITHIN_MS:
            raise UploadExpiredError(f"upload {note.upload} took {(now_ms - note.began_at_ms) // 1000} seconds")
        results: dict[int, Manifest | TierError] = {}
        for source, segment in zip(sources, segments, strict=True):
            results[source.partition] = await self._commit(source, segment, note.upload, now_ms, files)
        return results

    async def _commit(
        self,
        source: CopySource,
        segment: UploadedSegment,
        upload: UploadId,
        now_ms: int,
        files: Mapping[int, ManifestFile],
    ) -> Manifest | TierError:
        entry = RemoteSegment(
            upload,
            segment.base_offset,
            segment.last_offset,
            segment.max_timestamp_ms,
            now_ms,
            segment.size_bytes,
            segment.index_position,
            segment.index_length,
            segment.index_crc,
        )
        edit = partial(
            Manifest.with_segment,
            segment=entry,
            epochs=segment.epochs,
            leader_epoch=source.leader_epoch,
            after=source.previous_epoch,
        )
        try:
            source.require_current()
            return await files[source.partition].change(edit)
        except _OF_ONE_PARTITION as error:
            return error

    def _remember(self, note: UploadNote | None) -> None:
        self._note = note
        self._noted(note)
