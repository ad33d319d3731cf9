"""Pauses between attempts that fail."""

from __future__ import annotations

import random
from typing import Final

import trio

JITTER: Final = 0.2
_MAX_DOUBLINGS: Final = 30
"""No maximum here is further from its first pause."""


class Backoff:
    """A pause after each failure: twice as long as the one before, up to a maximum.

    Each is up to a fifth shorter or longer, and never longer than the maximum: many who failed at one moment do not all
    try again at one moment. Kafka's counterpart is ExponentialBackoff, with its multiplier 2 and its jitter 0.2.
    """

    __slots__ = ("_first_seconds", "_max_seconds", "failures")

    def __init__(self, first_seconds: float, max_seconds: float) -> None:
        self._first_seconds = first_seconds
        self._max_seconds = max_seconds
        #: How many attempts have failed since one succeeded.
        self.failures = 0

    def fail(self) -> float:
        """Count a failure; returns the seconds until the next attempt."""
        seconds = pause_seconds(self.failures, self._first_seconds, self._max_seconds)
        self.failures += 1
        return seconds

    def reset(self) -> None:
        """An attempt succeeded: the next pause is the first one again."""
        self.failures = 0

    async def wait(self) -> None:
        """Count a failure, and return when the next attempt is due."""
        await trio.sleep(self.fail())


def pause_seconds(failures: int, first_seconds: float, max_seconds: float) -> float:
    """The pause after one more failure than `failures`; for what keeps the count itself."""
    doubled = first_seconds * (1 << min(failures, _MAX_DOUBLINGS))
    return min(max_seconds, doubled * random.uniform(1 - JITTER, 1 + JITTER))
