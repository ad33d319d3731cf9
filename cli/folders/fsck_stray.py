"""`ottla fsck --delete-stray`: name, and remove, the logs of partitions that belong to other nodes by the metadata."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.cli import CommandError
from ottla.cli.folders.fsck_metadata import check_cluster, known_topics
from ottla.cli.folders.lock_holder import refusal
from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirLockedError, StorageError
from ottla.storage.kept_logs import KEPT_CONFIG, KeptLog, read_kept_logs, write_kept_logs

if TYPE_CHECKING:
    from ottla.storage.log_manager import LogManager


def run(arguments: argparse.Namespace, node_ids: list[int]) -> int:
    """Name the stray logs of these nodes, and remove them if `--yes` was given."""
    found = [(node_id, log) for node_id in node_ids for log in _of_node(arguments, node_id)]
    if arguments.json:
        logs = [log._asdict() | {"topic_id": str(log.topic_id), "node_id": node_id} for node_id, log in found]
        print(json.dumps({"stray": logs, "removed": arguments.yes}))
        return 0
    for node_id, log in found:
        since = datetime.fromtimestamp(log.since_ms / 1000, UTC).isoformat(" ", "minutes")
        print(f"{'removed' if arguments.yes else 'stray'}: {log} in node-{node_id}, {log.offsets}, since {since}")
    if not found:
        print("no log is stray")
    elif not arguments.yes:
        print("nothing was removed; --yes removes it for good: first see that other nodes have these records")
    return 0


def _of_node(arguments: argparse.Namespace, node_id: int) -> list[KeptLog]:
    data_dir = Path(arguments.data_dir)
    try:
        return trio.run(partial(_find_and_delete, data_dir, node_id, arguments.metadata, delete=arguments.yes))
    except* DataDirLockedError:
        raise CommandError(f"{refusal((data_dir / f'node-{node_id}').absolute())}: stop it first") from None
    except* StorageError as group:
        raise CommandError(str(group.exceptions[0])) from group


async def _find_and_delete(data_dir: Path, node_id: int, metadata: str | None, *, delete: bool) -> list[KeptLog]:
    """The logs that were noted as stray, and are by the metadata as it is now."""
    from ottla.storage.clock import SystemClock
    from ottla.storage.config import StorageConfig, StoreLayout
    from ottla.storage.log_manager import LogManager

    cluster_id, topics = await known_topics(data_dir, metadata)
    check_cluster(data_dir / f"node-{node_id}", cluster_id, may_be_none=metadata is None)
    is_shared = (data_dir / f"node-{node_id}" / "shared").exists()
    config = StorageConfig(store_layout=StoreLayout.SHARED if is_shared else StoreLayout.PER_TOPIC)
    manager = LogManager(RealDisk(), data_dir, config, SystemClock(), node_id=node_id)
    async with manager.run():
        kept = read_kept_logs(RealDisk(), manager.node_dir.path)
        strays = [log for log in kept if log.is_stray and _is_elsewhere(log, topics.get(log.topic_id), node_id)]
        if delete:
            await _delete(manager, strays)
            write_kept_logs(RealDisk(), manager.node_dir.path, [log for log in kept if log not in strays])
    return strays


def _is_elsewhere(log: KeptLog, replicas: list[tuple[int, ...]] | None, node_id: int) -> bool:
    """A log of a topic that the cluster does not know is not among them: that is for `--delete-unknown`."""
    return replicas is not None and (log.partition >= len(replicas) or node_id not in replicas[log.partition])


async def _delete(manager: LogManager, logs: list[KeptLog]) -> None:
    for log in logs:
        await manager.open_log(log.topic_id, log.topic, log.partition, KEPT_CONFIG)
        await manager.delete_logs(log.topic_id, [log.partition])
