"""Removing what no manifest names: what retention has given up, and what uploads that came to nothing have left.

What is swept was in nobody's use for half a day at least. An upload is named by its manifests within twelve hours or
never (`COMMIT_WITHIN_MS`), and only what is older than a day is looked at; both times are the object store's own. So a
manifest that would name the objects has named them for twelve hours when it is read here: it would have to be seen as
it was half a day ago to mislead. Manifests are read by name, one for each partition that the upload's index has, and
not found by a listing, which might lack one. If any of them cannot be read, nothing is removed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.tiers.errors import CorruptObjectError, ObjectMissingError
from ottla.tiers.listing import list_manifests
from ottla.tiers.manifest import Manifest
from ottla.tiers.offload import Offload, in_a_thread
from ottla.tiers.partition_index import indexed_partitions
from ottla.tiers.upload import COMMIT_WITHIN_MS

if TYPE_CHECKING:
    from ottla.tiers.names import TopicNames, UploadId
    from ottla.tiers.object_store import ObjectInfo, ObjectStore

__all__ = ["SWEEP_AFTER_MS", "SweepResult", "delete_topic", "sweep_topic"]

logger = logging.getLogger(__name__)

SWEEP_AFTER_MS: Final = 2 * COMMIT_WITHIN_MS


class SweepResult(NamedTuple):
    """The counts of a sweep: removed objects, and orphans that are too young."""

    removed_objects: int
    removed_bytes: int
    kept_orphans: int


class _Found(NamedTuple):
    """The objects of one upload."""

    upload: UploadId
    objects: list[ObjectInfo]


async def sweep_topic(
    store: ObjectStore, names: TopicNames, *, probe: str, offload: Offload = in_a_thread
) -> SweepResult:
    """Remove the objects of a topic's uploads that no manifest names.

    `probe` is the name of an object that this node alone writes, to learn what the store's clock says. Raises TierError
    if the store cannot be asked, or a manifest is damaged; what was removed by then is removed.
    """
    now_ms = await store_time_ms(store, probe)
    manifests = _Manifests(store, names, offload)
    removed_objects = removed_bytes = kept_orphans = 0
    after = ""
    while (found := await _next_upload(store, names, after)) is not None:
        after = found.objects[-1].name
        if await _is_named(store, names, found.upload, manifests):
            continue
        if max(info.modified_ms for info in found.objects) > now_ms - SWEEP_AFTER_MS:
            kept_orphans += len(found.objects)
            continue
        index = names.index(found.upload)
        # The index names the partitions whose manifests are read: it goes last.
        await store.delete([info.name for info in found.objects if info.name != index])
        await store.delete([index])
        size_bytes = sum(info.size_bytes for info in found.objects)
        removed_objects += len(found.objects)
        removed_bytes += size_bytes
        keys = {"upload": str(found.upload), "objects": len(found.objects), "bytes": size_bytes}
        text = "swept upload %s in %s, which no manifest names: %d objects, %d bytes"
        logger.info(text, found.upload, names.segments, len(found.objects), size_bytes, extra=keys)
    return SweepResult(removed_objects, removed_bytes, kept_orphans)


async def delete_topic(store: ObjectStore, names: TopicNames) -> int:
    """Remove all objects of a topic that was deleted; returns how many there were.

    Manifests go last, so that an end in the middle leaves what the next attempt finds. The caller knows that the topic
    was deleted, and not only that its own metadata does not name it.
    """
    removed = 0
    for prefix in (names.segments, names.manifests):
        after = ""
        while page := await store.find(prefix, after):
            await store.delete([info.name for info in page])
            removed += len(page)
            after = page[-1].name
    return removed


async def store_time_ms(store: ObjectStore, probe: str) -> int:
    """The time by the store's clock: the one that it gives to an object that is written now."""
    await store.put(probe, b"Ottla asks for the time.\n")
    return await store.modified_ms(probe)


async def _next_upload(store: ObjectStore, names: TopicNames, after: str) -> _Found | None:
    """The objects of the first upload after a name, which lie next to each other; None if there is no more."""
    found: _Found | None = None
    while page := await store.find(names.segments, after):
        for info in page:
            upload = names.upload_of(info.name)
            if upload is None:
                continue  # what is not ours is left alone
            if found is None:
                found = _Found(upload, [])
            elif found.upload != upload:
                return found
            found.objects.append(info)
        after = page[-1].name
    return found


async def _is_named(store: ObjectStore, names: TopicNames, upload: UploadId, manifests: _Manifests) -> bool:
    try:
        content = (await store.get(names.index(upload))).content
    except ObjectMissingError:
        # No manifest is told of an upload before its index is stored. Should it have got lost, what is left is kept.
        return await manifests.any_names(upload, await manifests.listed())
    return await manifests.any_names(upload, indexed_partitions(content))


class _Manifests:
    """A topic's manifests, each read once in a sweep."""

    def __init__(self, store: ObjectStore, names: TopicNames, offload: Offload) -> None:
        self._store = store
        self._names = names
        self._offload = offload
        self._known: dict[int, frozenset[UploadId]] = {}

    async def listed(self) -> list[int]:
        """The partitions of which the store lists a manifest."""
        partitions, strangers = await list_manifests(self._store, self._names)
        if strangers:
            raise CorruptObjectError(f"{strangers[0]} is no manifest: the topic is not swept")
        return partitions

    async def any_names(self, upload: UploadId, partitions: Iterable[int]) -> bool:
        for partition in partitions:
            if upload in await self._uploads_of(partition):
                return True
        return False

    async def _uploads_of(self, partition: int) -> frozenset[UploadId]:
        known = self._known.get(partition)
        if known is None:
            try:
                content = (await self._store.get(self._names.manifest(partition))).content
            except ObjectMissingError:
                known = frozenset()
            else:
                known = await self._offload(_uploads_in, content, self._names, partition)
            self._known[partition] = known
        return known


def _uploads_in(content: bytes, names: TopicNames, partition: int) -> frozenset[UploadId]:
    manifest = Manifest.from_bytes(content, names.topic_id, partition)
    return frozenset(segment.upload for segment in manifest)
