"""A backup: a data folder that a broker could open as it is, and `backup.json`, which says what belongs to it.

`backup.json` is written last: a folder without it is not a backup. It holds the length and the CRC-32C of every file.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Protocol
from uuid import uuid4

import trio

from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.backup.snapshot import METADATA_FILE, Snapshot, taken
from ottla.kproto.records.crc import extend as crc32c
from ottla.metastore.errors import MetadataError
from ottla.storage.clock import SystemClock
from ottla.storage.disk import RealDisk
from ottla.storage.disk.private import make_private_folder, private_opener
from ottla.storage.errors import StorageError
from ottla.storage.node_dir import NodeDir, node_ids_in

MANIFEST_FILE: Final = "backup.json"
FORMAT_VERSION: Final = 1
_CHUNK_BYTES: Final = 1 << 20
_ATTEMPTS: Final = 5
"""How often the files are looked at anew because replicas have changed meanwhile."""
_PAUSE_SECONDS: Final = 1.0
_RESTORING: Final = ".restoring"

#: Told how many bytes were copied, and of how many.
Report = Callable[[int, int], None]


class ForeignMetadata(Protocol):
    """Metadata that is kept outside the folder. Its methods raise BackupError if it cannot be read."""

    def read(self) -> None:
        """Read all of it."""

    def read_again(self, node_ids: Sequence[int]) -> bool:
        """Read all of it once more; whether it counts on a replica of these nodes on which it did not count alike."""

    def write(self, target: Path) -> None:
        """Write what was read last into a new `cluster.sqlite`."""


def back_up(
    data_dir: Path,
    target: Path,
    version: str,
    report: Report,
    *,
    metadata: ForeignMetadata | None = None,
) -> dict[str, Any]:
    """Copy the folder of a broker, running or not, to `target`, a new folder; returns what `backup.json` says.

    Everything that was acknowledged before the call is in the copy. The nodes' files and the folder's own metadata are
    from one moment. Metadata that is kept elsewhere is from right afterwards, and counts on no replica of the copy
    that may lack records. Raises BackupError if it cannot be done.
    """
    _make_empty(target)
    try:
        with _taken(data_dir, metadata) as snapshot:
            created_at_ms = int(time.time() * 1000)
            total_bytes = sum(kept.size_bytes for kept in snapshot.files)
            _check_space(target, total_bytes)
            copied_bytes = 0
            files = {}
            if metadata is not None:
                metadata.write(target / METADATA_FILE)
                _sync_file(target / METADATA_FILE)
                size_bytes = (target / METADATA_FILE).stat().st_size
                files[METADATA_FILE] = {"size": size_bytes, "crc32c": _crc_of(target / METADATA_FILE)}
            for kept in snapshot.files:
                crc = _copy(kept.link, target / kept.name, kept.size_bytes)
                files[kept.name] = {"size": kept.size_bytes, "crc32c": crc}
                copied_bytes += kept.size_bytes
                report(copied_bytes, total_bytes)
    except OSError as error:
        raise BackupError(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None
    manifest = {
        "format_version": FORMAT_VERSION,
        "ottla_version": version,
        "created_at_ms": created_at_ms,
        "was_running": snapshot.was_running,
        "nodes": list(snapshot.nodes),
        "files": files,
    }
    _sync_folders(target)
    _write(target / MANIFEST_FILE, json.dumps(manifest, indent=1).encode() + b"\n")
    _sync_folder(target)
    return manifest


@contextmanager
def _taken(data_dir: Path, metadata: ForeignMetadata | None) -> Iterator[Snapshot]:
    """The folder at a moment such that no replica in it was counted on anew about then."""
    if metadata is None:
        with taken(data_dir) as snapshot:
            yield snapshot
        return
    node_ids = node_ids_in(data_dir)
    for _ in range(_ATTEMPTS):
        metadata.read()
        with taken(data_dir, with_metadata=False) as snapshot:
            if not metadata.read_again(node_ids):
                yield snapshot
                return
        time.sleep(_PAUSE_SECONDS)
    raise BackupError(
        "the replicas of these nodes kept changing while the files were looked at: try again when nothing is moved"
    )


def restore(backup: Path, data_dir: Path, report: Report) -> dict[str, Any]:
    """Put a backup into `data_dir`, which must be new or empty; returns what `backup.json` says.

    Every byte is checked on the way. Until everything is there, nothing is in a place where a broker would use it.
    Nodes that are started with other metadata than what is restored with them find it younger: it may count on them for
    what was acknowledged since. So they leave the in-sync sets.
    """
    manifest = read_manifest(backup)
    try:
        with restoring(data_dir) as beside:
            total_bytes = sum(file["size"] for file in manifest["files"].values())
            _check_space(data_dir, total_bytes)
            copied_bytes = 0
            for name, file in manifest["files"].items():
                crc = _copy(backup / name, beside / name, file["size"])
                if crc != file["crc32c"]:
                    raise BackupError(f"{backup / name} is damaged: its CRC is {crc:#010x}, not {file['crc32c']:#010x}")
                copied_bytes += file["size"]
                report(copied_bytes, total_bytes)
            restoration = uuid4().hex
            for node_id in node_ids_in(beside):
                _note_restoration(beside, node_id, restoration)
            if METADATA_FILE in manifest["files"]:
                trio.run(_write_restoration, beside / METADATA_FILE, restoration)
    except (OSError, StorageError, MetadataError) as error:
        raise BackupError(str(error)) from None
    return manifest


@contextmanager
def restoring(data_dir: Path) -> Iterator[Path]:
    """A folder inside the data folder, which must be new or empty. At the end what was put there is moved to where a
    broker uses it; after an error it stays where no broker looks, until the next attempt.

    Raises BackupError or OSError.
    """
    _make_empty(data_dir, but=_RESTORING)
    beside = data_dir / _RESTORING
    shutil.rmtree(beside, ignore_errors=True)
    make_private_folder(beside)
    yield beside
    _sync_folders(beside)
    # The metadata first: without it a broker would take the nodes' folders for a new cluster's.
    for name in sorted(os.listdir(beside), key=lambda name: name != METADATA_FILE):
        os.rename(beside / name, data_dir / name)
    beside.rmdir()
    _sync_folder(data_dir)


def _note_restoration(data_dir: Path, node_id: int, restoration: str) -> None:
    node_dir = NodeDir(RealDisk(), str(data_dir), node_id)
    node_dir.open()
    node_dir.note_restoration(restoration)
    node_dir.close(clean=node_dir.was_clean is True)


async def _write_restoration(path: Path, restoration: str) -> None:
    """Let the metadata say that it is as old as the nodes' folders."""
    from ottla.metadata import keys
    from ottla.metastore.sqlite import open_sqlite_store
    from ottla.metastore.store import Put

    store = await open_sqlite_store(path, SystemClock().time_ms)
    try:
        await store.commit([], [Put(keys.RESTORATION, keys.encode(restoration))])
    finally:
        await store.close()


def read_manifest(backup: Path) -> dict[str, Any]:
    """The manifest of a backup. Raises BackupError if it is not a backup, or not one that this release knows."""
    path = backup / MANIFEST_FILE
    try:
        manifest: dict[str, Any] = json.loads(path.read_bytes())
        version = manifest["format_version"]
    except FileNotFoundError:
        raise BackupError(f"{backup} is not a complete backup: it has no {MANIFEST_FILE}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BackupError(f"{path} cannot be read: {error}") from None
    if version != FORMAT_VERSION:
        raise BackupError(f"{path} is of format version {version}; this release reads {FORMAT_VERSION}")
    return manifest


def _make_empty(folder: Path, but: str = "") -> None:
    try:
        make_private_folder(folder)
        if set(os.listdir(folder)) - {but, "lost+found"}:
            raise BackupError(f"{folder} is not empty: name a new folder")
    except OSError as error:
        raise BackupError(f"{folder} cannot be made: {error.strerror}") from None


def _check_space(folder: Path, needed_bytes: int) -> None:
    free_bytes = shutil.disk_usage(folder).free
    if free_bytes < needed_bytes:
        raise BackupError(f"{folder} has room for {free_bytes:,} bytes, and {needed_bytes:,} are needed")


def _copy(source: Path, target: Path, size_bytes: int) -> int:
    """Copy the first bytes of a file, durably; returns their CRC-32C."""
    make_private_folder(target.parent)
    crc = 0
    left = size_bytes
    with source.open("rb", buffering=0) as reader, open(target, "xb", 0, opener=private_opener) as writer:
        while left:
            chunk = reader.read(min(left, _CHUNK_BYTES))
            if not chunk:
                raise BackupError(f"{source} is shorter than it should be: {left} bytes are missing")
            crc = crc32c(crc, chunk)
            left -= len(chunk)
            view = memoryview(chunk)
            while view:
                view = view[writer.write(view) :]
        os.fsync(writer.fileno())
    return crc


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _crc_of(path: Path) -> int:
    crc = 0
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            crc = crc32c(crc, chunk)
    return crc


def _write(path: Path, content: bytes) -> None:
    with open(path, "xb", opener=private_opener) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _sync_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root):
        _sync_folder(folder)


def _sync_folder(path: str | Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
