"""Cleaning up after a refused start: nothing is left where there was nothing before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from ottla.cli import CommandError

#: What a node writes before it opens the metadata, and what `--secure` makes.
_NODE_FILES: Final = frozenset({"lock", "node.json", "node.json.spare", "reserve"})
_KEYS: Final = "security"


@contextmanager
def leaving_nothing(folder: Path) -> Iterator[None]:
    """Remove the folder again if it is made in here and the start is refused (CommandError).

    It stays if anything else is in it, or a cluster was joined: then something may count on it.
    """
    was_there = folder.exists()
    try:
        yield
    except CommandError:
        if not was_there and _is_unused(folder):
            with suppress(OSError):
                shutil.rmtree(folder)
        raise


def _is_unused(folder: Path) -> bool:
    from ottla.storage.disk import RealDisk
    from ottla.storage.errors import UnsupportedFormatError
    from ottla.storage.node_dir import node_ids_in, read_note

    try:
        nodes = {f"node-{node_id}" for node_id in node_ids_in(folder)}
        if not {path.name for path in folder.iterdir()} <= nodes | {_KEYS}:
            return False
        for name in nodes:
            if not {path.name for path in (folder / name).iterdir()} <= _NODE_FILES:
                return False
            if (read_note(RealDisk(), str(folder / name)) or {}).get("cluster_id"):
                return False
    except (OSError, UnsupportedFormatError):
        return False
    return True
