"""Long work on the event loop in steps, so that it holds up nobody."""

from __future__ import annotations

from time import perf_counter
from typing import Final

import trio

SLICE_SECONDS: Final = 200e-6


class TimeSlice:
    """Lets others run when a slice of time is used up."""

    __slots__ = ("_began",)

    def __init__(self) -> None:
        self._began = perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether `maybe_yield` would let others run now."""
        return perf_counter() - self._began > SLICE_SECONDS

    async def maybe_yield(self) -> None:
        """Call between steps of well under a tenth of a millisecond."""
        if self.is_over:
            await trio.lowlevel.checkpoint()
            self._began = perf_counter()
