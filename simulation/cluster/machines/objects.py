"""One process's way to the object store that all share: slow, failing, doing things twice, losing answers, stale."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TypeVar

import trio

from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.object_store import PAGE_OBJECTS, Content, ObjectInfo, ObjectStore, StoredObject
from ottla.tiers.stores.memory_store import MemoryObjectStore

__all__ = ["ObjectStoreLink", "new_object_store"]

T = TypeVar("T")

_STALE_S = 2.0
"""For how long a listing may lack what was written."""


def new_object_store() -> MemoryObjectStore:
    """An empty store, whose clock is right."""
    return MemoryObjectStore(lambda: 1_700_000_000_000 + int(trio.current_time() * 1000))


class ObjectStoreLink(ObjectStore):
    """Its own random numbers decide what becomes of each request. `is_well` says whether nothing is wrong any more.

    An object that is read is always the newest, as all object stores promise. Listings may lack what is new.
    """

    def __init__(self, shared: MemoryObjectStore, rng: Random, is_well: Callable[[], bool]) -> None:
        self._shared = shared
        self._rng = rng
        self._is_well = is_well
        self._latency_s = rng.choice((0.001, 0.02, 0.2))
        self._failing = rng.choice((0.0, 0.05, 0.3))
        #: While it is away nobody is answered.
        self._away_from_s = trio.current_time() + rng.choice((0.0, 2.0, 5.0, 100.0))
        self._away_until_s = self._away_from_s + rng.choice((1.0, 4.0))

    async def get(self, name: str) -> StoredObject:
        return await self._ask(lambda: self._shared.get(name))

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        return await self._ask(lambda: self._shared.get_if_changed(name, version))

    async def get_range(self, name: str, start: int, length: int) -> Content:
        found = await self._ask(lambda: self._shared.get_range(name, start, length))
        if not self._is_well() and found and self._rng.random() < self._failing:
            # Cut off, or not what was written.
            if self._rng.random() < 0.5:
                return found[: len(found) // 2]
            spoilt = bytearray(found)
            spoilt[self._rng.randrange(len(spoilt))] ^= 1 << self._rng.randrange(8)
            return bytes(spoilt)
        return found

    async def put(self, name: str, content: bytes) -> None:
        await self._ask(lambda: self._shared.put(name, content))

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        return await self._ask(lambda: self._shared.put_if(name, content, version), may_be_repeated=True)

    async def delete(self, names: Sequence[str]) -> None:
        await self._ask(lambda: self._shared.delete(names))

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        found = await self._ask(lambda: self._shared.find(prefix, after))
        if self._is_well() or len(found) == PAGE_OBJECTS or self._rng.random() < 0.7:
            return found
        known_ms = 1_700_000_000_000 + int((trio.current_time() - _STALE_S) * 1000)
        return [info for info in found if info.modified_ms <= known_ms]

    async def modified_ms(self, name: str) -> int:
        return await self._ask(lambda: self._shared.modified_ms(name))

    async def _ask(self, do: Callable[[], Awaitable[T]], *, may_be_repeated: bool = False) -> T:
        rng = self._rng
        await trio.sleep(rng.uniform(0, self._latency_s))
        if self._is_well():
            return await do()
        if self._away_from_s <= trio.current_time() < self._away_until_s or rng.random() < self._failing:
            # The request is lost, or its answer.
            if rng.random() < 0.5:
                await do()
            await trio.sleep(rng.uniform(0, self._latency_s))
            raise ObjectStoreUnavailableError("503 Slow Down")
        found = await do()
        if may_be_repeated and rng.random() < self._failing:
            # A library that tries again by itself: the second attempt is refused, as the first was made.
            return await do()
        await trio.sleep(rng.uniform(0, self._latency_s))
        return found
