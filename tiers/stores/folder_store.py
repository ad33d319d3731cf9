"""An object store in a folder (`file:///path`): a disk of its own, or a network file system that several nodes mount.

Conditional writes hold an exclusive lock on a file beside the objects, so they are safe between the processes that the
file system's locks reach. Everything else is one rename of a file that was synced.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Final, TypeVar
from uuid import uuid4

import trio

from ottla.kproto.records.crc import value as crc_of
from ottla.tiers.errors import (
    ObjectMissingError,
    ObjectStoreRefusedError,
    ObjectStoreUnavailableError,
    PreconditionFailedError,
)
from ottla.tiers.object_store import ABSENT, PAGE_OBJECTS, Content, ObjectInfo, ObjectStore, StoredObject

_LOCK_NAME: Final = ".lock"
_UNFINISHED_FOLDER: Final = ".unfinished"
_THREADS: Final = 8
_HASHED_BYTES: Final = 65_536
_NOT_ALLOWED: Final = (PermissionError, IsADirectoryError, NotADirectoryError)

T = TypeVar("T")


class FolderObjectStore(ObjectStore):
    """Objects are files below `folder`, which must exist: a disk that is not mounted is no empty store.

    The version of an object is what its content tells of itself (`_version`): a manifest never has the same content
    twice.
    """

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self._limiter = trio.CapacityLimiter(_THREADS)

    async def get(self, name: str) -> StoredObject:
        return await self._run(lambda: _read(self._path(name)))

    async def get_if_changed(self, name: str, version: str) -> StoredObject | None:
        found = await self.get(name)
        return None if found.version == version else found

    async def get_range(self, name: str, start: int, length: int) -> Content:
        return await self._run(lambda: _read_range(self._path(name), start, length))

    async def put(self, name: str, content: bytes) -> None:
        await self._run(lambda: self._write(name, content))

    async def put_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        return await self._run(lambda: self._write_if(name, content, version))

    async def delete(self, names: Sequence[str]) -> None:
        await self._run(lambda: self._remove(names))

    async def find(self, prefix: str, after: str = "") -> Sequence[ObjectInfo]:
        return await self._run(lambda: self._page(prefix, after))

    async def modified_ms(self, name: str) -> int:
        return await self._run(lambda: _modified_ms(self._path(name).stat()))

    # In a worker thread.

    async def _run(self, work: Callable[[], T]) -> T:
        try:
            return await trio.to_thread.run_sync(work, limiter=self._limiter, abandon_on_cancel=True)
        except FileNotFoundError as error:
            raise ObjectMissingError(f"there is no object {error.filename}") from error
        except _NOT_ALLOWED as error:
            raise ObjectStoreRefusedError(str(error)) from error
        except OSError as error:
            raise ObjectStoreUnavailableError(str(error)) from error

    def _path(self, name: str) -> Path:
        if not name or any(part in ("", ".", "..") or part.startswith(".") for part in name.split("/")):
            raise ObjectStoreRefusedError(f"{name!r} is no name of an object")
        return self._folder / name

    def _write(self, name: str, content: bytes | bytearray) -> None:
        path = self._path(name)
        with self._unfinished(content) as unfinished:
            _finish(unfinished, path)

    def _write_if(self, name: str, content: bytes | bytearray, version: str) -> str:
        path = self._path(name)
        # Others wait for the lock as long as the object takes to get its name, and not while it is written.
        with self._unfinished(content) as unfinished, self._locked():
            try:
                present = _read(path).version
            except FileNotFoundError:
                present = ABSENT
            if present != version:
                raise PreconditionFailedError(f"{name} is not of version {version!r}")
            _finish(unfinished, path)
        return _version(content)

    @contextmanager
    def _unfinished(self, content: bytes | bytearray) -> Iterator[Path]:
        """A file with this content, synced, which is removed unless it becomes an object."""
        if not self._folder.is_dir():
            raise ObjectStoreUnavailableError(f"{self._folder} is not there")
        unfinished = self._folder / _UNFINISHED_FOLDER / uuid4().hex
        unfinished.parent.mkdir(exist_ok=True)
        try:
            with unfinished.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            yield unfinished
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise

    @contextmanager
    def _locked(self) -> Iterator[None]:
        # Opened anew each time: locks belong to the open file, so threads of one process exclude each other as well.
        if not self._folder.is_dir():
            raise ObjectStoreUnavailableError(f"{self._folder} is not there")
        with (self._folder / _LOCK_NAME).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _remove(self, names: Sequence[str]) -> None:
        folders = set()
        for name in names:
            path = self._path(name)
            path.unlink(missing_ok=True)
            folders.add(path.parent)
        for folder in folders:
            if folder.is_dir():
                _sync_folder(folder)

    def _page(self, prefix: str, after: str) -> list[ObjectInfo]:
        if not self._folder.is_dir():
            raise ObjectStoreUnavailableError(f"{self._folder} is not there")
        names = list(islice(self._names(prefix, after), PAGE_OBJECTS))
        found = []
        for name in names:
            try:
                status = (self._folder / name).stat()
            except FileNotFoundError:
                continue  # removed meanwhile
            found.append(ObjectInfo(name, status.st_size, _modified_ms(status)))
        return found

    def _names(self, prefix: str, after: str) -> Iterator[str]:
        """In their order. Folders that have nothing after that name are not looked into."""
        waiting = [_entries(self._folder / prefix, prefix)]
        while waiting:
            name = next(waiting[-1], None)
            if name is None:
                waiting.pop()
            elif not name.endswith("/"):
                if name > after:
                    yield name
            elif name > after or after.startswith(name):
                waiting.append(_entries(self._folder / name, name))


def _entries(folder: Path, prefix: str) -> Iterator[str]:
    """The names of a folder's objects and, with a slash, of its folders, in their order; none if it is not there.

    Links to folders are passed over: they may lead round in a circle.
    """
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.startswith(".") or (entry.is_symlink() and entry.is_dir()):
                    continue
                names.append(f"{prefix}{entry.name}{'/' if entry.is_dir() else ''}")
    except (FileNotFoundError, NotADirectoryError):
        return
    yield from sorted(names)


def _modified_ms(status: os.stat_result) -> int:
    return status.st_mtime_ns // 1_000_000


def _version(content: bytes | bytearray) -> str:
    """Its length, its CRC, and a hash of both of its ends: one of all of it would take most of what a copy costs."""
    view = memoryview(content)
    ends = sha256(view[:_HASHED_BYTES])
    ends.update(view[-_HASHED_BYTES:])
    return f"{len(view)}-{crc_of(view):08x}-{ends.hexdigest()}"


def _read(path: Path) -> StoredObject:
    content = path.read_bytes()
    return StoredObject(content, _version(content))


def _finish(unfinished: Path, path: Path) -> None:
    """Give an object its name, for good."""
    made = [folder for folder in path.parents if not folder.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished.replace(path)
    for folder in (path.parent, *(folder.parent for folder in made)):
        _sync_folder(folder)


def _read_range(path: Path, start: int, length: int) -> bytes:
    with path.open("rb") as file:
        file.seek(start)
        return file.read(length)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
