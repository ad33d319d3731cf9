"""Which nodes have their data in a folder, and how all of them are served."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError
from ottla.metadata.open_store import SQLITE_FILE
from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirLockedError
from ottla.storage.node_dir import LOCK_FILE, node_ids_in

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from ottla.settings.config import BrokerConfig

_DEFAULT_NODE_ID: Final = 1


def data_dir_of(config: BrokerConfig) -> Path:
    """The folder that holds the folders of nodes."""
    return Path((config.log_dirs or config.log_dir)[0]).absolute()


def serve_command(data_dir: Path, node_ids: Sequence[int]) -> str:
    """The command that serves all nodes of a folder. Other flags are for its reader to add."""
    lowest, highest = min(node_ids), max(node_ids)
    count = f" --nodes {highest - lowest + 1}" if highest > lowest else ""
    first = "" if lowest == _DEFAULT_NODE_ID else f" --set node.id={lowest}"
    return f"ottla serve --data-dir {shlex.quote(str(data_dir))}{count}{first}"


def check_lone_node(config: BrokerConfig, data_dir: Path) -> None:
    """Refuse to start one node of several, unless `node.id` names it: then the others have processes of their own."""
    if "node.id" not in config.static and "broker.id" not in config.static:
        refuse_to_leave_out(
            data_dir, [config.node_id], f"; to start only node {config.node_id}, add --set node.id={config.node_id}"
        )


def refuse_to_leave_out(data_dir: Path, started: Collection[int], otherwise: str = "") -> None:
    """CommandError if a folder has nodes that are not started, whose partitions would have no leader.

    A node may be left out if it runs by itself, or holds no replicas by the metadata in the folder. Blocks.
    """
    there = node_ids_in(data_dir)
    left_out = [node_id for node_id in there if node_id not in started and not _runs(data_dir, node_id)]
    if not left_out:
        return
    holders = _holders(data_dir, left_out)
    needed = [node_id for node_id in left_out if node_id in holders]
    if not needed:
        return
    which = f"node {needed[0]}" if len(needed) == 1 else f"nodes {', '.join(map(str, needed))}"
    known = [node_id for node_id in started if node_id in there]
    text = (
        f"{data_dir} holds data of {which}, which would not be served: "
        f"start it with `{serve_command(data_dir, [*needed, *known])}`"
    )
    if known:
        text += f"{otherwise}; to go back to fewer nodes, start all and run `ottla cluster drain {needed[-1]}` first"
    raise CommandError(text)


def _runs(data_dir: Path, node_id: int) -> bool:
    """Whether a broker has locked the node's folder."""
    disk = RealDisk()
    try:
        disk.close(disk.lock(str(data_dir / f"node-{node_id}" / LOCK_FILE)))
    except DataDirLockedError:
        return True
    except OSError:
        return False
    return False


def _holders(data_dir: Path, node_ids: Collection[int]) -> Collection[int]:
    """The nodes that hold replicas, by the metadata in the folder; all of these if it does not say."""
    if not (data_dir / SQLITE_FILE).exists():
        return node_ids
    import trio

    from ottla.cli.folders.fsck_metadata import known_topics

    try:
        _, topics = trio.run(known_topics, data_dir, None)
    except CommandError:
        return node_ids
    return {node_id for replicas in topics.values() for one in replicas for node_id in one}
