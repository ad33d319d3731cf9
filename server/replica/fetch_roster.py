"""What a fetcher asks for: which of its partitions are due, which rest after a failure, which are to be forgotten."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Generic, Protocol, TypeVar

import trio

from ottla.server.replica.leader_session import Key


class Fetched(Protocol):
    """A partition as one fetcher follows it. Another object of the same key takes its place."""

    rests_until: float

    @property
    def key(self) -> Key:
        """How the other side names it."""


F = TypeVar("F", bound=Fetched)


class FetchRoster(Generic[F]):
    """The partitions of one fetcher. Calls about one that is no longer among them change nothing."""

    def __init__(self) -> None:
        self._all: dict[Key, F] = {}
        #: Of which something is new to the other side, and which it is to forget.
        self._due: dict[Key, F] = {}
        self._gone: set[Key] = set()
        self._resting: dict[Key, F] = {}
        self._news = trio.Event()

    def __len__(self) -> int:
        return len(self._all)

    def get(self, key: Key) -> F | None:
        return self._all.get(key)

    def __iter__(self) -> Iterator[Key]:
        return iter(list(self._all))

    def holds(self, one: F) -> bool:
        """Whether it is still fetched, and not another object in its place."""
        return self._all.get(one.key) is one

    def put(self, one: F) -> None:
        """Fetch it from now on, in place of what has its key."""
        self._all[one.key] = self._due[one.key] = one
        self._resting.pop(one.key, None)
        self._gone.discard(one.key)
        self._news.set()

    def remove(self, key: Key) -> None:
        """Fetch it no longer."""
        if self._all.pop(key, None) is not None:
            self._due.pop(key, None)
            self._resting.pop(key, None)
            self._gone.add(key)

    def is_due(self, one: F) -> None:
        """Something about it is new, so the next request names it."""
        if self.holds(one):
            self._due[one.key] = one

    def rest(self, one: F, until: float) -> None:
        """Leave it alone until that time."""
        if self.holds(one):
            one.rests_until = until
            self._due.pop(one.key, None)
            self._resting[one.key] = one
            self._gone.add(one.key)

    def begin(self) -> None:
        """The other side knows nothing yet: all that do not rest are due."""
        self._due |= {key: one for key, one in self._all.items() if key not in self._resting}

    def wake_rested(self) -> None:
        """Make those due whose rest is over."""
        now = trio.current_time()
        for key, one in list(self._resting.items()):
            if one.rests_until <= now:
                del self._resting[key]
                self._due[key] = one
                self._gone.discard(key)

    @property
    def rest_ends(self) -> float:
        """When the first one's rest is over; infinity if none rests."""
        return min((one.rests_until for one in self._resting.values()), default=math.inf)

    @property
    def all_rest(self) -> bool:
        """Whether there is nothing to ask for now."""
        return len(self._resting) == len(self._all)

    async def wait(self, until: float = math.inf) -> None:
        """Wait for a partition to be put in, at most until that time."""
        with trio.move_on_at(until):
            await self._news.wait()
        self._news = trio.Event()

    def due(self) -> list[F]:
        """Those that the next request is to name, as far as is known."""
        return list(self._due.values())

    def take_due(self) -> list[F]:
        """Those that the next request names."""
        due, self._due = self._due, {}
        return list(due.values())

    def take_gone(self, named: Collection[Key]) -> set[Key]:
        """Those that it tells the other side to forget; none of those that it names."""
        gone, self._gone = self._gone.difference(named), set()
        return gone
