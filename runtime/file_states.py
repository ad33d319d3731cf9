"""Whether files have changed: their states, to be compared with later ones."""

from __future__ import annotations

import os
from collections.abc import Iterable

FileState = tuple[str, int, int, int]
"""A file's path, and what differs once it was written or replaced."""


def file_states(paths: Iterable[str]) -> tuple[FileState, ...]:
    """The states of files; one that cannot be looked at has a state, too. Blocks where a disk does."""
    states = []
    for path in paths:
        try:
            found = os.stat(path)
        except OSError:
            states.append((path, 0, 0, 0))
        else:
            states.append((path, found.st_mtime_ns, found.st_size, found.st_ino))
    return tuple(states)
