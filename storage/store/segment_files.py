"""Which files of a store's folder are its segments, which were left by an interrupted change, and which are missing."""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.storage.errors import CorruptLogError
from ottla.storage.format.block_scan import read_exactly
from ottla.storage.format.sealed_index import sealed_data_length
from ottla.storage.format.segment_header import (
    SEGMENT_HEADER_BYTES,
    parse_file_name,
    parse_segment_header,
)
from ottla.storage.format.segment_list import (
    SEGMENT_LIST_NAME,
    ListedSegment,
    SegmentList,
    build_segment_list,
    parse_segment_list,
)
from ottla.storage.store.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.disk import Disk

__all__ = [
    "ASIDE_MARK",
    "LOSS_FILE",
    "Loss",
    "free_path",
    "indexed_bytes",
    "list_of",
    "list_segments",
    "mark_losses",
    "set_aside",
]

logger = logging.getLogger(__name__)

ASIDE_MARK: Final = ".cut"
"""In the names of what a recovery has set aside: it stays there until somebody removes it."""

LOSS_FILE: Final = "may-lack-records"
"""It is there from when a start finds that records may be missing until the cluster no longer counts on them."""


class Loss(NamedTuple):
    """A file that is gone or shorter than it was (`position` is where it ends, -1 if it is gone)."""

    path: str
    position: int
    message: str


def list_segments(disk: Disk, directory: str, names: Sequence[str]) -> list[Segment]:
    """The segments by position: of each the newest generation, less those for which a rewritten one stands. Blocks.

    A segment that is listed (`format/segment_list.py`) and has no data file, while no other stands for it, is lost: it
    stays among them. One that was sealed when the list was written, and is not listed, was given up. Where there is no
    sound list, the index of a sealed segment stands for its entry.
    """
    # A start asks for the files of every store.
    files = sorted(filter(None, map(parse_file_name, names)))
    newest = {position: generation for position, generation, is_index in files if not is_index}
    segment_list = _read_list(disk, directory, names) or SegmentList(_indexed(disk, directory, files, newest), 0)
    listed = {entry.position: entry for entry in segment_list.segments}
    found: list[Segment] = []
    end_position = 0
    for position in sorted({*newest, *listed}):
        entry = listed.get(position)
        if position < end_position or (entry is None and position < segment_list.unsealed_position):
            continue
        if position in newest and (entry is None or newest[position] >= entry.generation):
            segment = Segment(directory, position, newest[position])
            if segment.generation:
                end_position = _end_position(disk, segment)
            if entry is not None and entry.generation == segment.generation:
                segment.expect(entry.size_bytes)
                end_position = entry.end_position or end_position
        else:
            assert entry is not None
            segment = Segment(directory, position, entry.generation)
            segment.lost(entry.size_bytes, entry.end_position)
            end_position = entry.end_position
        found.append(segment)
    return found


def _read_list(disk: Disk, directory: str, names: Sequence[str]) -> SegmentList | None:
    """The list of sealed segments; None without a sound one."""
    if SEGMENT_LIST_NAME not in names:
        return None
    path = os.path.join(directory, SEGMENT_LIST_NAME)
    try:
        return parse_segment_list(disk.read_file(path))
    except CorruptLogError as error:
        logger.warning("%s: %s; reading the indexes instead", path, error, extra={"path": path, "error": str(error)})
        return None


def _indexed(
    disk: Disk, directory: str, files: Sequence[tuple[int, int, bool]], there: Container[int]
) -> list[ListedSegment]:
    """The sealed segments that have an index and no data file, by position. The index is removed first.

    A rewrite that was interrupted leaves an index, too: the old data file still stands, and nothing is lost.
    """
    found = []
    for position, generation, is_index in files:
        if is_index and position not in there:
            size_bytes = indexed_bytes(disk, Segment(directory, position, generation))
            if size_bytes is not None:
                found.append(ListedSegment(position, generation, 0, size_bytes))
    return found


def list_of(segments: Sequence[Segment]) -> bytes:
    """The content of the list of a store that has these segments."""
    listed = [
        ListedSegment(segment.position, segment.generation, segment.end_position, segment.size_bytes)
        for segment in segments
        if segment.is_sealed
    ]
    unsealed = (segment.position for segment in segments if not segment.is_sealed)
    return build_segment_list(SegmentList(listed, next(unsealed, listed[-1].position if listed else 0)))


def _end_position(disk: Disk, segment: Segment) -> int:
    handle = disk.open_read(segment.data_path)
    try:
        header = parse_segment_header(read_exactly(disk, handle, 0, SEGMENT_HEADER_BYTES))
    finally:
        disk.close(handle)
    return header.end_position if header is not None else 0


def indexed_bytes(disk: Disk, segment: Segment) -> int | None:
    """How long the data file is by the index file of a sealed segment; None without a sound one. Blocks."""
    try:
        handle = disk.open_read(segment.index_path)
    except FileNotFoundError:
        return None
    try:
        return sealed_data_length(disk, handle, segment.generation)
    finally:
        disk.close(handle)


def mark_losses(disk: Disk, segments: Sequence[Segment]) -> list[Loss]:
    """What names and sizes of a store's files say to be missing. Blocks.

    Segments that are shorter than the list says count as lost from there on, and have their old size again. One that is
    not listed, and was never rewritten, ends where the next one begins: if it does not, its index is asked.
    """
    found = []
    for place, segment in enumerate(segments):
        if segment.is_lost:
            found.append(Loss(segment.data_path, -1, f"{segment.data_path} is lost, {segment.size_bytes} bytes"))
            continue
        if segment.tables is not None:
            # A recovery has read it from its first byte on, and may have cut it, which it has said: it is written to.
            continue
        known_bytes = segment.listed_bytes
        if not known_bytes and place + 1 < len(segments) and not _ends_at(segment, segments[place + 1].position):
            known_bytes = indexed_bytes(disk, segment) or 0
        if known_bytes > segment.size_bytes:
            lost_bytes = known_bytes - segment.size_bytes
            message = f"{segment.data_path} ends at byte {segment.size_bytes}: the last {lost_bytes} bytes are lost"
            found.append(Loss(segment.data_path, segment.size_bytes, message))
            segment.lost(known_bytes, segment.end_position)
    return found


def free_path(disk: Disk, path: str) -> str:
    """Where to set something aside: this name, or the next one that nothing has yet. Blocks."""
    free, number = path, 1
    while disk.exists(free):
        number += 1
        free = f"{path}.{number}"
    return free


def set_aside(directory: str, names: Sequence[str]) -> list[Loss]:
    """What starts have set aside because it was damaged, or because what it belongs to is lost."""
    paths = [os.path.join(directory, name) for name in names if ASIDE_MARK in name]
    return [
        Loss(path, -1, f"{path} was set aside by a start that found damage: see `ottla salvage`, then remove it")
        for path in paths
    ]


def _ends_at(segment: Segment, position: int) -> bool:
    return not segment.generation and segment.position + segment.size_bytes == position
