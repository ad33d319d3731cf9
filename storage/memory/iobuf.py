"""Reference-counted fragments of memory, and chains of views of them: Redpanda's iobuf.

Bytes received from a socket, or read from a file, stay where they are. Code that needs them holds a reference to
their `Fragment`; to assemble a request, a block or a response, it chains views of them in an `IOBuf`, which
`os.pwritev` and `socket.sendmsg` take as they are. No method here but `IOBuf.to_bytes` copies.

Neither class is thread-safe: references are counted on the event loop's thread only. A worker thread may read
or write the memory while the loop holds the reference for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from ottla.kproto.types import Part

IOV_MAX = 1024
"""How many pieces Linux takes in one pwritev, preadv or sendmsg call."""


class Fragment:
    """A piece of contiguous writable memory with a reference count that begins at one.

    `memory` is the whole piece, often larger than was asked for. At zero references it returns to its owner
    and `memory` becomes an empty view, so that a late use fails instead of reading what somebody else wrote
    there. Views taken earlier are not revoked: keep a reference for as long as a view.
    """

    __slots__ = ("_reclaim", "_references", "memory")

    def __init__(self, memory: memoryview, reclaim: Callable[[memoryview], None] | None = None) -> None:
        self.memory = memory
        self._reclaim = reclaim
        self._references = 1

    @property
    def capacity_bytes(self) -> int:
        """The size of the memory; zero after the last release."""
        return self.memory.nbytes

    @property
    def references(self) -> int:
        """How many references are held."""
        return self._references

    def retain(self) -> Fragment:
        """Take one more reference; the same fragment is returned, for chaining."""
        if self._references <= 0:
            raise AssertionError("a fragment was retained after its last release")
        self._references += 1
        return self

    def release(self) -> None:
        """Give one reference back. One release too many is a programming error and raises AssertionError."""
        references = self._references - 1
        if references < 0:
            raise AssertionError("a fragment was released more often than retained")
        self._references = references
        if references == 0:
            memory = self.memory
            self.memory = _NO_MEMORY
            if self._reclaim is not None:
                self._reclaim(memory)


_NO_MEMORY = memoryview(bytearray())


class IOBuf:
    """A chain of views, each holding a reference to the fragment it looks into.

    Used as a context manager it is released at the end. A released chain is empty and may be released again.
    """

    __slots__ = ("_fragments", "_size_bytes", "_views")

    def __init__(self) -> None:
        self._views: list[memoryview] = []
        self._fragments: list[Fragment | None] = []
        self._size_bytes = 0

    @property
    def size_bytes(self) -> int:
        """The sum of the views' sizes."""
        return self._size_bytes

    def append(self, view: memoryview | bytes, fragment: Fragment | None = None) -> None:
        """Chain a view at the end and retain its fragment; None is for bytes that nobody recycles.

        An empty view is not kept, nor its fragment retained.
        """
        if not isinstance(view, memoryview):
            view = memoryview(view)
        size_bytes = view.nbytes
        if size_bytes == 0:
            return
        if fragment is not None:
            fragment.retain()
        self._views.append(view)
        self._fragments.append(fragment)
        self._size_bytes += size_bytes

    def extend(self, other: IOBuf) -> None:
        """Chain all of another chain's views at the end; both hold references afterwards."""
        for fragment in other._fragments:
            if fragment is not None:
                fragment.retain()
        self._views += other._views
        self._fragments += other._fragments
        self._size_bytes += other._size_bytes

    def __iter__(self) -> Iterator[memoryview]:
        """The views in order. They are valid while the chain holds its references."""
        return iter(self._views)

    def parts(self) -> Iterator[Part]:
        """The views, and where a chain has such, what is to be sent from files."""
        return iter(self._views)

    def groups(self, limit: int = IOV_MAX) -> Iterator[list[memoryview]]:
        """The views in order, in lists no longer than one vectored system call takes."""
        for first in range(0, len(self._views), limit):
            yield self._views[first : first + limit]

    def to_bytes(self) -> bytes:
        """A copy of all bytes, for what must be contiguous and is small."""
        return b"".join(self._views)

    def release(self) -> None:
        """Give up every reference; the chain is empty afterwards."""
        fragments = self._fragments
        self._views = []
        self._fragments = []
        self._size_bytes = 0
        _release_all(fragments)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def _release_all(fragments: list[Fragment | None]) -> None:
    for fragment in fragments:
        if fragment is not None:
            fragment.release()
