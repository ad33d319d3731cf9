"""The first bytes of a data file, and the names of a segment's files."""

from __future__ import annotations

import re
import struct
from hashlib import sha256
from typing import NamedTuple

from ottla.kproto.records.crc import value as crc32c
from ottla.storage.errors import UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION

__all__ = [
    "NO_BOOT",
    "SEGMENT_HEADER_BYTES",
    "SORTED_FLAG",
    "SegmentHeader",
    "boot_tag",
    "build_segment_header",
    "parse_file_name",
    "parse_segment_header",
    "segment_name",
]

SEGMENT_MAGIC = b"OtSegmnt"
# magic, format version, flags, generation, position, first sequence, created at (ms), end position, boot tag, CRC
_HEADER = struct.Struct(">8sHHIQQqQ12sI")
SEGMENT_HEADER_BYTES = _HEADER.size
_NAME = re.compile(r"(\d{20})(?:-(\d+))?\.(data|index)")
_CRC_POS = SEGMENT_HEADER_BYTES - 4


BOOT_TAG_BYTES = 12
NO_BOOT = bytes(BOOT_TAG_BYTES)
"""The boot tag of a segment if it is not known under which boot it was begun."""

SORTED_FLAG = 0x01
"""The segment was rewritten: its runs are sorted by partition, and as long as they can be."""


class SegmentHeader(NamedTuple):
    """The first 64 bytes of a data file.

    `generation` counts the rewrites of the segment. A rewritten segment replaces all that began in [`position`,
    `end_position`); one that was not rewritten has an `end_position` of 0. `boot_tag` says under which boot of the
    machine it was begun.
    """

    magic: bytes
    format_version: int
    flags: int
    generation: int
    position: int
    first_sequence: int
    created_at_ms: int
    end_position: int
    boot_tag: bytes
    crc: int


def boot_tag(boot_id: str) -> bytes:
    """The 12 bytes that identify a boot of the machine; `NO_BOOT` for an unknown one."""
    return sha256(boot_id.encode()).digest()[:BOOT_TAG_BYTES] if boot_id else NO_BOOT


def build_segment_header(
    generation: int,
    position: int,
    first_sequence: int,
    created_at_ms: int,
    *,
    flags: int = 0,
    end_position: int = 0,
    boot_tag: bytes = NO_BOOT,
) -> bytes:
    """Return the 64 bytes."""
    head = _HEADER.pack(
        SEGMENT_MAGIC,
        FORMAT_VERSION,
        flags,
        generation,
        position,
        first_sequence,
        created_at_ms,
        end_position,
        boot_tag,
        0,
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


def parse_file_name(name: str) -> tuple[int, int, bool] | None:
    """The position and the generation in the name of a segment's file, and whether it is the index; None for others."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or 0), found[3] == "index") if found is not None else None
