"""A turn of the event loop that needs no task to end it, for what is tried without storage."""

import trio

from ottla.storage.turn import Turn

__all__ = ["SoonEnded"]


class SoonEnded(Turn):
    """Ends in the turn after the one in which it has begun, whatever is cancelled meanwhile."""

    __slots__ = ()

    def _wake(self) -> None:
        trio.lowlevel.current_trio_token().run_sync_soon(self.end)
