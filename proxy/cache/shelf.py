"""Cached records of one partition, in the order of offsets."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from ottla.proxy.cache.segments import Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.proxy.cache.batches import Aborted, Batches


class Piece:
    """The records of one answer, or a part of one."""

    __slots__ = ("aborted", "batches", "place")

    def __init__(self, place: Place, batches: Batches, aborted: Sequence[Aborted]) -> None:
        self.place = place
        self.batches = batches
        self.aborted = aborted


class Slice(NamedTuple):
    """A part of a piece, from one entry of its index to another one."""

    piece: Piece
    place: Place
    end: int
    """The offset behind its last batch."""


class Shelf:
    """Pieces of which none lies within another, so that their starts and their ends are in the same order."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._pieces: list[Piece] = []

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, piece: Piece) -> bool:
        """Keep a piece, and drop those that it makes superfluous; False if it is superfluous itself."""
        start, end = piece.batches.start, piece.batches.end
        if self.end_at(start) >= end:
            return False
        first = last = bisect_left(self._starts, start)
        while last < len(self._pieces) and self._pieces[last].batches.end <= end:
            last += 1
        self._starts[first:last] = [start]
        self._pieces[first:last] = [piece]
        return True

    def prune(self) -> None:
        """Forget the pieces whose file has gone."""
        self._pieces = [it for it in self._pieces if not it.place.segment.is_dropped]
        self._starts = [it.batches.start for it in self._pieces]

    def end_at(self, offset: int) -> int:
        """The end of the piece that has this offset; -1 if none has it."""
        piece = self._at(offset)
        return -1 if piece is None else piece.batches.end

    def slice(self, offset: int, max_bytes: int) -> Slice | None:
        """From the batch that has the offset, or one shortly before it, about as much as fits, but at least one batch.

        If it does not fit, it is only a few batches long.
        """
        piece = self._at(offset)
        if piece is None:
            return None
        batches = piece.batches
        first = max(0, bisect_right(batches.bases, offset) - 1)
        begin = batches.positions[first]
        if batches.size_bytes - begin <= max_bytes:
            stop, end = batches.size_bytes, batches.end
        else:
            last = max(first + 1, bisect_right(batches.positions, begin + max_bytes) - 1)
            stop, end = batches.size_bytes, batches.end
            if last < len(batches.positions):
                stop, end = batches.positions[last], batches.bases[last]
        place = Place(piece.place.segment, piece.place.position + begin, stop - begin)
        return Slice(piece, place, end)

    def _at(self, offset: int) -> Piece | None:
        at = bisect_right(self._starts, offset) - 1
        if at < 0 or self._pieces[at].batches.end <= offset:
            return None
        return self._pieces[at]
