"""A tier on an object store, as the tests use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import ParamSpec, TypeVar
from uuid import UUID

import trio

from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.tiers.copying import Copying, CopySource
from ottla.tiers.errors import TierError
from ottla.tiers.manifest import Manifest
from ottla.tiers.manifest_file import ManifestFile
from ottla.tiers.names import TopicNames
from ottla.tiers.object_store import ObjectStore
from ottla.tiers.rate import ByteRate
from ottla.tiers.reading.disk_cache import DiskCache
from ottla.tiers.reading.reader import TierReader
from ottla.tiers.upload import UploadNote

TOPIC_ID = UUID(int=7)
NAMES = TopicNames("cluster", "trips", TOPIC_ID)
PROBE = "cluster/probes/1"
SMALL_PART_BYTES = 1500

P = ParamSpec("P")
T = TypeVar("T")


async def inline(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What would run in a worker thread, in a step of its own: a clock that jumps does not wait for threads."""
    await trio.lowlevel.checkpoint()
    return function(*args, **kwargs)


class Tier:
    """What one node has of a tier: its own view of the manifests, and its note."""

    def __init__(self, store: ObjectStore, *, part_bytes: int = SMALL_PART_BYTES, first_number: int = 1) -> None:
        self.store = store
        self.part_bytes = part_bytes
        self.note: UploadNote | None = None
        self._numbers = iter(range(first_number, 1 << 62))
        self.files: dict[int, ManifestFile] = {}

    def file(self, partition: int) -> ManifestFile:
        found = self.files.get(partition)
        if found is None:
            name = NAMES.manifest(partition)
            found = self.files[partition] = ManifestFile(self.store, name, TOPIC_ID, partition, offload=inline)
        return found

    async def copy(self, sources: Sequence[CopySource]) -> dict[int, Manifest | TierError]:
        copying = Copying(
            self.store,
            NAMES,
            ByteRate(0),
            probe=PROBE,
            note=self.note,
            noted=self._noted,
            new_number=lambda: UUID(int=next(self._numbers)),
            offload=inline,
            part_bytes=self.part_bytes,
        )
        return await copying.copy(sources, {source.partition: self.file(source.partition) for source in sources})

    def _noted(self, note: UploadNote | None) -> None:
        self.note = None if note is None else UploadNote.from_bytes(note.to_bytes())


@asynccontextmanager
async def reading(store: ObjectStore, *, cache_bytes: int = 1 << 20) -> AsyncIterator[TierReader]:
    """A reader with a cache on a disk in memory."""
    cache = DiskCache(MemoryDisk(), "/cache", cache_bytes, offload=inline)
    await cache.open()
    reader = TierReader(store, cache, offload=inline)
    async with reader.run():
        yield reader


async def read_all(reader: TierReader, manifest: Manifest, offset: int = 0, *, max_bytes: int = 5000) -> bytes:
    """Everything from an offset on, as a consumer gets it."""
    found = bytearray()
    while offset < manifest.end_offset:
        records = await reader.read(NAMES, manifest, offset, max_bytes=max_bytes, end_offset=manifest.end_offset)
        assert records.next_offset > offset
        found += records.content
        offset = records.next_offset
    return bytes(found)
