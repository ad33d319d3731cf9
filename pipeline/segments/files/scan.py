"""Reading a partition's part of one segment file, on an executor."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ottla.pipeline.errors import StoreError
from ottla.pipeline.segments.scan import Chunk
from ottla.pipeline.source.ranges import OffsetRange
from ottla.storage.errors import StorageError
from ottla.storage.inspect.segment_reader import Piece, RealDisk, read_piece

__all__ = ["FileScan"]


class FileScan(NamedTuple):
    """A piece of a partition, of which a range is wanted; a `Scan`.

    `aborted` are the aborted transactions (producer id, first offset, the marker's offset) that reach into it.
    """

    range: OffsetRange
    piece: Piece
    aborted: tuple[tuple[int, int, int], ...]

    @property
    def is_checked(self) -> bool:
        """A segment's index has no checksums of batches."""
        return False

    def chunks(self) -> Iterator[Chunk]:
        """The batches, in order. StoreError if they cannot be read."""
        try:
            for content in read_piece(RealDisk(), self.piece, self.range.start, self.range.end):
                begin = int.from_bytes(content[:8], "big")
                yield Chunk(content, [entry[:2] for entry in self.aborted if entry[2] >= begin])
        except FileNotFoundError as error:
            raise StoreError(
                f"{error.filename} is gone: the broker that uses the folder has rewritten or removed it since the read "
                "was planned. Run the query again, or read a copy of the folder."
            ) from error
        except (StorageError, OSError) as error:
            raise StoreError(
                f"Partition {self.range.partition} cannot be read from {self.piece.data_path}: {error}. `ottla fsck` "
                "says what is wrong with the store."
            ) from error
