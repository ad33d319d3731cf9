"""`ottla restore --metadata-from-data`: a new cluster.sqlite from what lies beside the topics' records."""

from __future__ import annotations

import argparse
import json
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import trio

from ottla.cli import CommandError
from ottla.cli.folders.backup.snapshot import METADATA_FILE
from ottla.cli.folders.nodes import serve_command
from ottla.cli.options import counted
from ottla.storage.errors import DataDirLockedError, StorageError
from ottla.storage.node_dir import node_ids_in

if TYPE_CHECKING:
    from ottla.metadata.from_data import Aside, Choice
    from ottla.metastore.store import Operation

_NEVER_MS: Final = 1 << 40
_NAMED: Final = 20


def run(arguments: argparse.Namespace) -> int:
    """Rebuild the file. Raises CommandError if it exists, if there is nothing to rebuild it from, or if the folders of
    several nodes contradict each other in what cannot be decided here.
    """
    data_dir: Path = arguments.data_dir
    path = data_dir / METADATA_FILE
    if path.exists():
        raise CommandError(f"{path} exists: move it away to have it recreated")
    nodes = node_ids_in(data_dir)
    if not nodes:
        raise CommandError(f"{data_dir} is not a data folder: there is no node-<id> in it")
    if arguments.prefer_node is not None and arguments.prefer_node not in nodes:
        raise CommandError(f"--prefer-node {arguments.prefer_node}: there is no such node in {data_dir}")
    try:
        choice = trio.run(_rebuild, data_dir, nodes, arguments.prefer_node)
    except* DataDirLockedError:
        raise CommandError(f"a broker is running in {data_dir}: stop it first") from None
    except* StorageError as group:
        raise CommandError(str(group.exceptions[0])) from group
    if arguments.json:
        print(json.dumps(_as_json(choice)))
    else:
        _print(choice, path, serve_command(data_dir, nodes))
    return 0


def _as_json(choice: Choice) -> dict[str, object]:
    return {
        "topics": sorted(choice.topics),
        "guessed": sorted(name for name, topic in choice.topics.items() if topic.is_guessed),
        "kept_logs": [
            {
                "topic": it.topic,
                "partition": it.partition,
                "node_id": it.node_id,
                "end_offset": it.log.end_offset,
                "is_replica": it.is_replica,
                "diverges_at": it.diverges_at,
            }
            for it in choice.aside
        ],
        "older_topics": [
            {"topic": name, "topic_id": str(topic_id), "node_ids": node_ids}
            for name, topic_id, node_ids in choice.namesakes
        ],
    }


def _print(choice: Choice, path: Path, command: str) -> None:
    topics = choice.topics
    print(f"{path} has {counted(len(topics), 'topic')} again; empty ones, quotas, users and settings are not in it")
    for name in sorted(name for name, topic in topics.items() if topic.is_guessed):
        print(f"guessed: {name}, with {counted(len(topics[name].partitions), 'partition')}; its settings are not known")
    for name, topic_id, node_ids in choice.namesakes:
        folders = ", ".join(f"node-{node_id}" for node_id in node_ids)
        print(f"kept aside: an older topic {name} with the id {topic_id} in {folders}; see ottla fsck --delete-unknown")
    for it in choice.aside[:_NAMED]:
        print(f"kept aside: {_sentence(it)}")
    if len(choice.aside) > _NAMED:
        print(f"kept aside: {len(choice.aside) - _NAMED} more logs; ottla fsck names them")
    print(f"start it with `{command}`")


def _sentence(it: Aside) -> str:
    what = f"the log of {it.topic}-{it.partition} on node {it.node_id}, which ends at offset {it.log.end_offset}"
    if it.diverges_at is not None:
        return f"{what} and from {it.diverges_at} on has what the leader does not have"
    return f"{what}: it is behind and follows" if it.is_replica else f"{what}: other nodes have the partition now"


async def _rebuild(data_dir: Path, nodes: list[int], prefer: int | None) -> Choice:
    from ottla.metadata.from_data import UndecidedError, choose, metadata_of
    from ottla.storage.clock import SystemClock
    from ottla.storage.config import StorageConfig
    from ottla.storage.disk import RealDisk
    from ottla.storage.found_topics import find_topics
    from ottla.storage.log_manager import LogManager

    found = {}
    cluster_id = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
    for node_id in nodes:
        config = StorageConfig(cleaner_backoff_ms=_NEVER_MS)
        manager = LogManager(RealDisk(), str(data_dir), config, SystemClock(), node_id=node_id)
        async with manager.run():
            if RealDisk().exists(manager.shared_store_directory):
                raise CommandError("ottla.store.layout=shared: the files do not say what the topics are called")
            cluster_id = manager.node_dir.cluster_id or cluster_id
            found[node_id] = await find_topics(manager)
    try:
        choice = choose(found, prefer)
    except UndecidedError as error:
        raise CommandError(
            f"{error}. Nothing was changed: choose with --prefer-node which node to believe in this; "
            "what the others have is kept aside"
        ) from None
    _keep_aside(data_dir, choice)
    await write_metadata(data_dir / METADATA_FILE, metadata_of(choice, cluster_id, found))
    return choice


def _keep_aside(data_dir: Path, choice: Choice) -> None:
    """Have the nodes set aside whatever is cut from these logs, before there is metadata by which they are cut."""
    from ottla.storage.clock import SystemClock
    from ottla.storage.disk import RealDisk
    from ottla.storage.kept_logs import read_kept_logs, write_kept_logs

    disk, now_ms = RealDisk(), SystemClock().time_ms()
    for node_id in {it.node_id for it in choice.aside}:
        node_path = str(data_dir / f"node-{node_id}")
        logs = [*read_kept_logs(disk, node_path), *choice.kept_logs(node_id, now_ms)]
        write_kept_logs(disk, node_path, {(log.topic_id, log.partition): log for log in logs}.values())


async def write_metadata(path: Path, operations: list[Operation]) -> None:
    """A new cluster.sqlite; beside it first, so that half a file never looks like a whole one."""
    from ottla.metastore.sqlite import open_sqlite_store
    from ottla.storage.clock import SystemClock

    beside = path.with_name(f"{path.name}.new")
    beside.unlink(missing_ok=True)
    store = await open_sqlite_store(beside, SystemClock().time_ms)
    try:
        await store.commit([], operations)
    finally:
        await store.close()
    beside.rename(path)
