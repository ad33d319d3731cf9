"""An object store whose requests have a timeout, and are repeated after a failure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeVar

import trio

from ottla.runtime.backoff import Backoff
from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.object_store import Content, ObjectInfo, ObjectStore, StoredObject

__all__ = ["PatientObjectStore"]

_FIRST_PAUSE_SECONDS: Final = 0.1
_MAX_PAUSE_SECONDS: Final = 5.0

T = TypeVar("T")


class PatientObjectStore(ObjectStore):
    """Limits each request to `timeout_seconds`, and makes up to `attempts` of them with pauses that grow.

    Only what may be done twice is: a conditional write is tried once, because a second one would not know the first
    one's version. Its caller reads the object, and decides.
    """

    def __init__(self, store: ObjectStore, *, timeout_seconds: float, attempts: int) -> None:
        self._store = store
        self._timeout_seconds = timeout_seconds
        self._attempts = attempts
        #: How many requests have failed, including those that succeeded when they were repeated.
        self.failures = 0

    async def get(self, name: str) -> StoredObject:
        return await self._repeated(lambda: self._store.get(name))

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        return await self._repeated(lambda: self._store.get_if_changed(name, version))

    async def get_range(self, name: str, start: int, length: int) -> Content:
        return await self._repeated(lambda: self._store.get_range(name, start, length))

    async def put(self, name: str, content: bytes) -> None:
        await self._repeated(lambda: self._store.put(name, content))

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        return await self._once(lambda: self._store.put_if(name, content, version))

    async def delete(self, names: Sequence[str]) -> None:
        await self._repeated(lambda: self._store.delete(names))

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        return await self._repeated(lambda: self._store.find(prefix, after))

    async def modified_ms(self, name: str) -> int:
        return await self._repeated(lambda: self._store.modified_ms(name))

    async def _repeated(self, ask: Callable[[], Awaitable[T]]) -> T:
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            try:
                return await self._once(ask)
            except ObjectStoreUnavailableError:
                if backoff.failures + 1 >= self._attempts:
                    raise
            await backoff.wait()

    async def _once(self, ask: Callable[[], Awaitable[T]]) -> T:
        try:
            with trio.fail_after(self._timeout_seconds):
                return await ask()
        except trio.TooSlowError:
            self.failures += 1
            raise ObjectStoreUnavailableError(f"no answer within {self._timeout_seconds:g} seconds") from None
        except ObjectStoreUnavailableError:
            self.failures += 1
            raise
