"""Reading batches out of segment files: which bytes, into which memory, and whether they are what they should be.

A `FileRead` is prepared on the event loop (files pinned, memory acquired), runs there or in a worker thread, and is
finished on the event loop. It serves one partition of one fetch.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import parse_batch_header, verify_crc
from ottla.storage.block import RunFlag
from ottla.storage.errors import CorruptLogError, StorageError
from ottla.storage.index_files import load_index, rebuild_tables, write_sealed_index
from ottla.storage.iobuf import Fragment, IOBuf
from ottla.storage.run_table import RunEntry
from ottla.storage.sealed_index import CorruptIndexError

if TYPE_CHECKING:
    from ottla.storage.context import StorageContext
    from ottla.storage.segment import Segment
    from ottla.storage.spans import Span

__all__ = ["Extent", "FileRead", "ReadHint"]

_SIZE = struct.Struct(">qi")
_PREFIX_BYTES = 12
_HEADER_BYTES = 61


class Extent(NamedTuple):
    """A run to be read."""

    segment: Segment
    entry: RunEntry


class ReadHint(NamedTuple):
    """Where a read ended inside a run: a read which goes on at `offset` need not begin at the run's start."""

    offset: int
    segment: Segment
    run_base_offset: int
    position: int


class FileRead:
    """One partition's part of a fetch, as file reads.

    The result is `records` (views over one pooled fragment), or `error`, or `needed_bytes`: the first batch is larger
    than the memory which was acquired, or `damaged_index`: that segment's index was rebuilt. The last two mean that
    the plan must be prepared again.
    """

    __slots__ = (
        "_context",
        "_descriptors",
        "_end_offset",
        "_extents",
        "_fragment",
        "_handles",
        "_hint",
        "_included_bytes",
        "_last_end",
        "_left_bytes",
        "_max_bytes",
        "_min_one_batch",
        "_offset",
        "_segments",
        "_spans",
        "_views",
        "damaged_index",
        "error",
        "hint",
        "needed_bytes",
        "next_offset",
    )

    def __init__(
        self, context: StorageContext, offset: int, end_offset: int, max_bytes: int, *, min_one_batch: bool
    ) -> None:
        self._context = context
        self._offset = offset
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._min_one_batch = min_one_batch
        self._spans: list[Span] = []
        self._extents: list[Extent] = []
        self._segments: list[Segment] = []
        self._descriptors: list[Any] = []
        self._handles: dict[str, int] = {}
        self._fragment: Fragment | None = None
        self._hint: ReadHint | None = None
        self._views: list[memoryview] = []
        self._included_bytes = 0
        self._left_bytes = 0
        self._last_end = -1
        self.next_offset = offset
        self.needed_bytes = 0
        self.damaged_index: Segment | None = None
        self.error: Exception | None = None
        self.hint: ReadHint | None = None

    # On the event loop.

    def add_span(self, span: Span) -> None:
        """Read the runs of a sealed segment; before any extent."""
        self._spans.append(span)
        self._use(span.segment, span.segment.index_path)

    def add_extent(self, extent: Extent) -> None:
        """Read a run whose place is known."""
        self._extents.append(extent)
        if not self._segments or self._segments[-1] is not extent.segment:
            self._use(extent.segment)

    def _use(self, segment: Segment, *paths: str) -> None:
        segment.pins += 1
        self._segments.append(segment)
        for path in (segment.data_path, *paths):
            descriptor = self._context.fd_cache.pin(path)
            self._descriptors.append(descriptor)
            self._handles[path] = descriptor.handle

    def prepare(self, hint: ReadHint | None, needed_bytes: int) -> None:
        """Acquire memory, once all spans and extents are there."""
        if hint is not None and hint.offset == self._offset and hint.segment in self._segments:
            self._hint = hint
        size_bytes = self._max_bytes
        if not self._spans:
            size_bytes = min(size_bytes, sum(extent.entry.length for extent in self._extents))
        if self._hint is None and (
            self._spans or (self._extents and self._extents[0].entry.base_offset < self._offset)
        ):
            size_bytes += self._context.config.run_bytes
        self._fragment = self._context.pool.acquire(max(size_bytes, needed_bytes, _HEADER_BYTES))

    @property
    def capacity_bytes(self) -> int:
        """The memory that was acquired: the most that is read."""
        return 0 if self._fragment is None else self._fragment.capacity_bytes

    def try_inline(self, limit_bytes: int) -> bool:
        """Read on the event loop what the page cache holds; False if a worker thread must do it."""
        if self._spans or self.capacity_bytes > limit_bytes:
            return False
        return self._run(nowait=True)

    def take_records(self) -> IOBuf:
        """The batches; the chain holds the memory."""
        records = IOBuf()
        for view in self._views:
            records.append(view, self._fragment)
        return records

    def close(self) -> None:
        """Give back files; memory too, but for what `take_records` has shared."""
        for descriptor in self._descriptors:
            self._context.fd_cache.unpin(descriptor)
        for segment in self._segments:
            self._context.unpin_segment(segment)
        if self._fragment is not None:
            self._fragment.release()

    # On the event loop or in a worker thread.

    def run(self) -> None:
        """Read everything, waiting for the device where that is needed."""
        self._run(nowait=False)

    def _run(self, *, nowait: bool) -> bool:
        try:
            pieces = self._fill(self._resolve(), nowait=nowait)
            if pieces is None:
                return False
            for extent, start, buffer_start, buffer_end in pieces:
                if not self._walk(extent, start, buffer_start, buffer_end):
                    break
            else:
                self._ask_for_more()
        except CorruptIndexError:
            self._rebuild_index()
        except (ProtocolError, StorageError) as error:
            self.error = CorruptLogError(f"damaged near offset {self.next_offset}: {error}")
        except OSError as error:
            self.error = error
        return True

    def _ask_for_more(self) -> None:
        """All that fitted was void (cut off by a truncation): the run that follows must be read as well."""
        if self._min_one_batch and not self._views and self._left_bytes:
            assert self._fragment is not None
            self.needed_bytes = self._fragment.capacity_bytes + self._left_bytes

    def _resolve(self) -> list[Extent]:
        """The runs of the spans, from their index pages, and then those that were known."""
        extents: list[Extent] = []
        wanted = max(self._max_bytes, self.needed_bytes, 1)
        for span in self._spans:
            self.damaged_index = span.segment
            index = load_index(self._context.disk, span.segment)
            handle = self._handles[span.segment.index_path]
            for place in range(index.find_offset(span.pages, self._offset), span.pages.stop):
                table = index.read_page(self._context.disk, handle, index.page(place))
                for number in range(table.find_offset(self._offset), len(table)):
                    entry = table[number]
                    if wanted <= 0 or entry.base_offset > span.last_offset:
                        break
                    if entry.last_offset > span.last_offset:
                        entry = entry._replace(last_offset=span.last_offset, flags=entry.flags | RunFlag.CLIPPED)
                    if entry.base_offset >= self._offset and not entry.flags & RunFlag.CLIPPED:
                        wanted -= entry.length
                    extents.append(Extent(span.segment, entry))
                if wanted <= 0:
                    break
            if wanted <= 0:
                break
        self.damaged_index = None
        return extents + self._extents

    def _rebuild_index(self) -> None:
        segment = self.damaged_index
        assert segment is not None
        segment.index = None
        try:
            write_sealed_index(self._context.disk, segment, rebuild_tables(self._context.disk, segment))
        except OSError as error:
            self.error = error

    def _fill(self, extents: list[Extent], *, nowait: bool) -> list[tuple[Extent, int, int, int]] | None:
        """Read the runs one after the other into the memory: (run, place of its first byte read, start, end there).

        Runs that follow each other in a file are one read. None if not everything is in the page cache.
        """
        assert self._fragment is not None
        memory = self._fragment.memory
        pieces: list[tuple[Extent, int, int, int]] = []
        filled = 0
        for extent in extents:
            start = extent.entry.position
            end = start + extent.entry.length
            hint = self._hint
            if hint is not None and extent.segment is hint.segment and extent.entry.base_offset == hint.run_base_offset:
                start = hint.position if start <= hint.position < end else start
            length = min(end - start, len(memory) - filled)
            if length <= 0:
                self._left_bytes = extent.entry.length
                break
            pieces.append((extent, start, filled, filled + length))
            filled += length
        group = 0
        while group < len(pieces):
            extent, start, buffer_start, buffer_end = pieces[group]
            group += 1
            while group < len(pieces) and pieces[group][0].segment is extent.segment:
                if pieces[group][1] != start + buffer_end - buffer_start:
                    break
                buffer_end = pieces[group][3]
                group += 1
            handle = self._handles[extent.segment.data_path]
            target = memory[buffer_start:buffer_end]
            count = self._context.disk.preadv(handle, [target], start, nowait=nowait)
            if count != len(target):
                if nowait:
                    return None
                raise CorruptLogError(f"{extent.segment.data_path} ends before byte {start + len(target)}")
        return pieces

    def _walk(self, extent: Extent, start: int, pos: int, end: int) -> bool:
        """Take the batches of one run that are wanted; False when the read ends here."""
        assert self._fragment is not None
        memory = self._fragment.memory
        entry = extent.entry
        first_pos = pos
        expected = 0
        is_cut = start + end - pos < entry.position + entry.length
        while pos < end:
            size = _SIZE.unpack_from(memory, pos)[1] + _PREFIX_BYTES if end - pos >= _PREFIX_BYTES else _HEADER_BYTES
            if is_cut and (end - pos < _HEADER_BYTES or size > end - pos):
                if self._min_one_batch and not self._views:
                    self.needed_bytes = pos + max(size, _HEADER_BYTES)
                return False
            batch = parse_batch_header(memory[:end], pos)
            if batch.base_offset < max(entry.base_offset, expected):
                raise CorruptLogError(f"a batch at offset {batch.base_offset} in a run from {entry.base_offset} on")
            if batch.last_offset > entry.last_offset:
                if not entry.flags & RunFlag.CLIPPED:
                    raise CorruptLogError(f"a batch up to {batch.last_offset} in a run up to {entry.last_offset}")
                return True
            if batch.last_offset >= self._offset:
                too_large = self._included_bytes + size > self._max_bytes
                if batch.last_offset >= self._end_offset or (too_large and (self._views or not self._min_one_batch)):
                    self.hint = ReadHint(self.next_offset, extent.segment, entry.base_offset, start + pos - first_pos)
                    return False
                if self._context.config.verify_reads:
                    verify_crc(memory, pos, batch)
                self._include(memory, pos, size)
                self.next_offset = batch.next_offset
            expected = batch.next_offset
            pos += size
        if not is_cut and expected != entry.last_offset + 1 and not entry.flags & RunFlag.CLIPPED:
            raise CorruptLogError(f"a run up to {entry.last_offset} ends at {expected - 1}")
        return not is_cut

    def _include(self, memory: memoryview, pos: int, size: int) -> None:
        self._included_bytes += size
        if self._last_end == pos:
            self._views[-1] = memory[pos - len(self._views[-1]) : pos + size]
        else:
            self._views.append(memory[pos : pos + size])
        self._last_end = pos + size
