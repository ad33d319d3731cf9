"""Where one partition's data lies among a store's segments.

A span is the partition's part of one sealed segment. The spans of a log are derived, when first needed, from the
segments' index files, newest first: what a later segment overruled (by a truncation) is clipped from the older ones.
The runs of unsealed segments are in memory and need no spans.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ottla.storage.format.run_table import RunTable
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.segment import Segment

__all__ = ["Places", "ReadHint", "Span", "clip_spans"]


class Span(NamedTuple):
    """A partition's part of one sealed segment: offsets [base, last], and its pages in the segment's index.

    `last_offset` may be less than that of the pages' last run: what lies beyond is void.
    """

    segment: Segment
    base_offset: int
    last_offset: int
    max_timestamp_ms: int
    size_bytes: int
    pages: range


class ReadHint(NamedTuple):
    """Where a read ended inside a run: a read which goes on at `offset` need not begin at the run's start."""

    offset: int
    segment: Segment
    run_base_offset: int
    position: int


class Places:
    """The places of one log's batches, and what is known of where its next read begins.

    Spans are true for one layout of the store's files. `last_read` is the offset where the last read of files ended,
    and when that was; `hint` is where in a run it ended.
    """

    __slots__ = ("_layout_version", "_spans", "files", "hint", "key", "last_read")

    def __init__(self, key: bytes, files: FileStore) -> None:
        self.key = key
        self.files = files
        self._spans: list[Span] = []
        self._layout_version = -1
        self.hint: ReadHint | None = None
        self.last_read: tuple[int, float] = (-1, 0.0)

    # Sealed segments.

    @property
    def layout_version(self) -> int:
        """The layout of the store's files as it is now."""
        return self.files.layout_version

    @property
    def are_known(self) -> bool:
        """Whether the spans are those of the layout as it is now."""
        return self._layout_version == self.files.layout_version

    @property
    def spans(self) -> Sequence[Span]:
        """The spans in the order of offsets; `are_known` tells whether they are true."""
        return self._spans

    def found(self, spans: list[Span], layout_version: int) -> None:
        """These are the spans, by this layout."""
        self._spans = spans
        self._layout_version = layout_version

    def unknown(self) -> None:
        """The spans must be derived again."""
        self._layout_version = -1

    def spans_from(self, offset: int) -> Sequence[Span]:
        """The spans with offsets of at least this."""
        return self._spans[bisect_left(self._spans, offset, key=lambda span: span.last_offset) :]

    # Unsealed segments.

    def unsealed(self) -> list[tuple[Segment, RunTable]]:
        """The log's runs in unsealed segments, in the order of offsets."""
        found = []
        for segment in self.files.unsealed:
            assert segment.tables is not None
            table = segment.tables.get(self.key)
            if table is not None and len(table):
                found.append((segment, table))
        return found

    def are_known_from(self, offset: int) -> bool:
        """Whether it is known where all from an offset on lies; where unsealed runs begin before, without any span."""
        if self.are_known:
            return True
        tables = self.unsealed()
        return bool(tables) and offset >= tables[0][1].base_offset

    def sealed_limit(self, log_end_offset: int) -> int:
        """The offset at and beyond which sealed segments hold nothing that is still true."""
        limit = log_end_offset
        for segment in self.files.unsealed:
            assert segment.tables is not None
            table = segment.tables.get(self.key)
            if table is not None:
                limit = min(limit, table.truncated_to)
                if len(table):
                    limit = min(limit, table.base_offset)
        return limit

    # What happens to the log.

    def truncate(self, offset: int) -> None:
        """Nothing at or beyond an offset is there any more."""
        self._spans = clip_spans(reversed(self._spans), offset)
        self.hint = None

    def clear(self) -> None:
        """Nothing is there any more."""
        self.unknown()
        self._spans = []
        self.hint = None

    def was_read(self, next_offset: int, time: float) -> None:
        """A read of files has ended there, by the event loop's clock."""
        self.last_read = next_offset, time

    def hint_at(self, hint: ReadHint | None) -> None:
        """Where in a run the last read of files has ended."""
        self.hint = hint


def clip_spans(newest_first: Iterable[Span], limit: int) -> list[Span]:
    """The spans oldest first, none reaching the base of a later one or the limit."""
    clipped: list[Span] = []
    for span in newest_first:
        if span.base_offset < limit:
            clipped.append(span if span.last_offset < limit else span._replace(last_offset=limit - 1))
            limit = span.base_offset
    clipped.reverse()
    return clipped
