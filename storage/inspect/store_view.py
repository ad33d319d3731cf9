"""What a store's files say about its partitions, without a broker and without changing a byte.

A view follows the same rules as recovery at a start: the checkpoint's states, the summaries in the indexes of sealed
segments, and the blocks after the recovery point up to the first one that is not whole. It may be of a stopped store,
of a copy, or of one in use, of which it is then what had been written at that moment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches, parse_end_txn_marker, verify_crc
from ottla.kproto.records.crc import value as crc32c
from ottla.storage.config import INT64_MAX
from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block import Run, RunFlag, RunKind, iter_runs, split_key
from ottla.storage.format.block_scan import BlockHead, find_block, read_exactly, scan_heads
from ottla.storage.format.checkpoint import CHECKPOINT_NAME, Checkpoint, PartitionState, parse_checkpoint
from ottla.storage.format.run_table import RunTable, enter_run
from ottla.storage.format.sealed_index import CorruptIndexError, SealedIndex
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES
from ottla.storage.inspect.segment_reader import Piece, find_timestamp, read_piece
from ottla.storage.node_dir import store_directories
from ottla.storage.state.aborted_transactions import AbortedTransactions
from ottla.storage.state.producer_snapshot import read_snapshot
from ottla.storage.store.segment import Segment
from ottla.storage.store.segment_files import list_segments

if TYPE_CHECKING:
    from ottla.kproto.records import BatchHeader
    from ottla.storage.disk import Disk, Handle

__all__ = ["PartitionView", "node_directories", "offset_for_timestamp", "store_directories", "view_store"]

_UNSETTLED: Final = RunFlag.TRANSACTIONAL | RunFlag.CONTROL


class PartitionView(NamedTuple):
    """One partition. `aborted` holds (producer id, first offset, the marker's offset) of its aborted transactions.

    From `last_stable_offset` on it is not decided which records count; without open transactions it is the log's end.
    """

    topic_id: bytes
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    aborted: tuple[tuple[int, int, int], ...]
    pieces: tuple[Piece, ...]


@dataclass(slots=True)
class _Partition:
    """A partition while its store is read. Transactions must be read from the log again where `is_unsure`."""

    as_of: int = -1
    log_start: int = 0
    is_unsure: bool = False
    ongoing: dict[int, int] = field(default_factory=dict)
    aborted: list[tuple[int, int, int]] = field(default_factory=list)

    @classmethod
    def restored(cls, content: bytes) -> _Partition:
        """What a checkpoint knows about the partition."""
        state = PartitionState.parse(content)
        found = cls(state.as_of_sequence, state.log_start_offset)
        if state.aborted:
            found.aborted = [transaction[:3] for transaction in AbortedTransactions.from_bytes(state.aborted)]
        if state.producers:
            for producer in read_snapshot(state.producers).active_producers():
                if producer.transaction_first_offset >= 0:
                    found.ongoing[producer.producer_id] = producer.transaction_first_offset
        return found

    def follow(self, content: memoryview, pos: int, header: BatchHeader) -> None:
        """Take over what a batch says about its transaction."""
        if header.is_control:
            marker = parse_end_txn_marker(content, pos, header)
            first = self.ongoing.pop(header.producer_id, None) if marker is not None else None
            if marker is not None and first is not None and not marker.is_commit:
                self.aborted.append((header.producer_id, first, header.last_offset))
        elif header.is_transactional:
            self.ongoing.setdefault(header.producer_id, header.base_offset)

    def truncate(self) -> None:
        """A part of the log is gone, and what was known of the transactions in it."""
        self.is_unsure = True

    def move_start(self, offset: int, *, is_emptied: bool) -> None:
        """The log begins here; further back than before only where it was emptied."""
        self.log_start = offset if is_emptied else max(self.log_start, offset)


@dataclass(slots=True)
class _SegmentView:
    """A segment with its index, if it is sealed, or with its runs by partition."""

    segment: Segment
    index: SealedIndex | None = None
    tables: dict[bytes, RunTable] = field(default_factory=dict)

    def keys(self) -> set[bytes]:
        return {page.key for page in self.index.all_pages()} if self.index is not None else set(self.tables)


def node_directories(path: str) -> list[str]:
    """The node folders in a data folder, or the folder itself if it is one; FileNotFoundError if there is none."""
    if os.path.isfile(os.path.join(path, "node.json")):
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.startswith("node-")]
    found = [folder for folder in found if os.path.isfile(os.path.join(folder, "node.json"))]
    if not found:
        raise FileNotFoundError(f"{path} holds no node's folder")
    return found


def view_store(disk: Disk, directory: str) -> list[PartitionView]:
    """The partitions of the store in a folder.

    Raises CorruptLogError where blocks are damaged, UnsupportedFormatError for another format version, and OSError,
    also where a store in use removed a file meanwhile: try again then.
    """
    return _StoreView(disk, directory).run()


def offset_for_timestamp(disk: Disk, view: PartitionView, timestamp_ms: int) -> int | None:
    """The first record of a partition whose time is at least this, as the broker's ListOffsets finds it; None if none
    has one. Raises as `find_timestamp` of the segment reader does.
    """
    offsets = (find_timestamp(disk, piece, timestamp_ms, view.log_start_offset) for piece in view.pieces)
    return next((offset for offset in offsets if offset is not None), None)


class _StoreView:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._partitions: dict[bytes, _Partition] = {}
        self._segments: list[_SegmentView] = []
        self._point: Checkpoint | None = None

    def run(self) -> list[PartitionView]:
        names = self._disk.listdir(self._directory)
        if CHECKPOINT_NAME in names:
            path = os.path.join(self._directory, CHECKPOINT_NAME)
            with suppress(CorruptLogError):  # As at a start: all blocks are read instead.
                self._point, states = parse_checkpoint(self._disk.read_file(path))
                self._partitions = {key: _Partition.restored(state) for key, state in states.items()}
        segments = list_segments(self._disk, self._directory, names)
        for segment in segments:
            self._segments.append(self._view(segment, is_last=segment is segments[-1]))
        found = (self._partition(key) for key in sorted(set().union(*(view.keys() for view in self._segments))))
        return [view for view in found if view is not None]

    # Segments.

    def _view(self, segment: Segment, *, is_last: bool) -> _SegmentView:
        if segment.is_lost:
            raise CorruptLogError(f"{segment.data_path} is lost")
        handle = self._disk.open_read(segment.data_path)
        try:
            segment.found(self._disk.size(handle))
            point = self._point
            index = None if is_last else self._sealed_index(segment)
            view = _SegmentView(segment, index)
            if point is not None and segment.position < point.segment_position:
                if index is None:
                    self._scan(view, handle, SEGMENT_HEADER_BYTES, is_open=False, is_new=False)
                return view
            start = SEGMENT_HEADER_BYTES
            if point is not None and segment.position == point.segment_position:
                start = point.data_length if index is not None else self._enter_indexed(view, handle, point)
            self._scan(view, handle, start, is_open=is_last, is_new=True)
            return view
        finally:
            self._disk.close(handle)

    def _sealed_index(self, segment: Segment) -> SealedIndex | None:
        try:
            handle = self._disk.open_read(segment.index_path)
        except FileNotFoundError:
            return None
        try:
            return SealedIndex(self._disk, handle, segment.generation, segment.size_bytes)
        except CorruptIndexError:
            return None
        finally:
            self._disk.close(handle)

    def _enter_indexed(self, view: _SegmentView, handle: Handle, point: Checkpoint) -> int:
        """Enter the runs before the recovery point; returns where the blocks after it begin."""
        path = view.segment.index_path
        content = self._disk.read_file(path)[: point.index_length] if self._disk.exists(path) else b""
        if len(content) == point.index_length and crc32c(content) == point.index_crc:
            runs = list(iter_runs(content))
        else:
            heads = self._heads(view, handle, SEGMENT_HEADER_BYTES, point.data_length, is_open=False)
            runs = [run for head in heads for run in head.runs]
        for run in runs:
            enter_run(view.tables, run)
        return point.data_length

    def _scan(self, view: _SegmentView, handle: Handle, start: int, *, is_open: bool, is_new: bool) -> None:
        """Read blocks' directories; what `is_new` is not in the checkpoint's states, and is taken over."""
        end = view.segment.size_bytes
        for head in self._heads(view, handle, start, end, is_open=is_open):
            # Only the last block that was written can be torn.
            if is_open and head.end == end and not _is_sound(self._disk, handle, head):
                return
            for run in head.runs:
                enter_run(view.tables, run)
                if is_new:
                    self._apply(view.segment, handle, head, run)

    def _heads(self, view: _SegmentView, handle: Handle, start: int, end: int, *, is_open: bool) -> Iterator[BlockHead]:
        position = start
        for head in scan_heads(self._disk, handle, end, start):
            yield head
            position = head.end
        if position < end and not (is_open and find_block(self._disk, handle, position + 1, end) is None):
            raise CorruptLogError(f"{view.segment.data_path} is damaged at byte {position}")

    # Partitions.

    def _apply(self, segment: Segment, handle: Handle, head: BlockHead, run: Run) -> None:
        state = self._partitions.setdefault(run.key, _Partition())
        if head.header.sequence <= state.as_of and not segment.generation:
            return
        if run.kind == RunKind.DATA:
            if run.flags & _UNSETTLED:
                content = memoryview(read_exactly(self._disk, handle, run.position, run.length))
                for pos, header in iter_batches(content):
                    state.follow(content, pos, header)
        elif run.kind == RunKind.TRUNCATE:
            state.truncate()
        elif run.kind == RunKind.LOG_START:
            state.move_start(run.base_offset, is_emptied=run.last_offset == run.base_offset)
        else:
            self._partitions[run.key] = _Partition(as_of=state.as_of)

    def _partition(self, key: bytes) -> PartitionView | None:
        pieces = self._pieces(key)
        state = self._partitions.get(key)
        if state is None or not pieces:
            return None
        if state.is_unsure:
            self._read_transactions(state, pieces)
        log_end = pieces[-1].last_offset + 1
        stable = min((log_end, *state.ongoing.values()))
        return PartitionView(
            *split_key(key),
            max(state.log_start, pieces[0].base_offset),
            log_end,
            stable,
            tuple(entry for entry in state.aborted if entry[2] >= state.log_start),
            tuple(pieces),
        )

    def _pieces(self, key: bytes) -> list[Piece]:
        """The partition's parts of the segments, without what later ones have made void."""
        found: list[Piece] = []
        limit = INT64_MAX
        for view in reversed(self._segments):
            piece, truncated_to = _piece(view, key, limit)
            if piece is not None:
                found.append(piece)
                limit = piece.base_offset
            limit = min(limit, truncated_to)
        return found[::-1]

    def _read_transactions(self, state: _Partition, pieces: list[Piece]) -> None:
        state.ongoing, state.aborted = {}, []
        for piece in pieces:
            for content in read_piece(self._disk, piece, piece.base_offset, piece.last_offset + 1, only=_UNSETTLED):
                for pos, header in iter_batches(content):
                    state.follow(content, pos, header)


def _piece(view: _SegmentView, key: bytes, limit: int) -> tuple[Piece | None, int]:
    """A partition's part of a segment below an offset, and from where on the segment makes older ones void."""
    segment = view.segment
    if view.index is not None:
        return _sealed_piece(segment, view.index, view.index.find_pages(key), limit)
    table = view.tables.get(key)
    if table is None:
        return None, INT64_MAX
    if not len(table) or table.base_offset >= limit:
        return None, table.truncated_to
    last_offset = min(table.last_offset, limit - 1)
    piece = Piece(
        segment.data_path,
        table.base_offset,
        last_offset,
        table.size_bytes,
        table.max_timestamp_ms,
        runs=bytes(table.data),
    )
    return piece, table.truncated_to


def _sealed_piece(segment: Segment, index: SealedIndex, pages: range, limit: int) -> tuple[Piece | None, int]:
    records = [index.page(number) for number in pages]
    truncated_to = min((page.truncated_to for page in records), default=INT64_MAX)
    if not records or not records[0].entry_count or records[0].base_offset >= limit:
        return None, truncated_to
    piece = Piece(
        segment.data_path,
        records[0].base_offset,
        min(records[-1].last_offset, limit - 1),
        sum(page.size_bytes for page in records),
        max(page.max_timestamp_ms for page in records),
        segment.index_path,
        segment.generation,
        segment.size_bytes,
        pages,
    )
    return piece, truncated_to


def _is_sound(disk: Disk, handle: Handle, head: BlockHead) -> bool:
    body = memoryview(read_exactly(disk, handle, head.position, head.header.length))
    if len(body) != head.header.length:
        return False
    try:
        for run in head.runs:
            start = run.position - head.position
            content = body[start : start + run.length]
            for pos, header in iter_batches(content):
                verify_crc(content, pos, header)
    except ProtocolError:
        return False
    return True
