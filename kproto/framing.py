"""Frames: a signed 32-bit length, then that many bytes, over and over. Sans-IO, and bounded."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from ottla.kproto.errors import FrameError

if TYPE_CHECKING:
    from ottla.kproto.types import Buffer

PREFIX_SIZE: Final = 4
_CHUNK_BYTES: Final = 64 * 1024
_RESERVE_BYTES: Final = 16 * 1024 * 1024
_RESERVE_FACTOR: Final = 4
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

    Bytes come in by `feed`; or, without a copy of large frames, into `buffer()`, followed by `received(count)`.
    A length is checked as soon as its four bytes are there. Memory is reserved as the frame comes: never more than
    16 MiB, or four times what has come of it. After FrameError the stream is lost.
    """

    __slots__ = ("_chunk", "_filled", "_frame", "_frame_size", "_held", "_max_size_bytes")

    def __init__(self, max_size_bytes: int) -> None:
        self._max_size_bytes = max_size_bytes
        # Small frames, and the first bytes of each, gather in the chunk; the rest of a frame that does not fit in there
        # goes straight to where it stays.
        self._chunk = bytearray(_CHUNK_BYTES)
        self._held = 0
        self._frame: bytearray | None = None
        self._frame_size = 0
        self._filled = 0

    def limit(self, max_size_bytes: int) -> None:
        """Take frames of up to so many bytes from now on."""
        self._max_size_bytes = max_size_bytes

    def buffer(self) -> memoryview:
        """Where the next bytes belong; never empty. To be let go of before `received` is called."""
        if self._frame is None:
            return memoryview(self._chunk)[self._held :]
        return memoryview(self._frame)[self._filled :]

    def received(self, count: int) -> list[Buffer]:
        """Take the first `count` bytes of `buffer()`; returns the frames that are complete now, without their prefixes.

        They are the caller's: nothing writes into them again.
        """
        if self._frame is None:
            self._held += count
            return self._cut()
        self._filled += count
        if self._filled == self._frame_size:
            frame, self._frame = self._frame, None
            return [frame]
        if self._filled == len(self._frame):
            self._frame += bytes(min(self._frame_size, _RESERVE_FACTOR * self._filled) - self._filled)
        return []

    def feed(self, data: Buffer) -> list[Buffer]:
        """Take what was received; returns the frames that are complete now, without their prefixes."""
        frames = []
        rest = memoryview(data)
        while rest:
            with self.buffer() as room:
                count = min(len(room), len(rest))
                room[:count] = rest[:count]
            frames += self.received(count)
            rest = rest[count:]
        return frames

    def _cut(self) -> list[Buffer]:
        chunk, held = self._chunk, self._held
        frames: list[Buffer] = []
        pos = 0
        while held - pos >= PREFIX_SIZE:
            size = frame_size(chunk, self._max_size_bytes, pos)
            start, end = pos + PREFIX_SIZE, pos + PREFIX_SIZE + size
            if end <= held:
                frames.append(bytes(memoryview(chunk)[start:end]))
                pos = end
                continue
            if PREFIX_SIZE + size > _CHUNK_BYTES:
                self._frame = bytearray(min(size, _RESERVE_BYTES))
                self._frame_size, self._filled = size, held - start
                self._frame[: held - start] = memoryview(chunk)[start:held]
                pos = held
            break
        chunk[: held - pos] = chunk[pos:held]
        self._held = held - pos
        return frames
