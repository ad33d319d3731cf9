"""Reading batches out of segment files: which bytes, into which memory, and whether they are what they should be.

What the kernel can send from the file, as it was summed before, is not read but named (`FileRange`).

A `FileRead` is prepared on the event loop (files pinned, memory acquired), runs there or in a worker thread, and is
finished on the event loop. It serves one partition of one fetch.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import parse_batch_header, verify_crc
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import RunFlag
from ottla.storage.format.sealed_index import CorruptIndexError
from ottla.storage.memory.iobuf import Fragment, IOBuf
from ottla.storage.reading.extents import Extent, contiguous, span_extents, wanted_after
from ottla.storage.reading.file_range import FileRange, RangedRecords
from ottla.storage.reading.places import ReadHint, Span
from ottla.storage.reading.sound_batches import next_sound_batch
from ottla.storage.store.context import StorageContext
from ottla.storage.store.file_store import FileStore
from ottla.storage.store.index_files import rebuild_tables, write_sealed_index
from ottla.storage.store.segment import Segment
from ottla.storage.store.summed_runs import LEAST_SUMMED_BYTES

if TYPE_CHECKING:
    from ottla.storage.disk.fd_cache import Descriptor
    from ottla.storage.format.run_table import RunEntry

__all__ = ["STEP_BYTES", "FileRead"]

STEP_BYTES = 524_288
"""A read on the event loop goes in steps of about this much: copying and checking it takes some 100 µs."""

# The first part of a run fills up the memory if it is at least this part of it: a smaller one is not worth a read.
_LEAST_PART = 8
_SIZE = struct.Struct(">qi")
_PREFIX_BYTES = 12
_HEADER_BYTES = 61
# Which offset the next batch has.
_UNKNOWN = -1


class _Piece(NamedTuple):
    """A run, or its first part: its place in the file, and where in memory it is read to (nowhere if it is named)."""

    extent: Extent
    position: int
    start: int
    end: int

    @property
    def is_named(self) -> bool:
        return self.start == self.end


class _Stretch(NamedTuple):
    """Whole runs that are answered as a range of their file."""

    segment: Segment
    position: int
    length: int


class FileRead:
    """One partition's part of a fetch, as file reads. From making it to `close` it is inside the gate of its store.

    The result is what `take_records` gives (views over one pooled fragment, and with `names_files` ranges of files), or
    `error`, or `needed_bytes`: the first batch is larger than the memory which was acquired, or `damaged_index`: that
    segment's index was rebuilt. The last two mean that the plan must be prepared again. What is sound before damage is
    a result; `damage` tells of the damage either way.
    """

    __slots__ = (
        "_context",
        "_descriptors",
        "_end_offset",
        "_ends_with_run",
        "_extents",
        "_files",
        "_fragment",
        "_handles",
        "_hint",
        "_included_bytes",
        "_last_end",
        "_left_bytes",
        "_max_bytes",
        "_min_one_batch",
        "_named",
        "_names_files",
        "_next_piece",
        "_offset",
        "_parts",
        "_pieces",
        "_segments",
        "_spans",
        "_summed",
        "damage",
        "damaged_index",
        "error",
        "hint",
        "is_cold",
        "is_done",
        "is_void",
        "needed_bytes",
        "next_offset",
        "read_bytes",
    )

    def __init__(
        self,
        context: StorageContext,
        files: FileStore,
        offset: int,
        end_offset: int,
        max_bytes: int,
        *,
        min_one_batch: bool,
        names_files: bool = False,
    ) -> None:
        """LogClosedError if the store is being closed."""
        files.gate.enter()
        self._files = files
        self._context = context
        self._offset = offset
        self._end_offset = end_offset
        self._max_bytes = max_bytes
        self._min_one_batch = min_one_batch
        # A read that names files rather ends with a run than with a part of one: so the next one begins with a run.
        self._ends_with_run = False
        self._names_files = names_files and context.disk.sends_files
        self._spans: Sequence[Span] = ()
        self._extents: list[Extent] = []
        self._segments: list[Segment] = []
        self._descriptors: dict[str, Descriptor] = {}
        self._handles: dict[str, int] = {}
        self._fragment: Fragment | None = None
        self._hint: ReadHint | None = None
        self._pieces: list[_Piece] | None = None
        self._next_piece = 0
        self._parts: list[memoryview | _Stretch] = []
        # The places of runs: those that need not be read, and those that were read whole and are sound.
        self._named: set[tuple[Segment, int]] = set()
        self._summed: list[tuple[Segment, int]] = []
        self._included_bytes = 0
        self._left_bytes = 0
        self._last_end = -1
        self.is_done = False
        # All runs that were named were read, and hold nothing from the offset on.
        self.is_void = False
        # A worker thread reads it.
        self.is_cold = False
        self.next_offset = offset
        self.read_bytes = 0
        self.needed_bytes = 0
        self.damaged_index: Segment | None = None
        self.damage: CorruptLogError | None = None
        self.error: Exception | None = None
        self.hint: ReadHint | None = None

    # On the event loop.

    def add_spans(self, spans: Sequence[Span]) -> None:
        """Read the runs of sealed segments; before any extent."""
        self._spans = spans
        for span in spans:
            self._use(span.segment, span.segment.index_path)

    def add_extent(self, extent: Extent) -> None:
        """Read a run whose place is known."""
        self._extents.append(extent)
        if not self._segments or self._segments[-1] is not extent.segment:
            self._use(extent.segment)

    def _use(self, segment: Segment, *paths: str) -> None:
        segment.pin()
        self._segments.append(segment)
        for path in (segment.data_path, *paths):
            try:
                descriptor = self._context.fd_cache.pin(path)
            except FileNotFoundError:
                # Said when the read comes to it: what lies before is served.
                continue
            self._descriptors[path] = descriptor
            self._handles[path] = descriptor.handle

    def prepare(self, hint: ReadHint | None, needed_bytes: int) -> None:
        """Acquire memory, once all spans and extents are there."""
        if hint is not None and hint.offset == self._offset and hint.segment in self._segments:
            self._hint = hint
        self._ends_with_run = self._names_files and not needed_bytes
        size_bytes = self._max_bytes
        if not self._spans:
            size_bytes = min(size_bytes, sum(map(self._bytes_to_read, self._extents)))
        if self._hint is None and (
            self._spans or (self._extents and self._extents[0].entry.base_offset < self._offset)
        ):
            size_bytes += self._context.config.run_bytes
        self._fragment = self._context.pool.acquire(max(size_bytes, needed_bytes, _HEADER_BYTES))

    def _bytes_to_read(self, extent: Extent) -> int:
        """The length of a run, 0 if it can be named without reading it."""
        segment, entry = extent
        if not self._is_nameable(entry) or not self._names_files or entry.position not in segment.summed:
            return entry.length
        handle = self._handles.get(segment.data_path)
        if handle is None or not self._context.disk.is_cached(handle, entry.position, entry.length):
            return entry.length
        self._named.add((segment, entry.position))
        return 0

    def _is_nameable(self, entry: RunEntry) -> bool:
        """Whether all of a run is wanted, and is long enough."""
        return (
            LEAST_SUMMED_BYTES <= entry.length <= self._max_bytes
            and entry.base_offset >= self._offset
            and entry.last_offset < self._end_offset
            and not entry.flags & RunFlag.CLIPPED
        )

    def fail(self, error: OSError) -> None:
        """Its files cannot be opened."""
        self.error = error
        self.is_done = True

    def go_cold(self) -> None:
        """A worker thread reads what is left."""
        self.is_cold = True

    def may_run_inline(self, limit_bytes: int) -> bool:
        """Whether the event loop may try: all places are known, and it is not too much."""
        return not self._spans and self._fragment is not None and self._fragment.capacity_bytes <= limit_bytes

    def take_records(self) -> IOBuf:
        """The batches; they hold the memory and the files."""
        for segment, position in self._summed:
            segment.summed.add(position)
        records = RangedRecords() if self._names_files else IOBuf()
        for part in self._parts:
            if not isinstance(part, _Stretch):
                records.append(part, self._fragment)
                continue
            assert isinstance(records, RangedRecords)
            descriptor = self._descriptors[part.segment.data_path]
            records.append_range(FileRange(self._context, part.segment, descriptor, part.position, part.length))
        return records

    def close(self) -> None:
        """Give back files; memory too, except what `take_records` has shared."""
        for descriptor in self._descriptors.values():
            self._context.fd_cache.unpin(descriptor)
        for segment in self._segments:
            segment.unpin()
        if self._fragment is not None:
            self._fragment.release()
        self._files.gate.leave()

    # On the event loop or in a worker thread.

    def run(self) -> None:
        """Read what is left, waiting for the device where that is needed."""
        while not self.is_done:
            self._try_step(1 << 62, nowait=False)

    def step(self) -> int:
        """Read on for about `STEP_BYTES` if the page cache has them; returns how many were read, 0 if it has not.

        Afterwards `is_done` tells whether there is more to read.
        """
        return self._try_step(STEP_BYTES, nowait=True)

    def find_extents(self) -> list[Extent]:
        """The runs of the spans, from their index pages, and then those that were known. Blocks if there are spans.

        CorruptIndexError with `damaged_index` set to its segment.
        """
        extents: list[Extent] = []
        wanted = max(self._max_bytes, self.needed_bytes, 1)
        for span in self._spans:
            self.damaged_index = span.segment
            for extent in span_extents(self._context.disk, self._handles, span, self._offset, wanted):
                extents.append(extent)
                wanted = wanted_after(wanted, extent.entry, self._offset)
        self.damaged_index = None
        return extents + self._extents if wanted > 0 else extents

    def read_ahead(self, extents: Sequence[Extent]) -> bool:
        """Let the page cache fetch runs of the segments in use, in the background. May block for a little.

        True if it has all of them, as far as that is known.
        """
        disk = self._context.disk
        are_cached = disk.sends_files
        for segment, position, length in contiguous(extents):
            handle = self._handles.get(segment.data_path)
            if handle is not None:
                segment.summed.check(disk, handle, position, length)
                are_cached = are_cached and disk.is_cached(handle, position, length)
                disk.advise_willneed(handle, position, length)
        return are_cached

    def _try_step(self, limit_bytes: int, *, nowait: bool) -> int:
        try:
            if self._pieces is None:
                self._pieces = self._lay_out(self.find_extents())
            return self._step(self._pieces, limit_bytes, nowait=nowait)
        except CorruptIndexError:
            self._rebuild_index()
        except CorruptLogError as error:
            # What comes before the damage is sound: who reads on will meet it again.
            self.damage = error
            self.error = None if self._parts else error
        except OSError as error:
            self.error = error
        self.is_done = True
        return 0

    def _rebuild_index(self) -> None:
        segment = self.damaged_index
        assert segment is not None
        segment.remember_index(None)
        try:
            write_sealed_index(self._context.disk, segment, rebuild_tables(self._context.disk, segment))
        except FileNotFoundError:
            self.damage = self.error = self._missing(segment.data_path, -1, self.next_offset + 1)
        except OSError as error:
            self.error = error

    def _lay_out(self, extents: list[Extent]) -> list[_Piece]:
        """Give the runs their places in the memory, one after the other, until it is full."""
        assert self._fragment is not None
        capacity_bytes = self._fragment.capacity_bytes
        pieces: list[_Piece] = []
        filled = wanted = 0
        for extent in extents:
            position = extent.entry.position
            end = position + extent.entry.length
            if self._ends_with_run and wanted + end - position > self._max_bytes and 2 * wanted >= self._max_bytes:
                self._left_bytes = extent.entry.length
                break
            wanted += end - position
            if (extent.segment, position) in self._named:
                pieces.append(_Piece(extent, position, filled, filled))
                continue
            hint = self._hint
            if hint is not None and extent.segment is hint.segment and extent.entry.base_offset == hint.run_base_offset:
                position = hint.position if position <= hint.position < end else position
            length = min(end - position, capacity_bytes - filled)
            if length <= 0 or (pieces and length < min(end - position, capacity_bytes // _LEAST_PART)):
                self._left_bytes = extent.entry.length
                break
            pieces.append(_Piece(extent, position, filled, filled + length))
            filled += length
        return pieces

    def _step(self, pieces: list[_Piece], limit_bytes: int, *, nowait: bool) -> int:
        """Read the next runs that follow each other in a file, in one call, and take their batches."""
        assert self._fragment is not None
        if not self._name_next(pieces):
            return 0
        first = following = self._next_piece
        size_bytes = 0
        if first < len(pieces):
            extent, position, start, end = pieces[first]
            following += 1
            while following < len(pieces) and end - start < limit_bytes:
                piece = pieces[following]
                if (
                    piece.extent.segment is not extent.segment
                    or piece.is_named
                    or piece.position != position + end - start
                ):
                    break
                end = piece.end
                following += 1
            target = self._fragment.memory[start:end]
            size_bytes = len(target)
            handle = self._handles.get(extent.segment.data_path)
            if handle is None:
                raise self._missing(extent.segment.data_path, -1, extent.entry.last_offset + 1)
            if not nowait:
                extent.segment.summed.check(self._context.disk, handle, position, size_bytes)
            count = self._context.disk.preadv(handle, [target], position, nowait=nowait)
            self.read_bytes += count
            if count != size_bytes:
                if nowait:
                    return 0
                self._walk_to_end(pieces[first:following], start + count)
                self.is_done = True
                return count
            self._next_piece = following
        for piece in pieces[first:following]:
            if not self._take(piece):
                self.is_done = True
                return size_bytes
        if following == len(pieces):
            self._look_for_more()
            self.is_done = True
        return size_bytes

    def _name_next(self, pieces: list[_Piece]) -> bool:
        """Take the next runs that need not be read; False when the read ends there."""
        while self._next_piece < len(pieces) and pieces[self._next_piece].is_named:
            extent = pieces[self._next_piece].extent
            if self._included_bytes + extent.entry.length > self._max_bytes:
                self.is_done = True
                return False
            self._include_stretch(extent)
            self._next_piece += 1
        return True

    def _walk_to_end(self, pieces: list[_Piece], end: int) -> None:
        """Take what there is of runs whose file ends at a place in the memory; CorruptLogError if more was wanted."""
        for piece in pieces:
            if not self._walk(piece._replace(end=min(piece.end, end))) and piece.end <= end:
                return
            if piece.end > end:
                self.needed_bytes = 0
                file_position = piece.position + max(end - piece.start, 0)
                segment, entry = piece.extent
                raise self._missing(segment.data_path, file_position, entry.last_offset + 1)

    def _look_for_more(self) -> None:
        """If all that fitted was void (cut off by a truncation), the run that follows must be read as well."""
        if self._parts:
            return
        if not self._left_bytes:
            self.is_void = True
        elif self._min_one_batch:
            assert self._fragment is not None
            self.needed_bytes = self._fragment.capacity_bytes + self._left_bytes

    def _take(self, piece: _Piece) -> bool:
        """`_walk` through a run, which is named rather than taken if all of it is sound, and is not read again then."""
        segment, entry = piece.extent
        if not self._context.config.verify_reads or not self._is_nameable(entry):
            return self._walk(piece)
        if self._names_files:
            self._last_end = -1  # it becomes a part of its own
        included_bytes = self._included_bytes
        goes_on = self._walk(piece)
        if self._included_bytes - included_bytes == entry.length:
            self._summed.append((segment, entry.position))
            if self._names_files:
                self._parts.pop()
                self._included_bytes = included_bytes
                self._include_stretch(piece.extent)
        return goes_on

    def _walk(self, piece: _Piece) -> bool:
        """Take the batches of one run that are wanted; False when the read ends here."""
        assert self._fragment is not None
        (segment, entry), position, pos, end = piece
        memory = self._fragment.memory[:end]
        is_cut = position + end - pos < entry.position + entry.length
        verify = self._context.config.verify_reads
        file_position = position - pos
        expected = entry.base_offset if position == entry.position else _UNKNOWN
        is_dense = not entry.flags & RunFlag.CLEANED
        while pos < end:
            try:
                size = (
                    _SIZE.unpack_from(memory, pos)[1] + _PREFIX_BYTES if end - pos >= _PREFIX_BYTES else _HEADER_BYTES
                )
                if is_cut and (end - pos < _HEADER_BYTES or size > end - pos):
                    if self._min_one_batch and not self._parts:
                        self.needed_bytes = pos + max(size, _HEADER_BYTES)
                    return False
                batch = parse_batch_header(memory, pos)
                base_offset = batch.base_offset
                last_offset = base_offset + batch.last_offset_delta
                if batch.leader_epoch != entry.leader_epoch or (
                    base_offset != expected and expected >= 0 and (base_offset < expected or is_dense)
                ):
                    _refuse(f"a batch at offset {base_offset} of epoch {batch.leader_epoch}, not at {expected}")
                if last_offset > entry.last_offset:
                    if not entry.flags & RunFlag.CLIPPED:
                        _refuse(f"a batch up to {last_offset} in a run up to {entry.last_offset}")
                    return True
                if last_offset >= self._offset:
                    too_large = self._included_bytes + size > self._max_bytes
                    if last_offset >= self._end_offset or (too_large and (self._parts or not self._min_one_batch)):
                        self.hint = ReadHint(self.next_offset, segment, entry.base_offset, file_position + pos)
                        return False
                    if verify:
                        verify_crc(memory, pos, batch)
                    self._include(pos, size)
                    self.next_offset = last_offset + 1
                expected = last_offset + 1
                pos += size
            except (ProtocolError, CorruptLogError) as error:
                pos = self._pass_damage(piece, pos, error)
                expected = _UNKNOWN
        if not is_cut and expected not in (entry.last_offset + 1, _UNKNOWN) and not entry.flags & RunFlag.CLIPPED:
            self._pass_damage(piece, pos, CorruptLogError(f"a run up to {entry.last_offset} ends at {expected - 1}"))
        return not is_cut

    def _missing(self, path: str, position: int, end_offset: int) -> CorruptLogError:
        return CorruptLogError(
            f"offsets {self.next_offset} to {end_offset - 1} are missing in {path}",
            path=path,
            position=position,
            resumes_at=end_offset,
        )

    def _pass_damage(self, piece: _Piece, pos: int, error: Exception) -> int:
        """Where the walk goes on after damage at a place in the memory; CorruptLogError if it hides what was asked for.

        It does not hide it if a sound batch is found that holds the next offset. Lengths before the damage are believed
        only where batches were taken, since others were passed over unchecked.
        """
        assert self._fragment is not None
        (segment, entry), position, start, end = piece
        memory = self._fragment.memory[:end]
        found = next_sound_batch(
            memory,
            pos + 1 if self._parts else start,
            self.next_offset,
            entry.last_offset,
            leader_epoch=entry.leader_epoch,
            damaged=pos,
        )
        if found is not None and found[1] <= self.next_offset:
            return found[0]
        file_position = position + pos - start
        resumes_at = entry.last_offset + 1 if found is None else found[1]
        raise CorruptLogError(
            f"{segment.data_path} is damaged at byte {file_position}, offset {self.next_offset}: {error}",
            path=segment.data_path,
            position=file_position,
            resumes_at=max(resumes_at, self.next_offset + 1),
        )

    def _include(self, pos: int, size: int) -> None:
        assert self._fragment is not None
        memory = self._fragment.memory
        self._included_bytes += size
        if self._last_end == pos:
            self._parts[-1] = memory[pos - len(self._parts[-1]) : pos + size]
        else:
            self._parts.append(memory[pos : pos + size])
        self._last_end = pos + size

    def _include_stretch(self, extent: Extent) -> None:
        """Name a whole run, in one stretch with the one before it if they lie side by side."""
        segment, entry = extent
        before = self._parts[-1] if self._parts else None
        if (
            isinstance(before, _Stretch)
            and before.segment is segment
            and before.position + before.length == entry.position
        ):
            self._parts[-1] = _Stretch(segment, before.position, before.length + entry.length)
        else:
            self._parts.append(_Stretch(segment, entry.position, entry.length))
        self._last_end = -1
        self._included_bytes += entry.length
        self.next_offset = entry.last_offset + 1


def _refuse(message: str) -> NoReturn:
    raise CorruptLogError(message)
