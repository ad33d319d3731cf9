"""An object store that fails, lies and is slow, in front of one that does not."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from ottla.tiers.errors import ObjectStoreUnavailableError
from ottla.tiers.object_store import ObjectInfo, ObjectStore, StoredObject


class NodeKilledError(Exception):
    """The node was killed at this request."""


class FaultyObjectStore(ObjectStore):
    """Hands every request on, and does to it what the test says.

    `before` and `after` are called with the request's number, its method and the object's name, and may raise: after
    means that it was done, and the answer is lost. `distort` is what becomes of content that is read.
    """

    def __init__(self, store: ObjectStore) -> None:
        self.store = store
        self.requests: list[tuple[str, str]] = []
        self.before: Callable[[int, str, str], None] = lambda number, method, name: None
        self.after: Callable[[int, str, str], None] = lambda number, method, name: None
        self.distort: Callable[[str, bytes], bytes] = lambda name, content: content
        self.pauses: Callable[[str], float] = lambda name: 0.0
        #: Old answers, by name: what `get` shows instead of what there is.
        self.stale: dict[str, StoredObject] = {}

    def fail_next(self, method: str, times: int = 1, *, is_done: bool = False, name: str = "") -> None:
        """The next requests of this method are not answered; done or not."""
        left = [times]

        def fail(number: int, found: str, at: str) -> None:
            if found == method and name in at and left[0]:
                left[0] -= 1
                raise ObjectStoreUnavailableError("503 Slow Down")

        if is_done:
            self.after = fail
        else:
            self.before = fail

    def kill_at(self, number: int, *, is_done: bool) -> None:
        """The node is killed at this request, before or after it is carried out; nothing is asked from then on."""

        def kill(now: int, method: str, name: str) -> None:
            if now >= number:
                raise NodeKilledError

        if is_done:
            self.after = kill
            self.before = lambda now, method, name: kill(now - 1, method, name)
        else:
            self.before = kill

    async def get(self, name: str) -> StoredObject:
        number = await self._begin("get", name)
        found = self.stale.get(name) or await self.store.get(name)
        self.after(number, "get", name)
        return found._replace(content=self.distort(name, found.content))

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        number = await self._begin("get", name)
        if name in self.stale:
            return self.stale[name]
        found = await self.store.get_if_changed(name, version)
        self.after(number, "get", name)
        return found

    async def get_range(self, name: str, start: int, length: int) -> bytes:
        number = await self._begin("get_range", name)
        found = await self.store.get_range(name, start, length)
        self.after(number, "get_range", name)
        return self.distort(name, bytes(found))

    async def put(self, name: str, content: bytes) -> None:
        number = await self._begin("put", name)
        await self.store.put(name, content)
        self.after(number, "put", name)

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        number = await self._begin("put_if", name)
        found = await self.store.put_if(name, content, version)
        self.after(number, "put_if", name)
        return found

    async def delete(self, names: Sequence[str]) -> None:
        number = await self._begin("delete", names[0] if names else "")
        await self.store.delete(names)
        self.after(number, "delete", names[0] if names else "")

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        number = await self._begin("find", prefix)
        found = await self.store.find(prefix, after)
        self.after(number, "find", prefix)
        return found

    async def modified_ms(self, name: str) -> int:
        number = await self._begin("modified_ms", name)
        found = await self.store.modified_ms(name)
        self.after(number, "modified_ms", name)
        return found

    async def _begin(self, method: str, name: str) -> int:
        self.requests.append((method, name))
        number = len(self.requests)
        await trio.sleep(self.pauses(name))
        self.before(number, method, name)
        return number
