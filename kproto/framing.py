"""Frames: a signed 32-bit length, then that many bytes, over and over. Sans-IO, and bounded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.kproto.errors import FrameError

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

PREFIX_SIZE: Final = 4
_PREFIX = struct.Struct(">i")


def frame_size(prefix: Buffer, max_size_bytes: int, pos: int = 0) -> int:
    """The number of bytes that follow the prefix at `pos`. Raises FrameError if it is negative or above the limit."""
    (size,) = _PREFIX.unpack_from(prefix, pos)
    if not 0 <= size <= max_size_bytes:
        raise FrameError(f"a frame of {size} bytes; at most {max_size_bytes} are allowed")
    found: int = size
    return found


def frame_prefix(size_bytes: int) -> bytes:
    """The prefix of a frame of that size."""
    try:
        return _PREFIX.pack(size_bytes)
    except struct.error as error:
        raise FrameError(f"a frame of {size_bytes} bytes cannot be written") from error


class FrameParser:
    """Cuts a stream of bytes into frames.

    Holds at most one unfinished frame, so never more than the limit and what was fed last; a length is checked as soon
    as its four bytes are there, and nothing is reserved for what has not come. After FrameError the stream is lost.
    """

    __slots__ = ("_buffer", "_max_size_bytes")

    def __init__(self, max_size_bytes: int) -> None:
        self._max_size_bytes = max_size_bytes
        self._buffer = bytearray()

    @property
    def buffered_size_bytes(self) -> int:
        """How much of an unfinished frame is here, its prefix included."""
        return len(self._buffer)

    def feed(self, data: Buffer) -> list[bytes]:
        """Take what was received; returns the frames that are complete now, without their prefixes."""
        buffer = self._buffer
        buffer += data
        frames = []
        pos = 0
        while len(buffer) - pos >= PREFIX_SIZE:
            end = pos + PREFIX_SIZE + frame_size(buffer, self._max_size_bytes, pos)
            if end > len(buffer):
                break
            frames.append(bytes(memoryview(buffer)[pos + PREFIX_SIZE : end]))
            pos = end
        del buffer[:pos]
        return frames
