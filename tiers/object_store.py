"""The interface of an object store, as tiered storage needs it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NamedTuple

__all__ = ["ABSENT", "PAGE_OBJECTS", "Content", "ObjectInfo", "ObjectStore", "StoredObject"]

ABSENT: Final = ""
"""The version of an object that must not exist yet."""

PAGE_OBJECTS: Final = 1000
"""How many objects one listing returns at most."""

Content = bytes | memoryview
"""Bytes as they were received, without a copy."""


class StoredObject(NamedTuple):
    """An object's content, and the store's name for this version of it (an ETag)."""

    content: bytes
    version: str


class ObjectInfo(NamedTuple):
    """An object in a listing. `modified_ms` is by the store's own clock."""

    name: str
    size_bytes: int
    modified_ms: int


class ObjectStore(ABC):
    """Objects by name, below one root. A name is made of letters, digits, `.`, `_`, `-` and `/`.

    Every method waits for the store and may be cancelled; what was asked may be done all the same then. Each raises
    ObjectStoreUnavailableError if the store cannot answer now, and ObjectStoreRefusedError if it never will. What is
    answered is the store's word: readers of content verify its checksum.
    """

    @abstractmethod
    async def get(self, name: str) -> StoredObject:
        """The whole object. ObjectMissingError if there is none."""

    @abstractmethod
    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        """The whole object, None if it still is of this version. ObjectMissingError if there is none."""

    @abstractmethod
    async def get_range(self, name: str, start: int, length: int) -> Content:
        """The bytes from `start` on, `length` of them or as many as there are, perhaps none.

        ObjectMissingError if there is no such object.
        """

    @abstractmethod
    async def put(self, name: str, content: bytes) -> None:
        """Write an object, whatever there was. It is there whole or not at all, and durable on return."""

    @abstractmethod
    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        """Write an object if it still is of this version (`ABSENT`: if there is none); returns the new version.

        PreconditionFailedError if it is another one. After ObjectStoreUnavailableError nobody knows whether it was
        written: the caller reads it.
        """

    @abstractmethod
    async def delete(self, names: Sequence[str]) -> None:
        """Remove objects; those that are not there count as removed."""

    @abstractmethod
    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        """The next objects whose names begin with a path and come after another name. `prefix` ends with a slash, or is
        empty for all objects.

        In the order of names, `PAGE_OBJECTS` at most; none if there are no more.
        """

    @abstractmethod
    async def modified_ms(self, name: str) -> int:
        """When an object was written, by the store's own clock. ObjectMissingError if there is none."""
