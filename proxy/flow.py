"""One direction of a connection: bytes in from one side, the same bytes out to the other, cut into frames on the way.

A frame that nobody wants is never held whole: its head is looked at, and the rest is sent on straight from the chunk
into which it was received. A frame that somebody wants is held until it is complete. The sink is always written in the
order in which frames came, and nothing is received while it accepts nothing: a slow side stops reading from the other.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

import trio

from ottla.kproto.errors import DecodeError
from ottla.proxy.errors import EndOfStreamError, RefusedError
from ottla.proxy.memory import CHUNK_BYTES
from ottla.proxy.transport import send_all
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ottla.kproto.types import Buffer
    from ottla.proxy.long_answers import LongFetch
    from ottla.proxy.memory import Chunks, FrameBudget, Held
    from ottla.proxy.transport import Transport

PREFIX_BYTES: Final = 4
_SIZE: Final = struct.Struct(">i")
_FREE_BYTES: Final = 64 * 1024
"""Frames up to this size are held without asking the budget: a connection has one at a time."""
_RESERVE_FACTOR: Final = 4


class Next(Enum):
    """The next step for a frame whose first bytes have arrived."""

    MORE = auto()  # too little of it is here to say
    THROUGH = auto()  # its bytes go on as they are
    WHOLE = auto()  # it is wanted whole, by `handle`
    SETTLE = auto()  # `settle` must be called first


class Flow(ABC):
    """One direction. `run` is its life; subclasses decide about frames."""

    def __init__(
        self,
        source: Transport,
        sink: Transport,
        *,
        chunks: Chunks,
        budget: FrameBudget,
        max_frame_bytes: int,
    ) -> None:
        self._source = source
        self._sink = sink
        self._chunks = chunks
        self._budget = budget
        self._max_frame_bytes = max_frame_bytes
        self.received_bytes = 0
        self._rest = b""  # the first bytes of a frame, too few to decide about it
        self._through = 0  # bytes to come of a frame that goes on as it is
        self._held: Held | None = None  # the large frame under way
        self.long: LongFetch | None = None  # looks through these bytes, if `begin` has set it
        self._life = trio.CancelScope()
        self._is_idle = False  # whether nothing of a frame has come, and one is waited for
        self._stopping = False
        self.is_stopped = False

    @abstractmethod
    def begin(self, view: memoryview, pos: int, end: int, size_bytes: int) -> Next:
        """Decide about the frame of `size_bytes` whose prefix is at `pos`; what has come ends at `end`."""

    @abstractmethod
    async def handle(self, frame: Buffer) -> None:
        """Take the whole frame that `begin` wanted, without its prefix, and send what there is to send."""

    @abstractmethod
    async def settle(self) -> None:
        """Do what must precede the frame; everything before it has been sent."""

    async def run(self) -> None:
        """Forward until the source ends, or until `stop` and the end of the frame under way.

        Raises RefusedError for what cannot be forwarded, EndOfStreamError, and OSError from either side.
        """
        with self._life:
            while not (self._stopping and self.is_between_frames):
                # A long frame: a wake-up for each packet would cost more than forwarding it.
                self._source.expect(self._through)
                self._is_idle = self.is_between_frames
                await self._source.wait_readable()
                if self._is_idle and self._stopping:
                    break  # it may have been cancelled after its wake-up: no wait may follow
                self._is_idle = False
                chunk = self._chunks.take()
                try:
                    if not await self._forward(memoryview(chunk)):
                        return
                finally:
                    self._chunks.give(chunk)
        self.is_stopped = True

    def stop(self) -> None:
        """Receive no frame that has not begun."""
        self._stopping = True
        if self._is_idle:
            self._life.cancel()

    @property
    def is_between_frames(self) -> bool:
        """Whether nothing of a frame is under way."""
        return not self._through and not self._rest

    async def _forward(self, chunk: memoryview) -> bool:
        """Forward what is there to be received; False at the end of the stream."""
        held = len(self._rest)
        chunk[:held] = self._rest
        self._rest = b""
        while True:
            try:
                count = self._source.receive_into(chunk[held:])
            except BlockingIOError:
                self._rest = bytes(chunk[:held])
                return True
            if not count:
                if held or self._through:
                    raise EndOfStreamError
                return False
            self.received_bytes += count
            end = held + count
            start = await self._pass_on(chunk, end)
            held = end - start
            if held == len(chunk):
                raise RefusedError("a header that does not end")
            chunk[:held] = chunk[start:end]
            if end < len(chunk):
                # The socket is empty now: another receive would mostly find nothing.
                self._rest = bytes(chunk[:held])
                return True
            await trio.lowlevel.checkpoint()

    async def _pass_on(self, chunk: memoryview, end: int) -> int:
        """Send on what has come; returns where the first bytes of a frame begin that cannot be decided yet."""
        pos = out = 0
        while pos < end:
            if self._through:
                step = min(self._through, end - pos)
                self._through -= step
                if self.long is not None:
                    await self._look(self.long, chunk[pos : pos + step])
                pos += step
                continue
            if end - pos < PREFIX_BYTES:
                break
            size_bytes = self._size(chunk, pos)
            what = self.begin(chunk, pos, end, size_bytes)
            if what is Next.THROUGH:
                self._through = PREFIX_BYTES + size_bytes
                continue
            if what is Next.MORE:
                break
            if pos > out:
                await self.send([chunk[out:pos]])
                out = pos
            if what is Next.SETTLE:
                await self.settle()
                continue
            stop = pos + PREFIX_BYTES + size_bytes
            await self._take_whole(chunk[pos + PREFIX_BYTES : min(stop, end)], size_bytes)
            pos = out = min(stop, end)
        if pos > out:
            await self.send([chunk[out:pos]])
        await self.settle()
        return pos

    async def _look(self, long: LongFetch, piece: memoryview) -> None:
        """Look through a piece of a frame that goes on; raises DecodeError."""
        time_slice = TimeSlice()
        for _ in long.look(piece):
            await time_slice.maybe_yield()
        if not self._through:
            self.long = None
            if not long.is_done:
                raise DecodeError("the FETCH response is cut off")

    def _size(self, chunk: memoryview, pos: int) -> int:
        size_bytes: int = _SIZE.unpack_from(chunk, pos)[0]
        if not 0 <= size_bytes <= self._max_frame_bytes:
            raise RefusedError(f"a frame of {size_bytes} bytes; at most {self._max_frame_bytes} are allowed")
        return size_bytes

    async def _take_whole(self, begun: memoryview, size_bytes: int) -> None:
        """Hold a frame until all of it is here, and handle it. Its memory grows as it comes."""
        if len(begun) == size_bytes:
            await self.handle(bytes(begun))
            return
        frame = bytearray(begun)
        if size_bytes <= _FREE_BYTES:
            await self._take_rest(frame, size_bytes)
            return
        async with self._budget.hold(size_bytes) as self._held:
            try:
                await self._take_rest(frame, size_bytes)
            finally:
                self._held = None

    async def _take_rest(self, frame: bytearray, size_bytes: int) -> None:
        while len(frame) < size_bytes:
            filled = len(frame)
            frame += bytes(min(size_bytes - filled, max(_RESERVE_FACTOR * filled, _FREE_BYTES)))
            await self._fill(memoryview(frame)[filled:])
        await self.handle(frame)

    async def send(self, parts: Sequence[Buffer]) -> None:
        """Send everything on to the other side."""
        await send_all(self._sink, parts, None if self._held is None else self._held.moved)

    async def _fill(self, room: memoryview) -> None:
        while room:
            try:
                count = self._source.receive_into(room[:CHUNK_BYTES])
            except BlockingIOError:
                self._source.expect(0)  # whether a frame that is held moves is looked at more often
                await self._source.wait_readable()
                continue
            if not count:
                raise EndOfStreamError
            self.received_bytes += count
            if self._held is not None:
                self._held.moved()
            room = room[count:]
            if room:
                await trio.lowlevel.checkpoint()
