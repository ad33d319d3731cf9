"""Batches that stay in their file until they are sent: the kernel hands them from the page cache to the socket.

A range is whole runs, all of whose batches were summed since they were written. It keeps the file open, not the
segment: the bytes stay as they are when the log is truncated, or the segment rewritten or removed, because what is
written is never written again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import iter_batches, verify_crc
from ottla.storage.errors import CorruptLogError
from ottla.storage.memory.iobuf import IOBuf

if TYPE_CHECKING:
    from ottla.kproto.types import Part
    from ottla.storage.disk.fd_cache import Descriptor
    from ottla.storage.memory.iobuf import Fragment
    from ottla.storage.store.context import StorageContext
    from ottla.storage.store.segment import Segment

__all__ = ["FileRange", "RangedRecords"]


class FileRange:
    """A range of a segment file. Its holder calls `release` once, when it was sent or is not wanted."""

    __slots__ = ("_context", "_descriptor", "_length", "_position", "_segment")

    def __init__(
        self, context: StorageContext, segment: Segment, descriptor: Descriptor, position: int, length: int
    ) -> None:
        """`descriptor` is in use by the maker, and from now on by this as well."""
        context.fd_cache.share(descriptor)
        self._context = context
        self._descriptor = descriptor
        self._segment = segment
        self._position = position
        self._length = length

    def __len__(self) -> int:
        return self._length

    def is_cached(self, offset: int, length: int) -> bool:
        """Whether `send` of this much need not wait for the device."""
        return self._context.disk.is_cached(self._descriptor.handle, self._position + offset, length)

    def send(self, socket: int, offset: int, length: int) -> int:
        """Send `length` bytes from `offset` bytes into the range on; returns how many the socket took.

        BlockingIOError if it takes none now, CorruptLogError if the file has become shorter.
        """
        sent = self._context.disk.send(self._descriptor.handle, socket, self._position + offset, length)
        if not sent:
            raise self._damaged("the file ends before")
        return sent

    async def load(self) -> memoryview:
        """The bytes, read again in a worker thread and summed: the page cache has lost some since the range was made.

        CorruptLogError or OSError if that cannot be done.
        """
        return await self._context.offload(self._read)

    def _read(self) -> memoryview:
        disk, handle = self._context.disk, self._descriptor.handle
        content = memoryview(bytearray(self._length))
        self._segment.summed.check(disk, handle, self._position, self._length)
        if disk.preadv(handle, [content], self._position) != self._length:
            raise self._damaged("the file ends before")
        try:
            for pos, batch in iter_batches(content):
                verify_crc(content, pos, batch)
        except ProtocolError as error:
            raise self._damaged(str(error)) from None
        return content

    def _damaged(self, what: str) -> CorruptLogError:
        self._segment.summed.forget()
        end = self._position + self._length
        return CorruptLogError(f"{self._segment.data_path}: bytes {self._position} to {end} cannot be sent: {what}")

    def release(self) -> None:
        """Let go of the file."""
        self._context.fd_cache.unpin(self._descriptor)


class RangedRecords(IOBuf):
    """Batches in order, of which some are in memory and some are ranges of files.

    Only `parts` knows of the ranges: who wants to look at the bytes reads a plan that names no files.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[memoryview | FileRange] = []

    def append(self, view: memoryview | bytes, fragment: Fragment | None = None) -> None:
        super().append(view, fragment)
        self._parts.append(self._views[-1])

    def append_range(self, part: FileRange) -> None:
        """Add a range at the end, and own it."""
        self._parts.append(part)
        self._size_bytes += len(part)

    def parts(self) -> Iterator[Part]:
        return iter(self._parts)

    def __iter__(self) -> Iterator[memoryview]:
        raise TypeError("some of these records are in files")

    def to_bytes(self) -> bytes:
        raise TypeError("some of these records are in files")

    def release(self) -> None:
        parts, self._parts = self._parts, []
        super().release()
        for part in parts:
            if isinstance(part, FileRange):
                part.release()
