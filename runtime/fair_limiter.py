"""A fair limiter for tasks that would each take a large piece of every round of the event loop."""

from __future__ import annotations

import trio


class FairLimiter:
    """Lets a few tasks through in each round of the event loop, in the order in which they come.

    It is for tasks that would go on at once with as much work as they have just done: a hundred of them are a hundred
    pieces of work in each round, and all others wait several rounds for an answer.
    """

    __slots__ = ("_places",)

    def __init__(self, at_once: int) -> None:
        self._places = trio.Semaphore(at_once)

    async def acquire(self) -> None:
        """Wait for the turn, which is in the next round at the earliest."""
        async with self._places:
            await trio.lowlevel.checkpoint()
