"""How many appends come at a time: whether it is better to write each for itself, or several in one block."""

from __future__ import annotations

from typing import Final

__all__ = ["AppendCrowd"]

# From this many appends per block on, sharing blocks costs less than writing each append for itself.
_MIN_CROWD: Final = 4
# This many appends are written for themselves before one goes to the write loop, to see how many would share its block.
_PROBE_INTERVAL: Final = 64


class AppendCrowd:
    """Counts the appends that share a store's blocks.

    A lone append is done soonest when it is written in its own turn of the event loop. Of many that come together each
    would pay for a block of its own; they gather while the write loop is on its way. Which of the two is better is
    judged by the last blocks alone, so that equal histories are written equally.
    """

    __slots__ = ("_joined", "alone_left")

    def __init__(self) -> None:
        self._joined = 0
        #: How many appends are written for themselves before one should wait for others.
        self.alone_left = _PROBE_INTERVAL

    def join(self) -> None:
        """An append has joined the next block."""
        self._joined += 1

    def written_alone(self) -> None:
        """The next block was a single append, written at once."""
        self._joined = 0
        self.alone_left -= 1

    def swapped(self) -> None:
        """The write loop takes the next block."""
        if self._joined < _MIN_CROWD:
            self.alone_left = _PROBE_INTERVAL
        self._joined = 0
