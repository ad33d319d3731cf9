"""Long work on the event loop in slices of time, so that it holds up nobody: the one clock that decides it.

A coroutine awaits `maybe_yield` before each element. What may not await, such as a generator of steps, looks at
`is_over`, lets its caller run others, and calls `renew`.

To look at the clock takes a tenth of a microsecond. What takes less than a microsecond an element, or is cheaper for
several at once, is gone through in `chunks`, with a look between them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import Final, TypeVar

import trio

T = TypeVar("T")

SLICE_SECONDS: Final = 200e-6
#: Elements between two looks at the clock. If one takes three microseconds they take half a slice, which is the most.
CHUNK_ELEMENTS: Final = 32


class TimeSlice:
    """Lets others run when a slice of time is used up."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether `maybe_yield` would let others run now."""
        return perf_counter() - self._began > SLICE_SECONDS

    def renew(self) -> None:
        """Others have run: a new slice begins."""
        self._began = perf_counter()

    async def maybe_yield(self) -> None:
        """Call between steps of well under a tenth of a millisecond."""
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self.renew()


def chunks(items: Iterable[T]) -> Iterator[list[T]]:
    """The items, as many at a time as may be gone through without a look at the clock."""
    left = iter(items)
    while some := list(islice(left, CHUNK_ELEMENTS)):
        yield some
