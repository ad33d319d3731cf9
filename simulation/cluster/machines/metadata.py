"""One process's way to the metadata store that all share: it takes its time, and can be cut."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import TypeVar

import trio

from ottla.metastore.errors import StoreUnavailableError
from ottla.metastore.memory import MemoryMetadataStore
from ottla.metastore.store import Change, Compare, KeyValue, Listing, Operation, Watch

__all__ = ["StoreLink"]

T = TypeVar("T")


class StoreLink:
    """A `MetadataStore`. While it is cut everything fails, sooner or later; a change under way may have been made."""

    def __init__(self, shared: MemoryMetadataStore, rng: Random) -> None:
        self._shared = shared
        self._rng = rng
        self._is_cut = False
        self._is_dead = False
        self._receiving: dict[trio.CancelScope, None] = {}
        #: Up to how long a request, its answer, and what is watched are under way.
        self.latency_s = self._usual_latency_s = rng.choice((0.001, 0.01))

    def slow_down(self, seconds: float) -> None:
        """Everything takes up to so much longer."""
        self.latency_s = self._usual_latency_s + seconds

    def cut(self) -> None:
        """It cannot be reached."""
        self._is_cut = True
        for scope in list(self._receiving):
            scope.cancel()

    def heal(self) -> None:
        """It can be reached again, unless its process is dead."""
        self._is_cut = self._is_dead
        self.slow_down(0.0)

    def die(self) -> None:
        """Its process is dead: it changes nothing any more."""
        self._is_dead = True
        self.cut()

    async def _ask(self, operation: Callable[[], Awaitable[T]]) -> T:
        await trio.sleep(self._rng.uniform(0, self.latency_s))
        if self._is_cut:
            await self._fail()
        answer = await operation()
        await trio.sleep(self._rng.uniform(0, self.latency_s))
        if self._is_cut:
            await self._fail()
        return answer

    async def _fail(self) -> None:
        if not self._is_dead:
            await trio.sleep(self._rng.choice((0.0, 0.5)))
        raise StoreUnavailableError("The metadata store cannot be reached.")

    async def get(self, key: str) -> KeyValue | None:
        return await self._ask(lambda: self._shared.get(key))

    async def list(self, prefix: str) -> Listing:
        return await self._ask(lambda: self._shared.list(prefix))

    async def commit(self, compares: Sequence[Compare], operations: Sequence[Operation]) -> int | None:
        return await self._ask(lambda: self._shared.commit(compares, operations))

    async def grant_lease(self, ttl_ms: int) -> int:
        return await self._ask(lambda: self._shared.grant_lease(ttl_ms))

    async def keep_alive(self, lease: int) -> None:
        await self._ask(lambda: self._shared.keep_alive(lease))

    async def revoke_lease(self, lease: int) -> None:
        await self._ask(lambda: self._shared.revoke_lease(lease))

    async def close(self) -> None:
        await trio.lowlevel.checkpoint()
        self.cut()

    @asynccontextmanager
    async def watch(self, prefix: str, after_revision: int) -> AsyncIterator[Watch]:
        async with self._shared.watch(prefix, after_revision) as watch:
            yield _Watch(self, watch)

    async def receive(self, watch: Watch) -> Change:
        """The next change, a moment after it was made."""
        if not self._is_cut:
            with trio.CancelScope() as scope:
                self._receiving[scope] = None
                try:
                    change = await watch.receive()
                    await trio.sleep(self._rng.uniform(0, self.latency_s))
                    return change
                finally:
                    del self._receiving[scope]
        raise StoreUnavailableError("The metadata store cannot be reached.")


class _Watch:
    def __init__(self, link: StoreLink, watch: Watch) -> None:
        self._link = link
        self._watch = watch

    async def receive(self) -> Change:
        return await self._link.receive(self._watch)
