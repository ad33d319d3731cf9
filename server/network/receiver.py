"""Bytes of a connection into whole requests, each contiguous in pooled memory and never copied once it is there.

Small requests that arrive together share a fragment. One that does not fit in the rest of it gets a buffer of its own
tier, and its body is received straight into that; only what had already arrived of it is moved.

Memory follows the bytes that came, not those that were promised: buffers of the large tiers are lazily committed, and
large frames reserve memory piece by piece. While there is none nothing is received (`request_budget`).
"""

import socket
from collections.abc import Callable
from struct import Struct
from typing import Final

import trio

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import FrameError
from ottla.kproto.framing import PREFIX_SIZE, frame_size
from ottla.runtime.errors import CloseConnectionError
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.request_budget import Claim, RequestBudget
from ottla.server.network.transport import Transport
from ottla.storage.memory.buffer_pool import SMALL_SIZES, BufferPool
from ottla.storage.memory.iobuf import Fragment

_LENGTH_AND_API = Struct(">ihh")

_PRODUCE: Final = int(ApiKey.PRODUCE)
_MIN_SHARED_BYTES: Final = SMALL_SIZES[0]
_MAX_SHARED_BYTES: Final = 64 * 1024
# This many small frames of a burst are taken in one turn of the event loop.
_MAX_TAKEN_AT_ONCE: Final = 4
# One receive copies at memory speed: this much stays well under the 500 µs for which the loop may be held.
_MAX_RECEIVE_BYTES: Final = 256 * 1024
# This much of a large frame is received before others run, however quickly its sender goes on.
_MAX_UNBROKEN_BYTES: Final = 512 * 1024


class Frame:
    """One request's bytes without their length prefix. It holds a reference to its fragment until `release`."""

    __slots__ = ("_charged_bytes", "_share", "body", "fragment")

    def __init__(self, body: memoryview, fragment: Fragment, share: MemoryBudget, charged_bytes: int) -> None:
        self.body = body
        self.fragment = fragment
        self._share = share
        self._charged_bytes = charged_bytes

    def release(self) -> None:
        """Give the fragment and the budget's share back; called exactly once."""
        self._share.refund(self._charged_bytes)
        self.fragment.release()


class LoneFrame:
    """A request of up to 64 KiB that came by itself: its bytes are copied, and it holds no memory of the pool."""

    __slots__ = ("body",)

    fragment = None

    def __init__(self, body: bytes | bytearray) -> None:
        self.body = body

    def release(self) -> None:
        """Nothing is held."""


class _ChargedLoneFrame(LoneFrame):
    """One that is not small: it counts as long as it is held."""

    __slots__ = ("_share",)

    def __init__(self, body: bytes | bytearray, share: MemoryBudget) -> None:
        super().__init__(body)
        self._share = share
        share.charge(len(body))

    def release(self) -> None:
        """Give the budget's share back; called exactly once."""
        self._share.refund(len(self.body))


class FrameReceiver:
    """The frames of one transport, in order.

    `check_api(api_key, api_version)` is asked before a large frame's body is received, and may raise to refuse it.
    """

    __slots__ = (
        "_begun_at",
        "_budget",
        "_charged",
        "_check_api",
        "_claim",
        "_cut_reason",
        "_end",
        "_expects_more",
        "_fragment",
        "_is_after_large",
        "_is_after_own_buffer",
        "_is_ended",
        "_max_frame_bytes",
        "_needed",
        "_pool",
        "_share",
        "_shared_bytes",
        "_start",
        "_taken_at_once",
        "_transport",
        "_unbroken_bytes",
        "_waited_seconds",
        "_wanted",
        "is_quiet",
    )

    def __init__(
        self,
        transport: Transport,
        pool: BufferPool,
        budget: RequestBudget,
        *,
        max_frame_bytes: int,
        check_api: Callable[[int, int], object],
    ) -> None:
        self._transport = transport
        self._pool = pool
        self._budget = budget
        #: How long a frame may be; it may be changed between two frames.
        self._max_frame_bytes = max_frame_bytes
        self._check_api = check_api
        self._fragment: Fragment | None = None
        self._start = 0  # where the frame under way begins in the fragment
        self._end = 0  # where received bytes end
        self._needed = 0  # where the frame under way will end, once its length is known; else 0
        self._share = budget.small  # what the frame under way is charged to
        self._charged = 0  # of the frame under way
        self._wanted = 0  # how large a buffer the frame under way needs for itself, until it has one
        self._claim: Claim | None = None  # of a large frame under way
        # Of a frame whose peer is waited for: since when, how long of that it waited for memory, why it is given up.
        self._begun_at: float | None = None
        self._waited_seconds = 0.0
        self._cut_reason = ""
        self._shared_bytes = _MIN_SHARED_BYTES
        self._expects_more = False  # whether the last receive suggests that the next would not come back empty
        self._taken_at_once = 0  # frames since the last wait
        self._unbroken_bytes = 0  # of a large frame since others could run
        self._is_after_large = False
        self._is_after_own_buffer = False
        self._is_ended = False
        #: After `next_at_once` returned None: whether there is nothing to do but to wait for a next frame.
        self.is_quiet = True

    def is_settled(self) -> bool:
        """Whether nothing of a next frame has been received; then no buffer is held."""
        if self._is_ended or self._start < self._end:
            return False
        if self._fragment is not None:
            self._go_idle()
        return True

    @property
    def has_more(self) -> bool:
        """Whether bytes have come after the last frame."""
        return self._end > self._start

    def next_at_once(self) -> Frame | LoneFrame | None:
        """The next frame, if it is a small one and here.

        None if it is not: the caller then waits for its rest if `is_quiet`, and otherwise calls `next`. For callers who
        know that something may have arrived. Raises as `next` does.
        """
        self.is_quiet = False
        if self._fragment is None:
            if self._is_ended or not self._share.has_room:
                return None
            self._is_after_large = False
            return self._next_lone()
        if self._is_after_large:
            return None
        if self._start < self._end:
            frame = self._take()
            if frame is not None:
                return frame
        elif not self._expects_more:
            self._go_quiet()
            return None
        return self._receive_at_once()

    def _receive_at_once(self) -> Frame | None:
        while self._fragment is not None and self._claim is None:
            if self._wanted and not self._get_own_buffer_at_once():
                return None
            try:
                count = self._receive()
            except BlockingIOError:
                self._expects_more = False
                self._wait_at_once()
                return None
            if count == 0:
                self._is_ended = True
                return None
            frame = self._take()
            if frame is not None:
                return frame
            if not self._wanted and not self._expects_more:
                self._wait_at_once()
                return None
        return None

    def _wait_at_once(self) -> None:
        """There is nothing to do until more comes, which somebody else waits for."""
        if self._start == self._end:
            self._go_idle()
        else:
            self._begin_waiting()
        self._taken_at_once = 0
        self.is_quiet = True

    def _next_lone(self) -> Frame | LoneFrame | None:
        """A frame of up to 64 KiB that comes by itself, as most do; with anything else, go on as usual."""
        memory = self._pool.scratch
        if self._is_after_own_buffer:
            # Most of what comes would have to be moved once more.
            memory = memory[:_MIN_SHARED_BYTES]
            self._is_after_own_buffer = False
        try:
            count = self._transport.receive_into(memory)
        except BlockingIOError:
            self._expects_more = False
            self.is_quiet = True
            return None
        if count >= _LENGTH_AND_API.size:
            size_bytes, api_key, _ = _LENGTH_AND_API.unpack_from(memory)
            if size_bytes == count - PREFIX_SIZE and size_bytes <= self._max_frame_bytes:
                # Records stay where they are, and are given their offsets there.
                view = memory[PREFIX_SIZE:count]
                body = bytearray(view) if api_key == _PRODUCE else bytes(view)
                return LoneFrame(body) if count < _MIN_SHARED_BYTES else _ChargedLoneFrame(body, self._share)
        elif count == 0:
            self._is_ended = True
            return None
        fragment = self._fragment = self._pool.acquire(max(count, _MIN_SHARED_BYTES))
        fragment.memory[:count] = memory[:count]
        self._start, self._end = 0, count
        self._expects_more = count == memory.nbytes
        if self._expects_more and self._shared_bytes < _MAX_SHARED_BYTES:
            self._shared_bytes *= 2
        frame = self._take()
        return self._receive_at_once() if frame is None else frame

    async def next(self) -> Frame | None:
        """The next frame, or None at the end of the stream. Lets others run before, except a few frames of a burst.

        Raises CloseConnectionError for a length that no request can have, and OSError from the transport.
        """
        frame = await self.arrive()
        if frame is not None:
            await self.take_turn(frame)
        return frame

    async def take_turn(self, frame: Frame) -> None:
        """Let others run before a frame is worked on, except a few frames of a burst."""
        self._taken_at_once += 1
        if self._is_after_large:
            self._is_after_large = False
            turn = self._budget.turns.acquire
        elif self._taken_at_once > _MAX_TAKEN_AT_ONCE or frame.body.nbytes > _MAX_SHARED_BYTES:
            turn = trio.lowlevel.checkpoint
        else:
            return
        self._taken_at_once = 0
        try:
            await turn()
        except BaseException:
            frame.release()
            raise

    async def arrive(self) -> Frame | None:
        """`next` without letting others run before. Cancelled, it has lost nothing: it may be called again."""
        while True:
            if self._is_ended:
                self._release_fragment()
                if self._cut_reason:
                    raise CloseConnectionError(self._cut_reason)
                return None
            frame = self._take()
            if frame is not None:
                return frame
            if self._wanted:
                await self._begin_own_buffer()
            elif self._claim is not None and self._end - self._start - PREFIX_SIZE >= self._charged:
                await self._reserve_piece()
            else:
                await self._wait_for_buffer()
            try:
                count = self._receive()
            except BlockingIOError:
                self._expects_more = False
                if self._start == self._end:
                    self._go_idle()
                else:
                    self._begin_waiting()
                    await self._wait_readable()
                continue
            if count == 0:
                self._is_ended = True

    @property
    def is_large(self) -> bool:
        """Whether the frame under way has a buffer that it shares with no other."""
        return self._claim is not None

    @property
    def arrived_bytes(self) -> int:
        """How much has come of the frame under way."""
        return self._end - self._start

    def receiving_seconds(self, now: float) -> float:
        """For how long the peer has been waited for with the frame under way."""
        return 0.0 if self._begun_at is None else now - self._begun_at - self._waited_seconds

    def limit_frames(self, max_frame_bytes: int) -> int:
        """Refuse frames that are longer from now on; returns the limit up to now."""
        before, self._max_frame_bytes = self._max_frame_bytes, max_frame_bytes
        return before

    def cut(self, reason: str) -> None:
        """End the connection, because of what its peer sent or did not send."""
        self._cut_reason = reason
        self._transport.shut_down(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give back what is held of a frame that will not be completed."""
        self._release_fragment()

    def rest(self) -> None:
        """The last answer was large: where the next frame is here already, let that wait for its turn."""
        self._is_after_large = True

    def _go_idle(self) -> None:
        if self._end < self._shared_bytes // 4 and self._shared_bytes > _MIN_SHARED_BYTES:
            self._shared_bytes //= 2
        self._release_fragment()

    def _go_quiet(self) -> None:
        self._go_idle()
        self.is_quiet = True

    async def _wait_readable(self) -> None:
        self._taken_at_once = self._unbroken_bytes = 0
        self._is_after_large = False
        await self._transport.wait_readable()

    def _begin_waiting(self) -> None:
        """A part of a frame has come: its rest has to come in time, and meanwhile the memory that it holds counts."""
        assert self._fragment is not None
        if self._claim is not None:
            unfilled = self._charged - (self._end - self._start - PREFIX_SIZE)
            self._charged -= unfilled
            self._budget.large.give_back(self._claim, unfilled)
        elif self._begun_at is None:
            self._charge(self._fragment.capacity_bytes - self._charged)
        if self._begun_at is None:
            self._begun_at = trio.current_time()
            self._budget.unfinished.add(self)

    def _end_waiting(self) -> None:
        self._begun_at = None
        self._waited_seconds = 0.0
        self._budget.unfinished.discard(self)

    async def _wait_for_buffer(self) -> None:
        if self._fragment is not None:
            if self._expects_more or self._start < self._end:
                return
            self._go_idle()
        await self._wait_readable()
        if not self._share.has_room:
            await self._share.wait_available()
        self._fragment = self._pool.acquire(self._shared_bytes)
        self._start = self._end = 0

    def _receive(self) -> int:
        assert self._fragment is not None
        memory = self._fragment.memory
        # A large frame's buffer takes that frame alone: what follows would have to be moved out of it again.
        limit = self._needed if self._needed > _MAX_SHARED_BYTES else memory.nbytes
        limit = min(limit, self._end + _MAX_RECEIVE_BYTES)
        if self._claim is not None:
            limit = min(limit, self._start + PREFIX_SIZE + self._charged)
        count = self._transport.receive_into(memory[self._end : limit])
        self._end += count
        self._expects_more = self._end == limit
        if self._needed:
            if self._claim is None:
                self._charge_received(count)
            else:
                self._unbroken_bytes += count
        elif self._end == memory.nbytes and self._shared_bytes < _MAX_SHARED_BYTES:
            self._shared_bytes *= 2
        return count

    def _take(self) -> Frame | None:
        """The frame under way if it is complete; otherwise see to it that it has room to become so."""
        fragment = self._fragment
        if fragment is None:
            return None
        arrived = self._end - self._start
        if not self._needed:
            if arrived < PREFIX_SIZE:
                if arrived == 0 and self._end == fragment.capacity_bytes:
                    self._release_fragment()
                elif fragment.capacity_bytes - self._start < PREFIX_SIZE:
                    self._move(_MIN_SHARED_BYTES)
                return None
            size_bytes = self._frame_size(fragment.memory)
            self._needed = self._start + PREFIX_SIZE + size_bytes
            if self._needed > fragment.capacity_bytes:
                self._wanted = PREFIX_SIZE + size_bytes
                return None
            self._charge_received(arrived - PREFIX_SIZE)
        if self._end < self._needed:
            return None
        return self._complete(fragment)

    def _complete(self, fragment: Fragment) -> Frame:
        body = fragment.memory[self._start + PREFIX_SIZE : self._needed]
        frame = Frame(body, fragment, self._share, self._charged)
        if self._begun_at is not None:
            self._end_waiting()
        if self._claim is not None:
            self._end_claim()
        if self._end > self._needed:
            self._expects_more = True
        self._start = self._needed
        self._needed = self._charged = 0
        if self._start == fragment.capacity_bytes or self._start > _MAX_SHARED_BYTES:
            self._move_rest_away(fragment)
        else:
            fragment.retain()
        return frame

    def _move_rest_away(self, fragment: Fragment) -> None:
        """Leave the fragment to its frame; anything after it (only ever a little) begins a new fragment."""
        rest = fragment.memory[self._start : self._end]
        if rest.nbytes == 0:
            self._fragment = None
            return
        self._fragment = self._pool.acquire(max(rest.nbytes, self._shared_bytes))
        self._fragment.memory[: rest.nbytes] = rest
        self._start, self._end = 0, rest.nbytes

    async def _begin_own_buffer(self) -> None:
        """Get memory for a frame that does not fit into the rest of its fragment."""
        self._check_arrived_api()
        total_bytes = self._wanted
        if self._charged:
            self._share.refund(self._charged)
            self._charged = 0
        if total_bytes > _MAX_SHARED_BYTES:
            self._shared_bytes = _MIN_SHARED_BYTES
            self._is_after_own_buffer = True
            if self._claim is None:  # else it was cancelled below
                self._claim = self._budget.large.claim()
                self._share = self._budget.large
            await self._reserve(min(total_bytes - PREFIX_SIZE, self._piece_bytes()))
        else:
            await self._reserve(total_bytes - PREFIX_SIZE)
        self._wanted = 0
        self._move(max(total_bytes, self._shared_bytes))
        self._needed = total_bytes

    def _check_arrived_api(self) -> None:
        assert self._fragment is not None
        if self._end - self._start >= _LENGTH_AND_API.size:
            _, api_key, api_version = _LENGTH_AND_API.unpack_from(self._fragment.memory, self._start)
            self._check_api(api_key, api_version)

    def _get_own_buffer_at_once(self) -> bool:
        """`_begin_own_buffer`, unless it has to wait; False if it has."""
        total_bytes = self._wanted
        if total_bytes > _MAX_SHARED_BYTES or not self._share.has_room:
            return False
        self._check_arrived_api()
        self._wanted = 0
        if self._charged:
            self._share.refund(self._charged)
        self._charged = total_bytes - PREFIX_SIZE
        self._share.charge(self._charged)
        self._move(max(total_bytes, self._shared_bytes))
        self._needed = total_bytes
        return True

    def _piece_bytes(self) -> int:
        """How much memory a large frame gets next: about as much as it has filled."""
        return min(max(self._end - self._start, _MAX_SHARED_BYTES), _MAX_RECEIVE_BYTES)

    async def _reserve_piece(self) -> None:
        """Wait for memory for the next piece of a large frame, and let others run now and then."""
        await self._reserve(min(self._piece_bytes(), self._needed - self._end))
        if self._unbroken_bytes >= _MAX_UNBROKEN_BYTES:
            self._unbroken_bytes = 0
            await trio.lowlevel.checkpoint()

    async def _reserve(self, size_bytes: int) -> None:
        """Wait for memory for so much more of the frame under way."""
        began = trio.current_time()
        self._budget.unfinished.discard(self)  # it is not the peer that is waited for
        try:
            if self._claim is not None:
                await self._budget.large.reserve_for(self._claim, size_bytes)
            elif self._share.has_room:
                self._share.charge(size_bytes)
            else:
                await self._share.reserve(size_bytes)
            self._charged += size_bytes
        finally:
            if self._begun_at is not None:
                self._waited_seconds += trio.current_time() - began
                self._budget.unfinished.add(self)

    def _move(self, size_bytes: int) -> None:
        """Go on in a new fragment with what has arrived of the frame under way."""
        old = self._fragment
        assert old is not None
        arrived = self._end - self._start
        self._fragment = self._pool.acquire(size_bytes)
        self._fragment.memory[:arrived] = old.memory[self._start : self._end]
        self._start, self._end = 0, arrived
        old.release()

    def _frame_size(self, memory: memoryview) -> int:
        try:
            return frame_size(memory, self._max_frame_bytes, self._start)
        except FrameError as error:
            from ottla.server.network.peer import describe_first_bytes

            peer = describe_first_bytes(memory[self._start : self._start + 4])
            raise CloseConnectionError(peer or f"{error} (socket.request.max.bytes)") from None

    def _charge_received(self, count: int) -> None:
        # What is read beyond this frame belongs to the next ones, which are charged when they begin.
        count = min(count, self._needed - self._start - PREFIX_SIZE - self._charged)
        if count > 0:
            self._charged += count
            self._share.charge(count)

    def _charge(self, count: int) -> None:
        self._charged += count
        self._share.charge(count)

    def _end_claim(self) -> None:
        assert self._claim is not None
        self._budget.large.end(self._claim)
        self._claim = None
        self._share = self._budget.small

    def _release_fragment(self) -> None:
        if self._charged:
            self._share.refund(self._charged)
        if self._begun_at is not None:
            self._end_waiting()
        if self._claim is not None:
            self._end_claim()
        if self._fragment is not None:
            self._fragment.release()
            self._fragment = None
        self._start = self._end = self._needed = self._charged = self._wanted = 0
