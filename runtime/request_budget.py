"""The memory for requests: what frames hold from their first bytes until they are answered, and what is parsed of them.

It has three shares. Small frames, which are nearly all, have a quarter of their own, so that large ones cannot keep
them out; another quarter is for what was parsed of requests with many elements. Large frames have the rest, and reserve
memory piece by piece as they are received, so that a length alone costs nothing. When that is used up, they wait. If
only frames that wait themselves hold it, the one that was begun first goes on, so that no two can wait for each other
forever: the share is exceeded by one frame at most.

A frame that is begun has to come: `cut_slow` ends the connections of those that take too long, and sooner if others
wait for their memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.runtime.fair_limiter import FairLimiter
from ottla.runtime.memory_budget import MemoryBudget

if TYPE_CHECKING:
    from collections.abc import Iterable

#: One divided by this is a share's part of the whole.
_PART: Final = 4

#: A frame that has begun has this long to arrive completely, and longer if it keeps up the speed.
_GRACE_SECONDS: Final = 30.0
_LEAST_BYTES_PER_SECOND: Final = 16 * 1024
#: The same while others wait for the memory that it holds.
_PRESSED_GRACE_SECONDS: Final = 1.0
_PRESSED_LEAST_BYTES_PER_SECOND: Final = 1024 * 1024


#: A large answer takes half a millisecond to read and to send.
_LARGE_ANSWERS_A_ROUND: Final = 4


class UnfinishedFrame(Protocol):
    """A frame of which a part has arrived, and whose rest is awaited."""

    @property
    def is_large(self) -> bool: ...

    @property
    def arrived_bytes(self) -> int: ...

    def receiving_seconds(self, now: float) -> float:
        """How long its peer has kept us waiting, without the waits for memory."""
        ...

    def cut(self, reason: str) -> None:
        """End its connection."""
        ...


class Claim:
    """The place of a large frame in the order in which they were begun."""

    __slots__ = ("reserved_bytes", "wait")

    def __init__(self) -> None:
        self.reserved_bytes = 0
        #: Set while it waits for memory: ends that wait when it may go on without.
        self.wait: trio.CancelScope | None = None


class LargeShare(MemoryBudget):
    """The share of large frames."""

    __slots__ = ("_claims", "_unfinished_bytes")

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(limit_bytes)
        self._claims: dict[Claim, None] = {}
        self._unfinished_bytes = 0

    def claim(self) -> Claim:
        """Take a place for a frame."""
        claim = Claim()
        self._claims[claim] = None
        return claim

    async def reserve_for(self, claim: Claim, size_bytes: int) -> None:
        """Wait for this much memory, then charge it. A cancelled wait has charged nothing."""
        if not self.has_room and not self._may_exceed(claim):
            with trio.CancelScope() as claim.wait:
                try:
                    await self.wait_available()
                finally:
                    claim.wait = None
        self.charge(size_bytes)
        claim.reserved_bytes += size_bytes
        self._unfinished_bytes += size_bytes

    def give_back(self, claim: Claim, size_bytes: int) -> None:
        """Give back reserved memory that is not filled."""
        claim.reserved_bytes -= size_bytes
        self._unfinished_bytes -= size_bytes
        self.refund(size_bytes)

    def end(self, claim: Claim) -> None:
        """The frame is complete, or given up; what it has reserved stays charged until it is refunded."""
        self._unfinished_bytes -= claim.reserved_bytes
        del self._claims[claim]
        self._let_first_go_on()

    def refund(self, size_bytes: int) -> None:
        super().refund(size_bytes)
        if self._claims:
            self._let_first_go_on()

    def _may_exceed(self, claim: Claim) -> bool:
        """Whether waiting would be in vain: it is the first, and nothing but frames under way holds memory."""
        return self.used_bytes <= self._unfinished_bytes and next(iter(self._claims)) is claim

    def _let_first_go_on(self) -> None:
        first = next(iter(self._claims), None)
        if first is not None and first.wait is not None and self._may_exceed(first):
            first.wait.cancel()


class RequestBudget:
    """The memory that a node may hold for requests under way."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: Of frames that fit into shared fragments.
        self.small = MemoryBudget(limit_bytes // _PART)
        #: Of what was parsed of requests with many elements.
        self.parsed = MemoryBudget(limit_bytes // _PART)
        #: Of all other frames.
        self.large = LargeShare(limit_bytes - 2 * (limit_bytes // _PART))
        #: The frames whose rest is awaited.
        self.unfinished: set[UnfinishedFrame] = set()
        #: For connections that have more requests here already, after a large answer.
        self.turns = FairLimiter(_LARGE_ANSWERS_A_ROUND)

    @property
    def used_bytes(self) -> int:
        """The bytes charged now; they can exceed the limit by the requests that crossed it."""
        return self.small.used_bytes + self.parsed.used_bytes + self.large.used_bytes

    @property
    def waiting(self) -> int:
        """How many tasks wait for room."""
        return self.small.waiting + self.parsed.waiting + self.large.waiting

    def cut_slow(self, now: float) -> None:
        """End the connections whose frames take too long. Called now and then."""
        for frame in _too_slow(list(self.unfinished), now, self):
            share = self.large if frame.is_large else self.small
            hint = ", and others wait for its memory (ottla.memory.budget.bytes)" if share.waiting else ""
            seconds = frame.receiving_seconds(now)
            frame.cut(f"{frame.arrived_bytes} bytes of a request came in {seconds:.0f} s, but not its end{hint}")


def _too_slow(frames: Iterable[UnfinishedFrame], now: float, budget: RequestBudget) -> Iterable[UnfinishedFrame]:
    for frame in frames:
        grace, least = _GRACE_SECONDS, _LEAST_BYTES_PER_SECOND
        if (budget.large if frame.is_large else budget.small).waiting:
            grace, least = _PRESSED_GRACE_SECONDS, _PRESSED_LEAST_BYTES_PER_SECOND
        beyond = frame.receiving_seconds(now) - grace
        if beyond > 0 and frame.arrived_bytes < beyond * least:
            yield frame
