"""Reading a partition's segments out of an object store, on an executor."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from ottla.pipeline.segments.objects.place import Place, reading, store_error
from ottla.pipeline.segments.scan import Chunk
from ottla.pipeline.source.ranges import OffsetRange
from ottla.tiers.errors import CorruptObjectError, TierError
from ottla.tiers.manifest import Manifest
from ottla.tiers.names import TopicNames

__all__ = ["ObjectScan"]

# A window of the reader has less, unless a single batch is larger.
_READ_BYTES: Final = 16 * 1024 * 1024


class ObjectScan(NamedTuple):
    """Segments that follow each other, of which a range is wanted; a `Scan`.

    `manifest` names these segments only. Memory: what a `TierReader` takes, some 64 MiB.
    """

    range: OffsetRange
    place: Place
    names: TopicNames
    manifest: Manifest
    read_committed: bool

    @property
    def is_checked(self) -> bool:
        """The reader compares all that it is given with the checksums in the index, which the manifest vouches for."""
        return True

    def chunks(self) -> Iterator[Chunk]:
        """The batches, in order, read ahead while the last ones are worked on. StoreError if they cannot be read."""
        offset = self.range.start
        try:
            with reading(self.place.open()) as (reader, portal):
                while offset < self.range.end:
                    # Beyond the range as well: a batch that lies across its end is read as a whole, and cut by rows.
                    read = partial(
                        reader.read,
                        self.names,
                        self.manifest,
                        offset,
                        max_bytes=_READ_BYTES,
                        end_offset=self.manifest.end_offset,
                    )
                    records = portal.call(read)
                    if records.next_offset <= offset:
                        raise CorruptObjectError(f"no batch of {self.range.partition} reaches offset {offset}")
                    aborted = [each[:2] for each in records.aborted] if self.read_committed else []
                    if len(records.content):
                        yield Chunk(memoryview(records.content), aborted)
                    offset = records.next_offset
        except TierError as error:
            raise store_error(self.place, error) from error
