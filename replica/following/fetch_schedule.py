"""What a fetcher asks for: which of its partitions are pending, which back off after a failure, which are to be
forgotten by the other side."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Generic, Protocol, TypeVar

import trio

from ottla.replica.following.leader_session import Key


class Fetched(Protocol):
    """A partition as one fetcher follows it. Another object of the same key takes its place."""

    @property
    def key(self) -> Key:
        """How the other side names it."""


F = TypeVar("F", bound=Fetched)


class FetchSchedule(Generic[F]):
    """The partitions of one fetcher. Calls about one that is no longer among them change nothing."""

    def __init__(self) -> None:
        self._all: dict[Key, F] = {}
        #: Of which something is new to the other side, and which it is to forget.
        self._pending: dict[Key, F] = {}
        self._forgotten: set[Key] = set()
        #: Until when each of them backs off.
        self._backing_off: dict[Key, float] = {}
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
        self._all[one.key] = self._pending[one.key] = one
        self._backing_off.pop(one.key, None)
        self._forgotten.discard(one.key)
        self._news.set()

    def remove(self, key: Key) -> None:
        """Fetch it no longer."""
        if self._all.pop(key, None) is not None:
            self._pending.pop(key, None)
            self._backing_off.pop(key, None)
            self._forgotten.add(key)

    def mark_pending(self, one: F) -> None:
        """Something about it is new, so the next request names it."""
        if self.holds(one):
            self._pending[one.key] = one

    def back_off(self, one: F, until: float) -> None:
        """Ask nothing about it until that time."""
        if self.holds(one):
            self._pending.pop(one.key, None)
            self._backing_off[one.key] = until
            self._forgotten.add(one.key)

    def begin(self) -> None:
        """The other side knows nothing yet: all that do not back off are pending."""
        self._pending |= {key: one for key, one in self._all.items() if key not in self._backing_off}

    def end_backoffs(self) -> None:
        """Make those pending whose backoff is over."""
        now = trio.current_time()
        for key, until in list(self._backing_off.items()):
            if until <= now:
                del self._backing_off[key]
                self._pending[key] = self._all[key]
                self._forgotten.discard(key)

    @property
    def backoff_ends(self) -> float:
        """When the first backoff is over; infinity if there is none."""
        return min(self._backing_off.values(), default=math.inf)

    @property
    def all_back_off(self) -> bool:
        """Whether there is nothing to ask for now."""
        return len(self._backing_off) == len(self._all)

    async def wait(self, until: float = math.inf) -> None:
        """Wait for a partition to be put in, at most until that time."""
        with trio.move_on_at(until):
            await self._news.wait()
        self._news = trio.Event()

    def pending(self) -> list[F]:
        """Those that the next request is to name, as far as is known."""
        return list(self._pending.values())

    def take_pending(self) -> list[F]:
        """Those that the next request names."""
        pending, self._pending = self._pending, {}
        return list(pending.values())

    def take_forgotten(self, named: Collection[Key]) -> set[Key]:
        """Those that it tells the other side to forget; none of those that it names."""
        forgotten, self._forgotten = self._forgotten.difference(named), set()
        return forgotten
