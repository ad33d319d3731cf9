"""The sending half of a connection: what leaves at once, what the peer has yet to take, and whether anything moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.runtime.errors import CloseConnectionError
from ottla.server.network.readiness import Served
from ottla.storage.errors import StorageError
from ottla.storage.reading.file_range import FileRange

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.codec import Buffer, Part
    from ottla.server.network.transport import Transport

LARGE_ANSWER_BYTES: Final = 32 * 1024
"""An answer that takes a good part of a slice of time to send."""

_MAX_SEND_VIEWS: Final = 1024
# One send copies at memory speed: this much stays well under the 500 µs for which the loop may be held.
_MAX_SEND_BYTES: Final = 512 * 1024
# The same of a range of a file, which is not copied.
_MAX_FILE_BYTES: Final = 1024 * 1024
# After this much others may run; a send more may come on top.
_HELD_BYTES: Final = _MAX_SEND_BYTES


class ResponseSender:
    """Sends the responses of one connection in order. While something is `unsent`, nothing else may be sent."""

    __slots__ = (
        "_count",
        "_files",
        "_first",
        "_has_moved",
        "_last_progress",
        "_offset",
        "_parts",
        "_stalled_since",
        "_transport",
        "is_uncached",
        "unsent",
    )

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._files = transport.files
        #: Whether `go_on` or `send_rest` has something to send.
        self.unsent = False
        #: Whether `load` has to be called before `go_on`.
        self.is_uncached = False
        # The parts that are under way, how many requests they answer, and the first byte that has not left.
        self._parts: list[Part] = []
        self._count = self._first = self._offset = 0
        self._stalled_since: float | None = None  # the peer takes nothing of an answer
        self._has_moved = False  # since `is_idle` looked last, which then was at
        self._last_progress = trio.current_time()

    @property
    def sends_files(self) -> bool:
        """Whether parts of an answer may be ranges of files."""
        return self._files is not None

    def is_idle(self, seconds: float, *, has_requests: bool) -> bool:
        """Whether nothing was seen to move for this long, and no request waits for its answer.

        It is called now and then, which is when it sees what moved.
        """
        now = trio.current_time()
        if self._has_moved or (has_requests and self._stalled_since is None):
            self._has_moved = False
            self._last_progress = now
        return now - self._last_progress >= seconds

    def is_stalled(self, seconds: float) -> bool:
        """Whether the peer has taken nothing of an answer for this long."""
        return self._stalled_since is not None and trio.current_time() - self._stalled_since >= seconds

    def send_at_once(self, count: int, parts: Sequence[Part], size_bytes: int) -> bool:
        """Send the answers of `count` requests by one call. False if something of them is `unsent` now."""
        sent = 0
        if parts and size_bytes <= LARGE_ANSWER_BYTES and len(parts) <= _MAX_SEND_VIEWS:
            small: Sequence[Buffer] = parts  # type: ignore[assignment] # nothing as short is in a file
            try:
                sent = self._transport.send(small)
            except BlockingIOError:
                sent = 0
            if len(small) == 1 and sent == len(small[0]):
                parts = ()
        if parts:
            self.leave(count, parts)
            self._advance(sent)
            if self._first < len(parts):
                return False
            self.give_up()
        self._has_moved = True
        return True

    def leave(self, count: int, parts: Sequence[Part]) -> None:
        """Leave the answers of `count` requests to `go_on` or `send_rest`."""
        assert not self.unsent
        self._count = count
        self._parts = list(parts)
        self.unsent = True

    def give_up(self) -> None:
        """Forget what is unsent: it has left, or the connection ends."""
        self.unsent = self.is_uncached = False
        self._parts = []
        self._first = self._offset = 0

    @property
    def answered(self) -> int:
        """How many requests the parts answer that were left last."""
        return self._count

    async def send_rest(self) -> int:
        """Send what is unsent, and return how many requests that answers. Raises as `go_on` does.

        It waits as long as the peer does not read: that holds up nobody but this connection.
        """
        while (served := self.go_on()) is not Served.ALL:
            if served is Served.BLOCKED:
                await self._transport.wait_writable()
            elif served is Served.HAS_MORE:
                await trio.lowlevel.checkpoint()
            else:
                await self.load()
        return self._count

    def go_on(self) -> Served:
        """Send some of what is unsent, until the peer takes no more or others should run.

        NEEDS_TASK says that `load` comes next. CloseConnectionError if a range of a file is no longer what it was: the
        length of the answer is sent by then. OSError if the peer is gone.
        """
        held_bytes = 0
        while self._first < len(self._parts):
            if held_bytes >= _HELD_BYTES:
                return Served.HAS_MORE
            try:
                sent, wanted = self._send_some()
            except BlockingIOError:
                if self._stalled_since is None:
                    self._stalled_since = trio.current_time()
                return Served.BLOCKED
            except StorageError as error:
                raise _lost(error) from None
            if self.is_uncached:
                return Served.NEEDS_TASK
            self._has_moved = True
            self._stalled_since = None
            held_bytes += sent
            self._advance(sent)
            if sent < wanted:
                self._stalled_since = trio.current_time()
                return Served.BLOCKED
        self.give_up()
        return Served.ALL

    async def load(self) -> None:
        """Read the range that comes next into memory: the page cache has lost some of it. Raises as `go_on` does."""
        part = self._parts[self._first]
        assert isinstance(part, FileRange)
        try:
            self._parts[self._first] = await part.load()
        except StorageError as error:
            raise _lost(error) from None
        self.is_uncached = False

    def _send_some(self) -> tuple[int, int]:
        """Send once: how much the peer took, and how much there was for it. Nothing if that `is_uncached`."""
        parts, first, offset = self._parts, self._first, self._offset
        part = parts[first]
        if isinstance(part, FileRange):
            assert self._files is not None  # only then are ranges named
            wanted = min(len(part) - offset, _MAX_FILE_BYTES)
            self.is_uncached = not part.is_cached(offset, wanted)
            return (0, 0) if self.is_uncached else (self._files.send(part, offset, wanted), wanted)
        group, wanted = _next_group(parts, first, offset)
        following = first + len(group)
        if self._files is not None and following < len(parts) and isinstance(parts[following], FileRange):
            return self._files.send_before(group), wanted
        return self._transport.send(group), wanted

    def _advance(self, sent_bytes: int) -> None:
        """So much more has left."""
        parts, first = self._parts, self._first
        offset = self._offset + sent_bytes
        while first < len(parts) and offset >= len(parts[first]):
            offset -= len(parts[first])
            first += 1
        self._first, self._offset = first, offset


def _lost(error: StorageError) -> CloseConnectionError:
    return CloseConnectionError(f"what it asked for is no longer there: {error}")


def _next_group(parts: Sequence[Part], first: int, offset: int) -> tuple[Sequence[Buffer], int]:
    """The views that one send takes from `offset` bytes into part `first` on, and their size in bytes.

    The first is a view, and the group ends before a part that is not.
    """
    group: list[Buffer] = []
    size_bytes = 0
    for part in parts[first : first + _MAX_SEND_VIEWS]:
        if isinstance(part, FileRange):
            break
        piece = memoryview(part)[offset : offset + _MAX_SEND_BYTES - size_bytes]  # type: ignore[arg-type]
        offset = 0
        group.append(piece)
        size_bytes += len(piece)
        if size_bytes >= _MAX_SEND_BYTES:
            break
    return group, size_bytes
