"""The list of a store's sealed segments, by which a lost file can be told from one that was removed.

It is replaced as a whole: after a segment is sealed, and *before* the files of one that has no replacement are removed.
So a listed segment has files, or a rewritten one replaces it, or its files are lost. One that is not listed, and comes
before the first that was not sealed, was given up, though its files may still be there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from ottla.kproto.records.crc import value as crc32c
from ottla.storage.errors import CorruptLogError, UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION

__all__ = ["SEGMENT_LIST_NAME", "ListedSegment", "SegmentList", "build_segment_list", "parse_segment_list"]

SEGMENT_LIST_NAME = "segments"
_MAGIC = b"OtSegLst"
# magic, format version, flags (0), count, position of the first segment that was not sealed
_HEADER = struct.Struct(">8sHHIQ")
# position, generation, end position, length of the data file
_ENTRY = struct.Struct(">QIQQ")
_CRC = struct.Struct(">I")


class ListedSegment(NamedTuple):
    """A sealed segment: what its file name says, which others it replaces, and how long its data file is."""

    position: int
    generation: int
    end_position: int
    size_bytes: int


class SegmentList(NamedTuple):
    """The sealed segments, by position, and where the first that was not sealed begins."""

    segments: Sequence[ListedSegment]
    unsealed_position: int


def build_segment_list(listed: SegmentList) -> bytes:
    """Return the content of the file."""
    entries = b"".join([_ENTRY.pack(*segment) for segment in listed.segments])
    content = _HEADER.pack(_MAGIC, FORMAT_VERSION, 0, len(listed.segments), listed.unsealed_position) + entries
    return content + _CRC.pack(crc32c(content))


def parse_segment_list(content: bytes) -> SegmentList:
    """Read the content; CorruptLogError if a byte is wrong, UnsupportedFormatError for another format version."""
    end = len(content) - _CRC.size
    if end < _HEADER.size or content[:8] != _MAGIC or crc32c(content[:end]) != _CRC.unpack_from(content, end)[0]:
        raise CorruptLogError("the list of segments is damaged")
    _, version, _, count, unsealed_position = _HEADER.unpack_from(content)
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(f"a list of segments of format version {version}, this is {FORMAT_VERSION}")
    if end != _HEADER.size + count * _ENTRY.size:
        raise CorruptLogError("the list of segments is not as long as it says")
    segments = [ListedSegment._make(fields) for fields in _ENTRY.iter_unpack(content[_HEADER.size : end])]
    return SegmentList(segments, unsealed_position)
