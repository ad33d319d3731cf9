"""An object store that must be the one that was used before.

A bucket that was mistyped, or a network folder that is not mounted, has no objects: taken at its word, all that was
copied would be gone, and what is copied from now on would lie where nobody looks later. So the store has a mark, an
object with a random id, and the node has a note of it on its disk.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

import trio

from ottla.tiers.errors import ObjectMissingError, ObjectStoreUnavailableError, PreconditionFailedError
from ottla.tiers.object_store import ABSENT, Content, ObjectInfo, ObjectStore, StoredObject
from ottla.tiers.offload import Offload, in_a_thread

if TYPE_CHECKING:
    from ottla.storage.disk.disk import Disk

__all__ = ["MARK", "MarkedObjectStore"]

logger = logging.getLogger(__name__)

MARK: Final = "store-id"
"""The name of the mark, at the root that the address names."""


T = TypeVar("T")


class MarkedObjectStore(ObjectStore):
    """Believes that an object is not there only of the store whose mark is noted in the file `note`.

    ObjectStoreUnavailableError otherwise. Where nothing is noted the store's mark is, and a store without one gets it.
    """

    def __init__(
        self,
        store: ObjectStore,
        disk: Disk,
        note: str,
        *,
        new_id: Callable[[], str] = lambda: uuid4().hex,
        offload: Offload = in_a_thread,
    ) -> None:
        self._store = store
        self._disk = disk
        self._note = note
        self._new_id = new_id
        self._offload = offload
        # Of two tasks that find no mark at the same time, both would write one.
        self._lock = trio.Lock()

    async def get(self, name: str) -> StoredObject:
        try:
            return await self._store.get(name)
        except ObjectMissingError:
            await self._check()
        # The store may have become the right one after the first answer, and before the check.
        return await self._store.get(name)

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        try:
            return await self._store.get_if_changed(name, version)
        except ObjectMissingError:
            await self._check()
        return await self._store.get_if_changed(name, version)

    async def get_range(self, name: str, start: int, length: int) -> Content:
        return await self._store.get_range(name, start, length)

    async def put(self, name: str, content: bytes) -> None:
        await self._store.put(name, content)

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        return await self._store.put_if(name, content, version)

    async def delete(self, names: Sequence[str]) -> None:
        await self._store.delete(names)

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        found = await self._store.find(prefix, after)
        if found or after:
            return found
        await self._check()
        return await self._store.find(prefix, after)

    async def modified_ms(self, name: str) -> int:
        return await self._store.modified_ms(name)

    async def _check(self) -> None:
        """ObjectStoreUnavailableError unless this is the store that was used before, or the first that is used."""
        async with self._lock:
            noted = await self._on_disk(self._noted)
            found = await self._mark()
            if noted is None:
                if found is None:
                    found = await self._make_mark()
                await self._on_disk(partial(self._disk.write_file_atomic, self._note, found))
                logger.info("the object store with the id %s is used from now on", found.decode(errors="replace"))
            elif found != noted:
                is_what = "is not there" if found is None else f"has the id {found.decode(errors='replace')}"
                raise ObjectStoreUnavailableError(
                    f"this is not the object store that was used before, whose object {MARK!r} has the id "
                    f"{noted.decode(errors='replace')}: here it {is_what}. To use this one, and to give up what is in "
                    f"the other, remove {self._note}"
                )

    async def _on_disk(self, work: Callable[[], T]) -> T:
        try:
            return await self._offload(work)
        except OSError as error:
            raise ObjectStoreUnavailableError(f"nobody knows whether it is the right one: {error}") from error

    def _noted(self) -> bytes | None:
        return self._disk.read_file(self._note) if self._disk.exists(self._note) else None

    async def _mark(self) -> bytes | None:
        try:
            return (await self._store.get(MARK)).content
        except ObjectMissingError:
            return None

    async def _make_mark(self) -> bytes:
        mark = self._new_id().encode()
        try:
            await self._store.put_if(MARK, mark, ABSENT)
        except PreconditionFailedError:
            found = await self._mark()
            if found is None:
                raise ObjectStoreUnavailableError(f"the object {MARK!r} is there and cannot be read") from None
            return found
        return mark
