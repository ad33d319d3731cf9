"""Files and folders that only their owner may read, whatever the umask.

Records, credentials and settings lie in them. An administrator may give a folder wider modes: what exists keeps its
modes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Final

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700


def private_opener(path: str, flags: int) -> int:
    """The `opener` of `open()` for such a file."""
    return os.open(path, flags | os.O_CLOEXEC, FILE_MODE)


def make_private_folder(path: Path) -> None:
    """Make a folder and its missing parents; one that exists stays as it is."""
    missing = list(takewhile(lambda it: not it.exists(), (path, *path.parents)))
    for folder in reversed(missing or [path]):
        folder.mkdir(mode=FOLDER_MODE, exist_ok=True)


def make_private_file(path: Path) -> None:
    """Make an empty file for a library that would make it with wider modes; one that exists stays as it is.

    If it cannot be made, the library will find out why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, FILE_MODE))
