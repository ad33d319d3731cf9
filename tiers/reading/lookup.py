"""Finding records in the object store by their times (Kafka's `RemoteLogManager.findOffsetByTimestamp`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import find_timestamp
from ottla.storage.reading.search import TimestampOffset
from ottla.tiers.errors import CorruptObjectError
from ottla.tiers.offload import Offload, in_a_thread

if TYPE_CHECKING:
    from ottla.tiers.manifest import Manifest
    from ottla.tiers.names import TopicNames
    from ottla.tiers.object_store import Content
    from ottla.tiers.reading.reader import TierReader

__all__ = ["offset_for_timestamp"]

_READ_BYTES: Final = 1_048_576


async def offset_for_timestamp(
    reader: TierReader, names: TopicNames, manifest: Manifest, timestamp_ms: int, *, offload: Offload = in_a_thread
) -> TimestampOffset | None:
    """The first record in the object store whose time is at least this; None if none has one. Raises as a read does.

    Markers count as records, as they do in Kafka. A segment is looked into only if its largest time is late enough.
    """
    place = 0
    while True:
        found_place = await offload(manifest.place_of_time, timestamp_ms, place)
        if found_place is None:
            return None
        segment = manifest[found_place]
        index = await reader.index(names, manifest.partition, segment)
        run_place = await offload(index.place_of_time, timestamp_ms)
        if run_place < len(index):
            offset = max(index[run_place].base_offset, manifest.log_start_offset)
            while offset <= segment.last_offset:
                records = await reader.read(
                    names, manifest, offset, max_bytes=_READ_BYTES, end_offset=segment.last_offset + 1
                )
                if records.next_offset <= offset:
                    break
                found = await offload(_find_record, records.content, offset, timestamp_ms)
                if found is not None:
                    return found
                offset = records.next_offset
        place = found_place + 1


def _find_record(content: Content, offset: int, timestamp_ms: int) -> TimestampOffset | None:
    try:
        found = find_timestamp(content, timestamp_ms, offset)
    except ProtocolError as error:
        raise CorruptObjectError(f"a batch from offset {offset} on cannot be read: {error}") from error
    return None if found is None else TimestampOffset(*found)
