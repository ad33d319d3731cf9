"""The files of a data folder as they are at one moment, kept by hard links while they are copied.

The broker only ever appends to a file, or replaces it as a whole. So a link and a length preserve what was there,
however much is appended, rewritten, compacted or deleted afterwards. `cluster.sqlite` is written in place: it is copied
while every process that writes to it is paused, so that it says of each replica what is true of the copied one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.backup.pause import paused
from ottla.cli.folders.lock_holder import lock_owner
from ottla.storage.disk.private import FOLDER_MODE
from ottla.storage.node_dir import DELETED_SUFFIX, LOCK_FILE, NODE_FILE, RESERVE_FILE, node_ids_in

SNAPSHOT_PREFIX: Final = ".snapshot-"
METADATA_FILE: Final = "cluster.sqlite"
# What a start would remove: half-written files, and stores that are being deleted.
_UNFINISHED: Final = (".tmp", ".new")


class Kept(NamedTuple):
    """A file of the snapshot: where it is kept, its path within the data folder, and how much of it counts."""

    link: Path
    name: str
    size_bytes: int


class Snapshot(NamedTuple):
    nodes: tuple[str, ...]
    files: tuple[Kept, ...]
    was_running: bool


class _Owner(NamedTuple):
    """The process that uses a node's folder; if none does, what the last one has noted there."""

    pid: int | None
    last_note: bytes | None


@contextlib.contextmanager
def taken(data_dir: Path, *, with_metadata: bool = True) -> Iterator[Snapshot]:
    """The folders of all nodes at one moment, and the metadata if it is there and wanted.

    The files stay inside this context; afterwards the links are removed. Raises BackupError, or CommandError if a
    broker runs that cannot be seen from here.
    """
    nodes = node_dirs(data_dir)
    if not nodes:
        raise BackupError(f"{data_dir} is not a data folder: there is no node-<id> in it")
    links = data_dir / f"{SNAPSHOT_PREFIX}{os.getpid()}"
    try:
        links.mkdir(mode=FOLDER_MODE)
    except OSError as error:
        raise BackupError(f"{links} cannot be made: {error.strerror}") from None
    try:
        owners = _owners(nodes)
        linker = _Linker(data_dir, links)
        try:
            linker.link_all(nodes)  # So that nearly everything is linked already when the brokers are paused.
            pids = [owner.pid for owner in owners if owner.pid is not None]
            with paused(pids):
                files = linker.link_all(nodes)
                if with_metadata and (data_dir / METADATA_FILE).exists():
                    files = (_copied_metadata(data_dir, links), *files)
                if _owners(nodes) != owners:
                    # It was not paused, and has changed the files while they were linked.
                    raise BackupError("a broker was started or has ended in the meantime: try again")
        except OSError as error:
            raise BackupError(f"the files cannot be linked: {error}") from None
        yield Snapshot(tuple(node.name for node in nodes), files, bool(pids))
    finally:
        shutil.rmtree(links)


def _owners(nodes: Iterable[Path]) -> list[_Owner]:
    return [_owner(node) for node in nodes]


def _owner(node: Path) -> _Owner:
    pid = lock_owner(node / LOCK_FILE)
    if pid is not None:
        return _Owner(pid, None)
    try:
        return _Owner(None, (node / NODE_FILE).read_bytes())
    except FileNotFoundError:
        return _Owner(None, None)


def _copied_metadata(data_dir: Path, links: Path) -> Kept:
    """One transaction's view of the database, without the transaction that a paused broker may be in."""
    source, copy = data_dir / METADATA_FILE, links / METADATA_FILE
    try:
        with closing(sqlite3.connect(source)) as reader, closing(sqlite3.connect(copy)) as writer:
            writer.execute("PRAGMA synchronous = OFF")  # what matters is copied, and synced, from here
            reader.backup(writer)
    except sqlite3.Error as error:
        raise BackupError(f"{source} cannot be copied: {error}") from None
    return Kept(copy, METADATA_FILE, copy.stat().st_size)


def node_dirs(data_dir: Path) -> list[Path]:
    """The folders of the nodes that keep their data here."""
    return [data_dir / f"node-{node_id}" for node_id in node_ids_in(data_dir)]


class _Linker:
    """Links files by their inode number, which no other file gets while the link exists."""

    def __init__(self, data_dir: Path, links: Path) -> None:
        self._data_dir = str(data_dir)
        self._links = links
        self._linked: set[int] = set()

    def link_all(self, nodes: Iterable[Path]) -> tuple[Kept, ...]:
        """Every file of the nodes as it is now; while a broker runs, files may be missing or too short."""
        return tuple(kept for node in nodes for kept in self._link_folder(str(node)))

    def _link_folder(self, folder: str) -> Iterator[Kept]:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.endswith(DELETED_SUFFIX):
                    with contextlib.suppress(FileNotFoundError):
                        yield from self._link_folder(entry.path)
            elif entry.name not in (LOCK_FILE, RESERVE_FILE) and not entry.name.endswith(_UNFINISHED):
                with contextlib.suppress(FileNotFoundError):
                    yield self._link(entry)

    def _link(self, entry: os.DirEntry[str]) -> Kept:
        status = entry.stat(follow_symlinks=False)
        link = self._links / str(status.st_ino)
        if status.st_ino not in self._linked:
            os.link(entry.path, link)
            if link.stat().st_ino != status.st_ino:
                link.unlink()
                raise FileNotFoundError(f"{entry.path} has been replaced in the meantime")
            self._linked.add(status.st_ino)
        return Kept(link, os.path.relpath(entry.path, self._data_dir), status.st_size)
