"""Which files of a store's folder are its segments, and which were left by an interrupted change."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.storage.format.block_scan import read_exactly
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES, parse_segment_header, parse_segment_name
from ottla.storage.store.segment import Segment

if TYPE_CHECKING:
    from ottla.storage.disk import Disk

__all__ = ["list_segments"]


def list_segments(disk: Disk, directory: str, names: Sequence[str]) -> list[Segment]:
    """The segments by position: of each the newest generation, less those for which a rewritten one stands. Blocks."""
    newest = dict(sorted(filter(None, map(parse_segment_name, names))))
    found: list[Segment] = []
    end_position = 0
    for position, generation in newest.items():
        if position < end_position:
            continue
        segment = Segment(directory, position, generation)
        found.append(segment)
        if generation:
            end_position = _end_position(disk, segment)
    return found


def _end_position(disk: Disk, segment: Segment) -> int:
    handle = disk.open_read(segment.data_path)
    try:
        header = parse_segment_header(read_exactly(disk, handle, 0, SEGMENT_HEADER_BYTES))
    finally:
        disk.close(handle)
    return header.end_position if header is not None else 0
