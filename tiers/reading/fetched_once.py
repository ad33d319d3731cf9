"""Fetches each thing once for all tasks that ask for it at a time, and keeps it for later ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

import trio

from ottla.tiers.errors import ObjectStoreUnavailableError, TierError

__all__ = ["FetchedOnce"]

K = TypeVar("K")
T = TypeVar("T")


class _Pending(Generic[T]):
    """A fetch under way, for all tasks that wait for it."""

    __slots__ = ("error", "is_over", "result")

    def __init__(self) -> None:
        self.is_over = trio.Event()
        self.result: T | None = None
        self.error: TierError | None = None

    def failure(self) -> Exception:
        """The exception for one waiting task: a new object for each, because it collects the frames that it passes."""
        if self.error is None:
            return ObjectStoreUnavailableError("the node stops: nothing more is read from the object store")
        return type(self.error)(*self.error.args)

    async def fill(self, fetch: Callable[[], Awaitable[T]]) -> None:
        try:
            self.result = await fetch()
        except TierError as error:
            self.error = error.with_traceback(None)
        finally:
            self.is_over.set()


class FetchedOnce(Generic[K, T]):
    """Fetches each thing once, however many ask for it at a time, and keeps those that were asked for last."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[K, T] = OrderedDict()
        self._pending: dict[K, _Pending[T]] = {}

    def __contains__(self, key: K) -> bool:
        return key in self._kept or key in self._pending

    async def get(
        self,
        key: K,
        fetch: Callable[[], Awaitable[T]],
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
    ) -> T:
        """The thing; it is fetched in a task that goes on if the first caller is cancelled."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        pending = self._pending.get(key)
        if pending is None:
            pending = _Pending()

            async def fill(own: _Pending[T] = pending) -> None:
                try:
                    await own.fill(fetch)
                finally:
                    del self._pending[key]
                    if own.result is not None:
                        self._keep(key, own.result)

            spawn(fill)
            self._pending[key] = pending
        await pending.is_over.wait()
        if pending.result is None:
            raise pending.failure()
        return pending.result

    def let_go_first(self, key: K) -> None:
        """No further call is expected: make it the first to be dropped."""
        if key in self._kept:
            self._kept.move_to_end(key, last=False)

    def _keep(self, key: K, result: T) -> None:
        self._kept[key] = result
        while len(self._kept) > self._capacity:
            self._kept.popitem(last=False)
