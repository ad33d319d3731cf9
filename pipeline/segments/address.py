"""What a path names: a broker's data folder, or an object store."""

from __future__ import annotations

import os
from typing import Final

from ottla.pipeline.errors import OptionError
from ottla.storage.inspect.store_view import node_directories
from ottla.tiers.address import check_remote_url

__all__ = ["folder_of", "is_object_store"]

_FOLDER: Final = "file:"


def is_object_store(path: str) -> bool:
    """Say whether it is an object store's address; OptionError for an address that is none.

    `file:///path` may be the one or the other: a data folder has the folders of nodes.
    """
    if "://" not in path:
        return False
    try:
        check_remote_url(path)
    except ValueError as error:
        # Without the path: it may have credentials in it.
        raise OptionError(f"The path is no address of an object store: {error}.") from None
    if not path.startswith(_FOLDER):
        return True
    try:
        return not node_directories(folder_of(path))
    except OSError:
        return os.path.isdir(folder_of(path))


def folder_of(path: str) -> str:
    """The folder that a path without the address of a cloud names."""
    return path.removeprefix(_FOLDER)
