"""What only the driver's own disk can do: replace a file in one step, and keep a second job out."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ottla.pipeline.errors import PipelineError

__all__ = ["lock", "replace_text"]


def replace_text(path: Path, text: str) -> None:
    """Write a file whole, and durably: a kill leaves the one before, or this one.

    Hadoop's rename over a file takes the old one away first on a local disk; and its checksum beside the file would not
    go with the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    for name in (path.name, beside.name):
        with suppress(FileNotFoundError):
            path.with_name(f".{name}.crc").unlink()
    os.replace(beside, path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def lock(folder: Path, refusal: PipelineError) -> Iterator[None]:
    """Hold a folder for this job alone, until the block or the process ends. Raises `refusal` if another job has it."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise refusal from error
        yield
