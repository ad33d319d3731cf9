"""Index files on disk: written when a segment is sealed, loaded when needed, rebuilt from the data when damaged.

Everything here blocks: it runs in a worker thread.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from ottla.storage.format.block_scan import scan_heads
from ottla.storage.format.run_table import RunTable, enter_run
from ottla.storage.format.sealed_index import CorruptIndexError, SealedIndex, build_sealed_index
from ottla.storage.format.segment_header import SEGMENT_HEADER_BYTES

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.store.segment import Segment

__all__ = ["load_index", "rebuild_tables", "write_sealed_index"]

logger = logging.getLogger(__name__)


def load_index(disk: Disk, segment: Segment) -> SealedIndex:
    """The index of a sealed segment, rebuilt from the data file if its own is missing or damaged."""
    index = segment.index
    if index is None:
        try:
            index = _open_index(disk, segment)
        except (CorruptIndexError, FileNotFoundError) as error:
            keys = {"path": segment.data_path, "error": str(error)}
            logger.warning("rebuilding the index of %s: %s", segment.data_path, error, extra=keys)
            write_sealed_index(disk, segment, rebuild_tables(disk, segment))
            index = _open_index(disk, segment)
        segment.remember_index(index)
    return index


def _open_index(disk: Disk, segment: Segment) -> SealedIndex:
    handle = disk.open_read(segment.index_path)
    try:
        return SealedIndex(disk, handle, segment.generation, segment.size_bytes)
    finally:
        disk.close(handle)


def write_sealed_index(disk: Disk, segment: Segment, tables: dict[bytes, RunTable], *, suffix: str = "") -> None:
    """Write the index of a sealed segment beside, sync it, and put it in place."""
    pieces = build_sealed_index(segment.generation, segment.size_bytes, ((key, tables[key]) for key in sorted(tables)))
    path = segment.index_path + (suffix or ".new")
    if disk.exists(path):
        disk.unlink(path)
    handle = disk.create(path)
    try:
        disk.pwritev(handle, pieces, 0)
        disk.fdatasync(handle)
    finally:
        disk.close(handle)
    if not suffix:
        disk.rename(path, segment.index_path)
        disk.fsync_directory(os.path.dirname(path))


def rebuild_tables(disk: Disk, segment: Segment) -> dict[bytes, RunTable]:
    """The runs of a sealed segment from the directories of its blocks; a damaged block's runs are left out, loudly."""
    tables: dict[bytes, RunTable] = {}
    position = SEGMENT_HEADER_BYTES
    handle = disk.open_read(segment.data_path)
    try:
        for head in scan_heads(disk, handle, segment.size_bytes, skip_damage=True):
            if head.position != position:
                _say_left_out(segment, position, head.position)
            for run in head.runs:
                enter_run(tables, run)
            position = head.end
    finally:
        disk.close(handle)
    if position != segment.size_bytes:
        _say_left_out(segment, position, segment.size_bytes)
    return tables


def _say_left_out(segment: Segment, start: int, end: int) -> None:
    keys = {"path": segment.data_path, "position": start}
    logger.error(
        "%s: no sound block from byte %d to %d, its records are lost", segment.data_path, start, end, extra=keys
    )
