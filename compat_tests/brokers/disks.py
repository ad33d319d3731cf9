"""Disks of a size, one for each node, that can be filled: file systems in memory, which only root may mount."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["Disks", "can_mount"]

_FILLER = "filler"
_MAX_FILLS = 100


def can_mount() -> bool:
    """Whether this user may mount a file system in memory here."""
    with TemporaryDirectory(prefix="mount-") as folder:
        if not _mounted(Path(folder), 1 << 20):
            return False
        subprocess.run(["umount", folder], check=True)
        return True


def _mounted(folder: Path, size_bytes: int) -> bool:
    command = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "tmpfs", str(folder)]
    with suppress(OSError):
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
    return False


class Disks:
    """Folders `node-<id>`, each a file system of its own until `close`."""

    def __init__(self, folder: Path, node_ids: Iterable[int], size_bytes: int) -> None:
        self._folders = {node_id: folder / f"node-{node_id}" for node_id in node_ids}
        #: Nodes whose disk was full at some time.
        self.were_full: set[int] = set()
        self._is_mounted: set[int] = set()
        for node_id, path in self._folders.items():
            path.mkdir(parents=True)
            if not _mounted(path, size_bytes):
                self.close()
                raise OSError(f"cannot mount a file system at {path}")
            self._is_mounted.add(node_id)

    def fill(self, node_id: int, room_bytes: int) -> None:
        """Leave hardly more room than this, whatever the node writes meanwhile."""
        self.were_full.add(node_id)
        with (self._folders[node_id] / _FILLER).open("ab", buffering=0) as filler, suppress(OSError):
            for _ in range(_MAX_FILLS):
                found = os.statvfs(self._folders[node_id])
                surplus_bytes = found.f_bavail * found.f_frsize - room_bytes
                if surplus_bytes <= 0:
                    return
                os.posix_fallocate(filler.fileno(), filler.tell(), surplus_bytes)
                filler.seek(0, os.SEEK_END)

    def free(self, node_id: int) -> None:
        """There is room."""
        (self._folders[node_id] / _FILLER).unlink(missing_ok=True)

    def close(self) -> None:
        for node_id in self._is_mounted:
            subprocess.run(["umount", "--lazy", str(self._folders[node_id])], check=True)
        self._is_mounted.clear()
