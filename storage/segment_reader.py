"""Reading a store's files directly: scans of whole histories that bypass the broker.

`view_store` plans from the summaries in the index files; each `Piece` of a plan can then be read by itself, by another
process and on another machine that sees the same files. Everything here blocks.
"""

from __future__ import annotations

import os

from ottla.storage.disk import RealDisk
from ottla.storage.fsck import store_directories
from ottla.storage.segment_piece import Piece, read_piece, split_piece
from ottla.storage.store_view import PartitionView, view_store

__all__ = [
    "PartitionView",
    "Piece",
    "RealDisk",
    "node_directories",
    "read_piece",
    "split_piece",
    "store_directories",
    "view_store",
]


def node_directories(path: str) -> list[str]:
    """The node folders in a data folder, or the folder itself if it is one; FileNotFoundError if there is none."""
    if os.path.isfile(os.path.join(path, "node.json")):
        return [path]
    found = [os.path.join(path, name) for name in sorted(os.listdir(path)) if name.startswith("node-")]
    found = [folder for folder in found if os.path.isfile(os.path.join(folder, "node.json"))]
    if not found:
        raise FileNotFoundError(f"{path} holds no node's folder")
    return found
