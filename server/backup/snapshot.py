"""The files of a data folder as they are in one moment, kept by hard links while they are copied.

The broker writes a file at its end only, or replaces it as a whole; so a link and a length keep what was there, however
much is appended, rewritten, compacted or deleted afterwards.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from ottla.server.backup.errors import BackupError
from ottla.server.backup.pause import lock_owner, paused
from ottla.storage.node_dir import DELETED_SUFFIX, LOCK_FILE

SNAPSHOT_PREFIX: Final = ".snapshot-"
METADATA_FILE: Final = "cluster.sqlite"
# What a start would remove: half written files, and stores on their way out.
_UNFINISHED: Final = (".tmp", ".new")


class Kept(NamedTuple):
    """A file of the snapshot: where it is kept, its name below the data folder, and how much of it counts."""

    link: Path
    name: str
    size_bytes: int


class Snapshot(NamedTuple):
    nodes: tuple[str, ...]
    files: tuple[Kept, ...]
    was_running: bool


@contextlib.contextmanager
def taken(data_dir: Path) -> Iterator[Snapshot]:
    """The folders of all nodes in one moment. Inside, the files stay; afterwards the links are gone."""
    nodes = node_dirs(data_dir)
    if not nodes:
        raise BackupError(f"{data_dir} is no data folder: there is no node-<id> in it")
    links = data_dir / f"{SNAPSHOT_PREFIX}{os.getpid()}"
    try:
        links.mkdir()
    except OSError as error:
        raise BackupError(f"{links} cannot be made: {error.strerror}") from None
    try:
        owners = [pid for node in nodes if (pid := lock_owner(node / LOCK_FILE)) is not None]
        try:
            with paused(owners):
                files = tuple(kept for node in nodes for kept in _link_all(data_dir, node, links))
        except OSError as error:
            raise BackupError(f"the files cannot be linked: {error}") from None
        yield Snapshot(tuple(node.name for node in nodes), files, bool(owners))
    finally:
        shutil.rmtree(links)


def node_dirs(data_dir: Path) -> list[Path]:
    """The folders of the nodes that keep their data here."""
    return sorted(path for path in data_dir.glob("node-*") if path.is_dir())


def _link_all(data_dir: Path, node: Path, links: Path) -> Iterator[Kept]:
    for folder, folders, names in os.walk(node):
        folders[:] = [name for name in folders if not name.endswith(DELETED_SUFFIX)]
        relative = os.path.relpath(folder, data_dir)
        os.makedirs(links / relative)
        for name in names:
            if name == LOCK_FILE or name.endswith(_UNFINISHED):
                continue
            link = links / relative / name
            os.link(os.path.join(folder, name), link)
            yield Kept(link, os.path.join(relative, name), link.stat().st_size)
