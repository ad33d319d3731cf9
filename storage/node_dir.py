"""A node's folder: locked against a second process, with its identity in `node.json`."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import threading
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4
from zlib import crc32

from ottla.storage.disk.passing import is_full
from ottla.storage.errors import DataDirUnusableError, UnsupportedFormatError
from ottla.storage.format.block import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from ottla.storage.disk import Disk, Handle

__all__ = [
    "DELETED_SUFFIX",
    "LOCK_FILE",
    "NODE_FILE",
    "RESERVE_FILE",
    "SPARE_FILE",
    "NodeDir",
    "make_folder",
    "node_ids_in",
    "read_note",
    "remove_folder",
    "store_directories",
]

logger = logging.getLogger(__name__)

DELETED_SUFFIX = ".deleted"
NODE_FILE = "node.json"
SPARE_FILE = "node.json.spare"
"""As large as a note will be, and overwritten where it lies when there is no room for another file."""
LOCK_FILE = "lock"
RESERVE_FILE = "reserve"
"""Room that is kept for a full disk."""
_NODE_DIR = re.compile(r"node-([0-9]+)")

_SPARE_BYTES: Final = 1024

_UNUSABLE: Final = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR)


class NodeDir:
    """`<data_dir>/node-<id>/`. `was_clean` tells how the last owner left it; None for a new folder.

    `directory_id` stays the same as long as the folder exists: by it a cluster tells a node that has come back from
    another one that claims its id (`directory.id` in Kafka's meta.properties). `cluster_id` is that of the cluster
    whose topics are in it, None as long as it has not joined one.

    A full disk keeps nobody from reading. Where there is no room for the note, and no spare to write it over, `unnoted`
    is called, and must see to it that nothing is appended before `note_again` has come through: if the node went down,
    its next start would not know what it has to. Without `unnoted` such an OSError is raised.
    """

    def __init__(self, disk: Disk, data_dir: str, node_id: int, unnoted: Callable[[], None] | None = None) -> None:
        self._disk = disk
        self._node_id = node_id
        self._unnoted = unnoted
        self._lock: Handle | None = None
        # What was to be noted and could not be. It is written in a thread, while more may come to be noted.
        self._is_owed = False
        # How many notes were written: of two that are found, the later one counts.
        self._notes = 0
        self._owing = threading.Lock()
        self.path = os.path.join(data_dir, f"node-{node_id}")
        self.reserve_path = os.path.join(self.path, RESERVE_FILE)
        self.was_clean: bool | None = None
        #: The machine went down under an owner, so what was written and not synced may be gone, and the cluster has
        #: not been told yet. A start that ends early leaves this to the next one.
        self.lost_power = False
        self.directory_id = uuid4().hex
        self.cluster_id: str | None = None
        #: How often the node had started when the folder was last in use, as the cluster counts it. If it has started
        #: more often since, the folder is an older copy. None where that was never noted.
        self.starts: int | None = None
        #: How many of these starts the cluster has counted for sure, which is known only later of each.
        self.counted_starts: int | None = None
        #: The cluster counts fewer starts than the folder has seen, so its metadata is an older copy. A start that ends
        #: early leaves this to the next one.
        self.is_ahead = False
        #: The restoration of a backup that the folder comes from, as long as no cluster has been told. Metadata that
        #: does not come from the same one is younger.
        self.restoration: str | None = None

    def open(self) -> None:
        """Make or lock the folder, and note that it is in use.

        DataDirLockedError if another process has it, DataDirUnusableError if it cannot be written to,
        UnsupportedFormatError if its files are of another version.
        """
        try:
            make_folder(self._disk, self.path)
            self._lock = self._disk.lock(os.path.join(self.path, LOCK_FILE))
        except OSError as error:
            if error.errno not in _UNUSABLE:
                raise
            raise DataDirUnusableError(f"{self.path} cannot be written to: {error.strerror}") from error
        try:
            node = self._read()
            self.was_clean = node.get("clean_shutdown")
            went_down = self.was_clean is False and node.get("boot_id") != self._disk.boot_id()
            self.lost_power = went_down or node.get("lost_power", False)
            self.directory_id = node.get("directory_id", self.directory_id)
            self.cluster_id = node.get("cluster_id")
            self.starts = node.get("starts")
            self.counted_starts = node.get("counted_starts")
            self.is_ahead = node.get("is_ahead", False)
            self.restoration = node.get("restoration")
            self._note()
            for name in self._disk.listdir(self.path):
                if name.endswith(DELETED_SUFFIX):
                    self._disk.rmtree(os.path.join(self.path, name))
        except BaseException:
            self._unlock()
            raise

    def join(self, cluster_id: str) -> None:
        """Note which cluster the folder belongs to, for good, and that it has counted this start."""
        self.cluster_id = cluster_id
        self.counted_starts, self.is_ahead = self.starts, False
        self._note()

    def note_start(self, count: int) -> None:
        """Note the start that is about to be counted."""
        self.starts = count
        self.is_ahead |= self.counted_starts is not None and count <= self.counted_starts
        self._note()

    def note_restoration(self, name: str) -> None:
        """Note that the folder has just been made from a backup."""
        self.restoration = name
        self._note()

    def settle_loss(self) -> None:
        """The cluster no longer counts on what may be gone."""
        if self.lost_power or self.restoration is not None:
            self.lost_power, self.restoration = False, None
            self._note()

    def note_again(self) -> None:
        """Note what could not be noted for want of room, in a thread. Raises OSError."""
        while True:
            node = self._node(clean=False)
            self._write(node)
            with self._owing:
                # Something may have come to be noted meanwhile, which has not been written because this was owed.
                if self._node(clean=False) == node:
                    self._is_owed = False
                    return

    def sync_all(self) -> bool:
        """`Disk.sync_all` for the folder: OSError if any write has failed since it was opened. Blocks."""
        return self._lock is not None and self._disk.sync_all(self._lock)

    def close(self, *, clean: bool) -> None:
        """Leave the folder; `clean` says that all of it is checkpointed. Unlocks it even if that cannot be noted."""
        try:
            if clean:
                self._write_or_give_up(self._node(clean=True))
        finally:
            self._unlock()

    def _read(self) -> dict[str, Any]:
        node = read_note(self._disk, self.path)
        if node is None:
            # Who has removed the note wants nothing of what the spare says, but the next note counts on from it.
            self._notes = _read_spare(self._disk, self.path).get("note", 0)
            return {}
        self._notes = node.pop("note", 0)
        if node["node_id"] != self._node_id:
            raise UnsupportedFormatError(f"{self.path} belongs to node {node['node_id']}, not {self._node_id}")
        return node

    def _note(self) -> None:
        with self._owing:
            if self._is_owed:
                return
        if not self._write_or_give_up(self._node(clean=False)) and self._unnoted is not None:
            self._is_owed = True
            self._unnoted()

    def _node(self, *, clean: bool) -> dict[str, Any]:
        return {
            "format_version": FORMAT_VERSION,
            "node_id": self._node_id,
            "directory_id": self.directory_id,
            "cluster_id": self.cluster_id,
            "starts": self.starts,
            "counted_starts": self.counted_starts,
            "is_ahead": self.is_ahead,
            "boot_id": self._disk.boot_id(),
            "clean_shutdown": clean,
            "lost_power": self.lost_power,
            "restoration": self.restoration,
        }

    def _content(self, node: dict[str, Any]) -> bytes:
        self._notes += 1
        node = node | {"note": self._notes}
        return json.dumps(node | {"crc32": _checksum(node)}, indent=2).encode() + b"\n"

    def _write(self, node: dict[str, Any]) -> None:
        self._disk.write_file_atomic(os.path.join(self.path, NODE_FILE), self._content(node))
        spare = os.path.join(self.path, SPARE_FILE)
        if not self._disk.exists(spare):
            try:
                self._disk.write_file_atomic(spare, bytes(_SPARE_BYTES))
            except OSError as error:
                if not is_full(error):
                    raise

    def _write_spare(self, node: dict[str, Any]) -> bool:
        """Write the note over the spare, which takes no room; False if there is no spare, or no room all the same."""
        content = self._content(node).ljust(_SPARE_BYTES)
        path = os.path.join(self.path, SPARE_FILE)
        if len(content) > _SPARE_BYTES or not self._disk.exists(path):
            return False
        handle = self._disk.open_write(path)
        try:
            self._disk.pwritev(handle, [content], 0)
            self._disk.fdatasync(handle)
        except OSError as error:
            if not is_full(error):
                raise
            return False
        finally:
            self._disk.close(handle)
        return True

    def _write_or_give_up(self, node: dict[str, Any]) -> bool:
        """Write the note; if there is no room, give up the reserve for it; if there still is none, write it over the
        spare; and if that cannot be, give up the note.

        False if it stays as it was.
        """
        path = os.path.join(self.path, NODE_FILE)
        try:
            self._write(node)
        except OSError as error:
            if not is_full(error):
                raise
        else:
            return True
        try:
            if self._disk.exists(self.reserve_path):
                self._disk.unlink(self.reserve_path)
            self._write(node)
        except OSError as error:
            if is_full(error) and self._write_spare(node):
                return True
            if not is_full(error) or not self._disk.exists(path) or self._unnoted is None:
                raise
            logger.warning("%s cannot be written: %s", path, error, extra={"path": path, "error": str(error)})
            return False
        return True

    def _unlock(self) -> None:
        if self._lock is not None:
            self._disk.close(self._lock)
            self._lock = None


def _checksum(node: dict[str, Any]) -> str:
    """Of what is said, not of how it is written."""
    return f"{crc32(json.dumps(node, sort_keys=True).encode()):08x}"


def read_note(disk: Disk, node_path: str) -> dict[str, Any] | None:
    """What was last noted in a node's folder: `node.json`, or its spare if that is later. None if there is none.

    UnsupportedFormatError if it is no note, damaged, or of another version. Raises OSError.
    """
    path = os.path.join(node_path, NODE_FILE)
    if not disk.exists(path):
        return None
    spare = _read_spare(disk, node_path)
    try:
        node = dict(json.loads(disk.read_file(path)))
        if spare.get("note", 0) > node.get("note", 0):
            node = spare
        version, _ = node["format_version"], node["node_id"]
    except (ValueError, KeyError, TypeError) as error:
        raise UnsupportedFormatError(f"{path} is not a node's identity: {error}") from error
    if version != FORMAT_VERSION:
        raise UnsupportedFormatError(f"{node_path} is of format version {version}; this release reads {FORMAT_VERSION}")
    checksum = node.pop("crc32", None)
    if checksum is not None and checksum != _checksum(node):
        raise UnsupportedFormatError(f"{path} fails its checksum: remove it, and the next start writes it again")
    return node


def _read_spare(disk: Disk, node_path: str) -> dict[str, Any]:
    """What the spare says; nothing if it was never written, or not to its end."""
    path = os.path.join(node_path, SPARE_FILE)
    if not disk.exists(path):
        return {}
    try:
        node: dict[str, Any] = json.loads(disk.read_file(path))
        is_whole = node["crc32"] == _checksum({name: value for name, value in node.items() if name != "crc32"})
    except (ValueError, KeyError, TypeError):
        return {}
    return node if is_whole else {}


def make_folder(disk: Disk, path: str) -> None:
    """Make a folder and its missing parents, durably."""
    if not disk.exists(path):
        parent = os.path.dirname(path)
        make_folder(disk, parent)
        disk.mkdir(path)
        disk.fsync_directory(parent)


def node_ids_in(data_dir: Path) -> list[int]:
    """The ids of the nodes that keep data in a folder, in order. Raises OSError for a folder that may not be read."""
    try:
        names = os.listdir(data_dir)
    except (FileNotFoundError, NotADirectoryError):
        return []
    found = (_NODE_DIR.fullmatch(name) for name in names if (data_dir / name).is_dir())
    return sorted(int(matched[1]) for matched in found if matched is not None)


def store_directories(disk: Disk, node_path: str) -> Iterator[str]:
    """The folders of a node's stores. Blocks."""
    for name in disk.listdir(node_path):
        topic = os.path.join(node_path, name)
        if disk.is_directory(topic) and not name.endswith(DELETED_SUFFIX):
            for store in disk.listdir(topic):
                if disk.is_directory(os.path.join(topic, store)):
                    yield os.path.join(topic, store)


def remove_folder(disk: Disk, directory: str, doomed: str, *, with_parent: bool = True) -> None:
    """Remove a folder: first its name, so that no start finds half of it; then its files.

    An empty parent goes as well, unless others may be about to make folders in it.
    """
    if not disk.exists(directory):
        return
    parent = os.path.dirname(directory)
    if disk.exists(doomed):
        # An earlier call could not remove it.
        disk.rmtree(doomed)
    disk.rename(directory, doomed)
    disk.fsync_directory(parent)
    if with_parent and not disk.listdir(parent):
        disk.rmtree(parent)
    disk.rmtree(doomed)
