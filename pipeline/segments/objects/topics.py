"""Which segments in an object store a scan reads: planned by the manifests alone, unless times are looked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from ottla.pipeline.client import EARLIEST, LATEST, TopicPartition
from ottla.pipeline.segments.objects.listing import StoredPartition, find_partitions
from ottla.pipeline.segments.objects.place import Place, reading, store_error
from ottla.pipeline.segments.objects.scan import ObjectScan
from ottla.pipeline.source.ranges import OffsetRange, split
from ottla.tiers.errors import TierError
from ottla.tiers.parallel import in_parallel
from ottla.tiers.reading.lookup import offset_for_timestamp

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

    from ottla.pipeline.segments.options import SegmentOptions
    from ottla.pipeline.source.positions import Offsets
    from ottla.tiers.manifest import Manifest
    from ottla.tiers.reading.reader import TierReader

__all__ = ["StoredObjects", "with_objects"]

T = TypeVar("T")


class StoredObjects:
    """The partitions in an object store, a `StoredTopics`. What is there is committed and decided: no transaction of it
    is open.
    """

    def __init__(
        self,
        options: SegmentOptions,
        place: Place,
        found: dict[TopicPartition, StoredPartition],
        reader: TierReader,
        portal: BlockingPortal,
    ) -> None:
        self._max_partition_bytes = options.max_partition_bytes
        self._read_committed = options.source.client.read_committed
        self._place = place
        self._found = found
        self._reader = reader
        self._portal = portal

    @property
    def partitions(self) -> list[TopicPartition]:
        return sorted(self._found)

    def offsets(self, wanted: Offsets) -> Offsets:
        times = {part: time for part, time in wanted.items() if time not in (EARLIEST, LATEST)}
        found = self._portal.call(in_parallel, self._offset_for, times.items()) if times else []
        return dict(zip(times, found, strict=True)) | {
            part: self._end(self._found[part].manifest, time) for part, time in wanted.items() if part not in times
        }

    def scans(self, wanted: OffsetRange, not_before_ms: int) -> Iterator[ObjectScan]:
        """Small segments that follow each other make one task together; of a large one the offsets are divided, by its
        bytes, so that planning reads no index.
        """
        names, manifest = self._found[wanted.partition]
        for places, size_bytes in self._groups(manifest, wanted, not_before_ms):
            part = manifest.only(places)
            whole = OffsetRange(
                wanted.partition, max(wanted.start, part.log_start_offset), min(wanted.end, part.end_offset)
            )
            count = -(-size_bytes // self._max_partition_bytes)
            for each in split([whole], count, None):
                yield ObjectScan(each, self._place, names, part, self._read_committed)

    def _groups(self, manifest: Manifest, wanted: OffsetRange, not_before_ms: int) -> Iterator[tuple[range, int]]:
        """The places of segments that are read together, and how many bytes they have."""
        first = last = manifest.place_of(wanted.start)
        size_bytes = 0
        for place in range(first, len(manifest)):
            segment = manifest[place]
            if segment.base_offset >= wanted.end:
                break
            is_late = segment.max_timestamp_ms >= not_before_ms
            if size_bytes and (not is_late or size_bytes + segment.size_bytes > self._max_partition_bytes):
                yield range(first, last), size_bytes
                size_bytes = 0
            if is_late:
                first = first if size_bytes else place
                size_bytes += segment.size_bytes
                last = place + 1
        if size_bytes:
            yield range(first, last), size_bytes

    async def _offset_for(self, wanted: tuple[TopicPartition, int]) -> int:
        part, time_ms = wanted
        names, manifest = self._found[part]
        found = await offset_for_timestamp(self._reader, names, manifest, time_ms)
        return -1 if found is None else found.offset

    @staticmethod
    def _end(manifest: Manifest, which: int) -> int:
        return manifest.log_start_offset if which == EARLIEST else manifest.end_offset


def with_objects(options: SegmentOptions, work: Callable[[StoredObjects], T]) -> T:
    """What `work` makes of the topics that are asked for. Raises StoreError and TopicError."""
    place = Place(options.path, options.store_config)
    store = place.open()
    try:
        with reading(store) as (reader, portal):
            found = portal.call(partial(find_partitions, store, options))
            return work(StoredObjects(options, place, found, reader, portal))
    except TierError as error:
        raise store_error(place, error) from error
