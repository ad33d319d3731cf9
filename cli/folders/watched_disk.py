"""A disk that reports how much of it has been read: the progress of anything that goes through data files once."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from ottla.cli.options import Progress
from ottla.storage.disk import Handle, RealDisk


class WatchedDisk(RealDisk):
    """Shows how much of `total_bytes` was read; that need not be exact, because some places are read twice or not at
    all.
    """

    __slots__ = ("_progress", "_read_bytes", "_total_bytes")

    def __init__(self, progress: Progress, total_bytes: int) -> None:
        super().__init__()
        self._progress = progress
        self._total_bytes = total_bytes
        self._read_bytes = 0

    def preadv(self, handle: Handle, buffers: Sequence[memoryview], position: int, *, nowait: bool = False) -> int:
        count = super().preadv(handle, buffers, position, nowait=nowait)
        self._read_bytes += count
        self._progress.set_bytes(min(self._read_bytes, self._total_bytes), self._total_bytes)
        return count


def size_of(paths: Iterable[str]) -> int:
    """The size of all data files that are named, or are in the named folders."""
    total_bytes = 0
    for path in paths:
        if not os.path.isdir(path):
            total_bytes += os.path.getsize(path) if os.path.exists(path) else 0
            continue
        for folder, _, names in os.walk(path):
            total_bytes += sum(os.path.getsize(os.path.join(folder, name)) for name in names if name.endswith(".data"))
    return total_bytes
