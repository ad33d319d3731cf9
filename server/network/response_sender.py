"""The sending half of a connection: what leaves at once, what the peer has yet to take, and whether anything moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from ottla.runtime.errors import CloseConnectionError
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
    """Sends the responses of one connection in order. Until what is `unsent` has left, nothing else may be sent."""

    __slots__ = ("_files", "_has_moved", "_last_progress", "_stalled_since", "_transport", "unsent")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._files = transport.files
        #: Left to the connection's task: what the peer did not take at once, and how many requests that answers.
        self.unsent: tuple[int, Sequence[Part]] | None = None
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
        rest = parts
        if parts and size_bytes <= LARGE_ANSWER_BYTES and len(parts) <= _MAX_SEND_VIEWS:
            small: Sequence[Buffer] = parts  # type: ignore[assignment] # nothing as short is in a file
            try:
                sent = self._transport.send(small)
            except BlockingIOError:
                sent = 0
            rest = () if len(small) == 1 and sent == len(small[0]) else _rest_of(small, sent)
        if rest:
            self.unsent = count, rest
            return False
        self._has_moved = True
        return True

    def leave(self, count: int, parts: Sequence[Part]) -> None:
        """Leave the answers of `count` requests to `send_rest`."""
        self.unsent = count, parts

    def give_up(self) -> None:
        """Forget what is unsent: the connection ends."""
        self.unsent = None

    async def send_rest(self) -> int:
        """Send what is unsent, and return how many requests that answers. Raises as `send` does."""
        assert self.unsent is not None
        count, parts = self.unsent
        await self.send(parts)
        self.unsent = None
        self._has_moved = True
        return count

    async def send(self, parts: Sequence[Part]) -> None:
        """Send everything, waiting as long as the peer does not read: that holds up nobody but this connection.

        CloseConnectionError if a range of a file is no longer what it was: the length of the answer is sent by then.
        """
        first = offset = held_bytes = 0
        count = len(parts)
        while first < count:
            part = parts[first]
            try:
                if not isinstance(part, FileRange):
                    group, wanted = _next_group(parts, first, offset)
                    following = first + len(group)
                    if self._files is not None and following < count and isinstance(parts[following], FileRange):
                        sent = self._files.send_before(group)
                    else:
                        sent = self._transport.send(group)
                else:
                    assert self._files is not None  # only then are ranges named
                    wanted, following = min(len(part) - offset, _MAX_FILE_BYTES), first + 1
                    if not part.is_cached(offset, wanted):
                        parts = [*parts[:first], await part.load(), *parts[following:]]
                        continue
                    sent = self._files.send(part, offset, wanted)
            except BlockingIOError:
                if self._stalled_since is None:
                    self._stalled_since = trio.current_time()
                await self._transport.wait_writable()
                continue
            except StorageError as error:
                raise CloseConnectionError(f"what it asked for is no longer there: {error}") from None
            self._has_moved = True
            self._stalled_since = None
            held_bytes += sent
            if sent < wanted:
                self._stalled_since = trio.current_time()
                await self._transport.wait_writable()
                held_bytes = 0
            elif held_bytes >= _HELD_BYTES and (following < count or offset + sent < len(part)):
                await trio.lowlevel.checkpoint()
                held_bytes = 0
            sent += offset
            while first < count and sent >= len(parts[first]):
                sent -= len(parts[first])
                first += 1
            offset = sent


def _rest_of(views: Sequence[Buffer], sent_bytes: int) -> Sequence[Buffer]:
    """The rest of the views after so many bytes have been sent."""
    rest = []
    for view in views:
        if sent_bytes < len(view):
            rest.append(memoryview(view)[sent_bytes:])
        sent_bytes = max(0, sent_bytes - len(view))
    return rest


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
