"""An object store in memory, for tests and simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import trio

from ottla.tiers.errors import ObjectMissingError, PreconditionFailedError
from ottla.tiers.object_store import ABSENT, PAGE_OBJECTS, Content, ObjectInfo, ObjectStore, StoredObject


class MemoryObjectStore(ObjectStore):
    """Keeps objects in a dictionary. `time_ms` is its clock."""

    def __init__(self, time_ms: Callable[[], int]) -> None:
        self._time_ms = time_ms
        self._objects: dict[str, tuple[bytes, str, int]] = {}
        self._writes = 0

    @property
    def names(self) -> list[str]:
        """The names of all objects."""
        return sorted(self._objects)

    async def get(self, name: str) -> StoredObject:
        await trio.lowlevel.checkpoint()
        content, version, _ = self._find(name)
        return StoredObject(content, version)

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        found = await self.get(name)
        return None if found.version == version else found

    async def get_range(self, name: str, start: int, length: int) -> Content:
        await trio.lowlevel.checkpoint()
        return self._find(name)[0][start : start + length]

    async def put(self, name: str, content: bytes) -> None:
        await trio.lowlevel.checkpoint()
        self._write(name, content)

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        await trio.lowlevel.checkpoint()
        found = self._objects.get(name)
        if version != (ABSENT if found is None else found[1]):
            raise PreconditionFailedError(f"{name} is not of version {version!r}")
        return self._write(name, bytes(content))

    async def delete(self, names: Sequence[str]) -> None:
        await trio.lowlevel.checkpoint()
        for name in names:
            self._objects.pop(name, None)

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        await trio.lowlevel.checkpoint()
        names = [name for name in self.names if name.startswith(prefix) and name > after]
        found = [(name, self._objects[name]) for name in names[:PAGE_OBJECTS]]
        return [ObjectInfo(name, len(content), modified_ms) for name, (content, _, modified_ms) in found]

    async def modified_ms(self, name: str) -> int:
        await trio.lowlevel.checkpoint()
        return self._find(name)[2]

    def _find(self, name: str) -> tuple[bytes, str, int]:
        found = self._objects.get(name)
        if found is None:
            raise ObjectMissingError(f"there is no object {name}")
        return found

    def _write(self, name: str, content: bytes) -> str:
        self._writes += 1
        version = str(self._writes)
        self._objects[name] = (content, version, self._time_ms())
        return version
