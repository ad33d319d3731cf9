"""Logs in a node's folder that are kept although the cluster does not count on them, and what was cut from such logs.

A log is kept if it is stray (the metadata says that other nodes have its partition), if it was not among the best when
the metadata was restored from the data, or if the metadata is older than the folder. Then the log may be the only one
with some of its records. `kept-logs.json` in the node's folder lists these logs. What a leader has cut from one of
them is written to a file in `set-aside/` first, which `ottla salvage` reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from ottla.storage.config import LogConfig
from ottla.storage.errors import CorruptLogError

if TYPE_CHECKING:
    from ottla.storage.disk import Disk

__all__ = [
    "KEPT_CONFIG",
    "KEPT_FILE",
    "SET_ASIDE_FOLDER",
    "KeptLog",
    "cut_files",
    "describe_kept_log",
    "read_kept_logs",
    "write_kept_logs",
]

KEPT_FILE: Final = "kept-logs.json"
SET_ASIDE_FOLDER: Final = "set-aside"
UNFINISHED_SUFFIX: Final = ".tmp"

KEPT_CONFIG: Final = LogConfig(delete=False)
"""Of a stray log: nothing of it expires, and nothing is compacted."""


class KeptLog(NamedTuple):
    """A log that is kept: its offsets, and since when (milliseconds since 1970).

    `is_stray`: the metadata said that other nodes have the partition. Otherwise this node has it too.
    `until_committed`: the metadata was older than the node's folder. So it does not matter whether this node is in sync
    by the metadata: the log is kept until its high watermark has reached `end_offset`, or where it was cut.
    """

    topic_id: UUID
    partition: int
    topic: str
    start_offset: int
    end_offset: int
    since_ms: int
    is_stray: bool
    until_committed: bool = False

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def offsets(self) -> str:
        """The offsets as part of a sentence."""
        if self.end_offset == self.start_offset:
            return "empty"
        return f"offsets {self.start_offset} to {self.end_offset - 1}"


def describe_kept_log(log: KeptLog) -> str:
    """What an administrator should know of it, as a sentence."""
    what = f"{log}, {log.offsets}"
    if log.is_stray:
        return f"{what}: stray, as other nodes have the partition by the metadata; see ottla fsck --delete-stray"
    until = "its leader has committed as much" if log.until_committed else "it is in sync"
    return f"{what}: nothing is cut from this replica before it is set aside, until {until}"


def read_kept_logs(disk: Disk, node_path: str) -> list[KeptLog]:
    """The kept logs of a node. Blocks; raises OSError, or CorruptLogError if the file is no such list."""
    path = os.path.join(node_path, KEPT_FILE)
    if not disk.exists(path):
        return []
    try:
        return [
            KeptLog(
                UUID(entry["topic_id"]),
                int(entry["partition"]),
                str(entry["topic"]),
                int(entry["start_offset"]),
                int(entry["end_offset"]),
                int(entry["since_ms"]),
                bool(entry["is_stray"]),
                bool(entry.get("until_committed", False)),
            )
            for entry in json.loads(disk.read_file(path))
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise CorruptLogError(f"{path} is not a list of kept logs: {error!r}") from error


def write_kept_logs(disk: Disk, node_path: str, logs: Iterable[KeptLog]) -> None:
    """Replace a node's list, durably. Blocks; raises OSError."""
    path = os.path.join(node_path, KEPT_FILE)
    entries = [log._asdict() | {"topic_id": str(log.topic_id)} for log in sorted(logs)]
    if entries:
        disk.write_file_atomic(path, json.dumps(entries, indent=1).encode() + b"\n")
    elif disk.exists(path):
        disk.unlink(path)


def cut_files(disk: Disk, node_path: str) -> list[str]:
    """The files with what was cut from kept logs. Blocks; raises OSError."""
    folder = os.path.join(node_path, SET_ASIDE_FOLDER)
    if not disk.exists(folder):
        return []
    return [os.path.join(folder, name) for name in disk.listdir(folder) if not name.endswith(UNFINISHED_SUFFIX)]
