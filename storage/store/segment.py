"""A segment: one data file with its index, which many partitions share.

Only the last segment of a store is written to. While its runs are in memory (`tables`) they are searched there; once it
is sealed, they are searched through its index file.
"""

from __future__ import annotations

import os
import re
import struct
from typing import NamedTuple

from google_crc32c import value as crc32c

from ottla.storage.errors import UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION
from ottla.storage.format.run_table import RunTable
from ottla.storage.format.sealed_index import SealedIndex

__all__ = [
    "SEGMENT_HEADER_BYTES",
    "SORTED_FLAG",
    "Segment",
    "SegmentHeader",
    "build_segment_header",
    "parse_segment_header",
    "parse_segment_name",
]

SEGMENT_MAGIC = b"OtSegmnt"
# magic, format version, flags, generation, position, first sequence, created at (ms), end position, …, CRC
_HEADER = struct.Struct(">8sHHIQQqQ12xI")
SEGMENT_HEADER_BYTES = _HEADER.size
_NAME = re.compile(r"(\d{20})(?:-(\d+))?\.data")
_CRC_POS = SEGMENT_HEADER_BYTES - 4


SORTED_FLAG = 0x01
"""The segment was rewritten: its runs are sorted by partition, and as long as they can be."""


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a data file.

    `generation` counts the rewrites of the segment. A rewritten segment stands for all that began in [`position`,
    `end_position`); one that was not has an `end_position` of 0.
    """

    magic: bytes
    format_version: int
    flags: int
    generation: int
    position: int
    first_sequence: int
    created_at_ms: int
    end_position: int
    crc: int


def build_segment_header(
    generation: int, position: int, first_sequence: int, created_at_ms: int, *, flags: int = 0, end_position: int = 0
) -> bytes:
    """Return the 64 bytes."""
    head = _HEADER.pack(
        SEGMENT_MAGIC, FORMAT_VERSION, flags, generation, position, first_sequence, created_at_ms, end_position, 0
    )[:_CRC_POS]
    return head + struct.pack(">I", crc32c(head))


def parse_segment_header(buf: bytes) -> SegmentHeader | None:
    """Return the header, or None if it is torn or damaged; UnsupportedFormatError for another format version."""
    if len(buf) < SEGMENT_HEADER_BYTES:
        return None
    header = SegmentHeader._make(_HEADER.unpack_from(buf))
    if header.magic != SEGMENT_MAGIC or header.crc != crc32c(bytes(buf[:_CRC_POS])):
        return None
    if header.format_version != FORMAT_VERSION:
        raise UnsupportedFormatError(f"segment of format version {header.format_version}, this is {FORMAT_VERSION}")
    return header


def segment_name(position: int, generation: int) -> str:
    """The name of a segment's files, without their suffix; a rewritten segment has new files."""
    return f"{position:020d}-{generation}" if generation else f"{position:020d}"


def parse_segment_name(name: str) -> tuple[int, int] | None:
    """The position and the generation in a data file's name; None for other files."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or 0)) if found is not None else None


class Segment:
    """What a running store knows of one segment.

    `position` names it: the bytes of all segments before it, at the time it was begun. A rewritten one stands for all
    that began before `end_position`, and `created_at_ms` is that of the oldest. `tables` holds the runs of an unsealed
    segment by log key, and is None for a sealed one. `version` changes when runs are taken away from `tables`.
    `pending_index` are the run records that wait for a checkpoint to be added to the index file, which by then has
    `index_length` bytes with the CRC-32C `index_crc`. The files of a doomed segment are removed when its last reader
    has unpinned it.
    """

    __slots__ = (
        "created_at_ms",
        "data_path",
        "directory",
        "doomed",
        "end_position",
        "first_sequence",
        "generation",
        "index",
        "index_crc",
        "index_length",
        "index_path",
        "is_sorted",
        "pending_index",
        "pins",
        "position",
        "run_count",
        "size_bytes",
        "tables",
        "version",
    )

    def __init__(self, directory: str, position: int, generation: int = 0) -> None:
        self.directory = directory
        self.position = position
        self.generation = generation
        path = os.path.join(directory, segment_name(position, generation))
        self.data_path = f"{path}.data"
        self.index_path = f"{path}.index"
        self.is_sorted = False
        self.end_position = 0
        self.first_sequence = 0
        self.created_at_ms = 0
        self.size_bytes = 0
        self.run_count = 0
        self.tables: dict[bytes, RunTable] | None = None
        self.index: SealedIndex | None = None
        self.version = 0
        self.pending_index = bytearray()
        self.index_length = 0
        self.index_crc = 0
        self.pins = 0
        self.doomed = False

    @property
    def next_position(self) -> int:
        """Where the segment after it begins, or would: a rewritten one takes the room of what it stands for."""
        return self.end_position or self.position + self.size_bytes

    @property
    def is_sealed(self) -> bool:
        return self.tables is None

    def table(self, key: bytes) -> RunTable:
        """The partition's runs in this unsealed segment, made on first use."""
        assert self.tables is not None, "a sealed segment takes no runs"
        table = self.tables.get(key)
        if table is None:
            table = self.tables[key] = RunTable()
        return table

    def adopt_header(self, header: SegmentHeader) -> None:
        """Take over what the file says of itself."""
        self.is_sorted = bool(header.flags & SORTED_FLAG)
        self.end_position = header.end_position
        self.first_sequence = header.first_sequence
        self.created_at_ms = header.created_at_ms
