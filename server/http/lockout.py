"""Pauses that grow with every wrong password, for the address that guesses and for the user it guesses at."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

_MAX_KEYS: Final = 10_000
#: What is not tried for so long is forgotten.
_FORGOTTEN_SECONDS: Final = 3600.0


class Limit(NamedTuple):
    """How many attempts are free, and the longest pause behind one of those that follow."""

    free: int
    longest_seconds: float


#: Of one address; behind it may be many people.
ADDRESS: Final = Limit(10, 900.0)
#: Of one user: a stranger who guesses must not keep the user out for long.
USER: Final = Limit(5, 30.0)

Key = tuple[Limit, str]


class LockedOutError(Exception):
    """Nothing is looked at before `seconds` have passed."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"Too many attempts: wait {max(1, round(seconds))} s.")
        self.seconds = seconds


class _Attempts(NamedTuple):
    tries: int
    last: float

    def locked_until(self, limit: Limit) -> float:
        beyond = self.tries - limit.free
        return self.last + min(2.0 ** min(beyond, 20), limit.longest_seconds) if beyond >= 0 else 0.0


class Lockout:
    """Counts attempts by address and by user; at most a limited number of them is remembered, the latest.

    An attempt counts as failed from when it begins, so that many at once get no further than one after the other.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._attempts: dict[Key, _Attempts] = {}

    def begin(self, keys: Iterable[Key]) -> None:
        """Raises LockedOutError while one of them has to wait."""
        keys = tuple(keys)
        now = self._clock()
        self._forget(now)
        left = max((self._attempts[key].locked_until(key[0]) - now for key in keys if key in self._attempts), default=0)
        if left > 0:
            raise LockedOutError(left)
        for key in keys:
            before = self._attempts.pop(key, None)
            if len(self._attempts) >= _MAX_KEYS:
                del self._attempts[next(iter(self._attempts))]
            self._attempts[key] = _Attempts(1 if before is None else before.tries + 1, now)

    def succeeded(self, keys: Iterable[Key]) -> None:
        """The password was right: nothing is held against them."""
        for key in keys:
            self._attempts.pop(key, None)

    def _forget(self, now: float) -> None:
        while self._attempts:
            oldest = next(iter(self._attempts))
            if self._attempts[oldest].last > now - _FORGOTTEN_SECONDS:
                return
            del self._attempts[oldest]
