"""`ottla fsck`: check a stopped node, or all nodes in a data folder. It changes nothing unless it is asked to.

Exit codes: 0 sound (there may be notes), 1 it could not be checked, 3 only what the next start repairs by itself,
4 damage.

`--delete-unknown` names the data of topics that the cluster does not know (they were deleted while the node was down),
and with `--yes` removes it. Without the cluster's metadata it refuses: then everything would be unknown.
"""

from __future__ import annotations

import argparse
import errno
import json
import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.cli import CommandError, options
from ottla.cli.lock_holder import refusal
from ottla.cli.watched_disk import WatchedDisk, size_of
from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirLockedError, StorageError
from ottla.storage.inspect.fsck import Report, check_node
from ottla.storage.node_dir import LOCK_FILE, node_ids_in, read_note

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.metadata.store import MetadataStore
    from ottla.storage.unknown_topics import UnknownTopic

EXIT_SOUND = 0
EXIT_REPAIRABLE = 3
EXIT_DAMAGED = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--data-dir", default="ottla-data", help="the folder given to `ottla serve` (default: ottla-data)"
    )
    parser.add_argument("--node-id", type=options.number, help="the node to check (default: every node in the folder)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")
    parser.add_argument(
        "--delete-unknown",
        action="store_true",
        help="instead of checking, name the data of topics that the cluster does not know; with --yes, remove it",
    )
    parser.add_argument(
        "--metadata",
        metavar="STORE",
        help="for --delete-unknown: the --metadata of `ottla serve`, if that is etcd; how etcd lets us in is read from "
        "the environment",
    )
    parser.add_argument("--yes", action="store_true", help="really remove what --delete-unknown names")


def run(arguments: argparse.Namespace) -> int:
    """Check and print what was found."""
    data_dir = Path(arguments.data_dir)
    node_ids = node_ids_in(data_dir) if arguments.node_id is None else [arguments.node_id]
    paths = [data_dir / f"node-{node_id}" for node_id in node_ids]
    if not paths or not all(map(Path.is_dir, paths)):
        missing = (paths or [data_dir])[0]
        raise CommandError(f"{missing} is not a node's data folder; name it with --data-dir and --node-id")
    if arguments.delete_unknown:
        return _delete_unknown(arguments, node_ids)
    reports = [_check(path) for path in paths]
    metadata = data_dir / "cluster.sqlite"
    _check_metadata(metadata, reports[0])
    if arguments.json:
        shown = [asdict(report) | {"exit_code": _exit_code(report)} for report in reports]
        print(json.dumps(shown[0] if len(shown) == 1 else {"nodes": dict(zip(node_ids, shown, strict=True))}))
    else:
        for node_id, report in zip(node_ids, reports, strict=True):
            _print(report, f"node {node_id}: " if len(reports) > 1 else "", str(metadata))
    return max(map(_exit_code, reports))


def _check(path: Path) -> Report:
    """Check the folder of one node. Nobody else may use it meanwhile."""
    disk = RealDisk()
    try:
        lock = _lock(disk, path)
    except DataDirLockedError:
        raise CommandError(f"{refusal(path.absolute())}: stop it first") from None
    progress = options.Progress("checked")
    try:
        return check_node(WatchedDisk(progress, size_of([str(path)])), str(path))
    finally:
        progress.finish()
        if lock is not None:
            disk.close(lock)


def _lock(disk: RealDisk, path: Path) -> int | None:
    """The folder's lock; None where nothing can be written, so that no broker can run there either."""
    try:
        return disk.lock(str(path / LOCK_FILE))
    except OSError as error:
        if error.errno != errno.EROFS:
            raise
        return None


def _check_metadata(path: Path, report: Report) -> None:
    """What all nodes share; it is reported with the first node."""
    from ottla.server.metadata.sqlite_checks import check_file

    if path.exists():
        wrong = check_file(path)
        if wrong is not None:
            report.error(str(path), -1, wrong)
    elif report.stores:
        # If it is kept in etcd, that is as it should be.
        report.note(str(path), -1, "is missing; unless etcd keeps the metadata, see ottla restore --metadata-from-data")


def _exit_code(report: Report) -> int:
    return EXIT_DAMAGED if report.is_damaged else EXIT_SOUND if report.is_sound else EXIT_REPAIRABLE


def _print(report: Report, whose: str, metadata: str) -> None:
    notes: Counter[str] = Counter()
    wrong = 0
    for finding in report.findings:
        if finding.severity == "note" and finding.path == metadata:
            print(f"note: {finding.path} {finding.message}")
            continue
        if finding.severity == "note":
            notes[finding.message] += 1
            continue
        wrong += 1
        place = f" at byte {finding.position}" if finding.position >= 0 else ""
        print(f"{finding.severity}: {finding.path}{place}: {finding.message}")
    for message, count in notes.items():
        print(f"note: in {count} {'store' if count == 1 else 'stores'} {message}")
    verdict = "sound" if report.is_sound else f"{wrong} {'finding' if wrong == 1 else 'findings'}"
    print(
        f"{whose}{report.stores} stores, {report.segments} segments, {report.blocks} blocks, {report.batches} batches, "
        f"{report.bytes} bytes: {verdict}"
    )


def _delete_unknown(arguments: argparse.Namespace, node_ids: list[int]) -> int:
    found = [topic for node_id in node_ids for topic in _unknown(arguments, node_id)]
    if arguments.json:
        topics = [
            {"topic_id": str(topic.topic_id), "path": topic.path, "partitions": topic.partitions} for topic in found
        ]
        print(json.dumps({"unknown": topics, "removed": arguments.yes}))
        return 0
    for topic in found:
        what = "" if topic.partitions is None else f", partitions {', '.join(map(str, topic.partitions))}"
        print(f"{'removed' if arguments.yes else 'unknown'}: topic {topic.topic_id} in {topic.path}{what}")
    if not found:
        print("every topic with data is known to the cluster")
    elif not arguments.yes:
        print("nothing was removed; --yes removes it for good")
    return 0


def _unknown(arguments: argparse.Namespace, node_id: int) -> list[UnknownTopic]:
    """What a node has of topics that the cluster does not know; already removed if that was asked for."""
    try:
        return trio.run(_find_and_delete, Path(arguments.data_dir), node_id, arguments.metadata, arguments.yes)
    except* DataDirLockedError:
        folder = Path(arguments.data_dir, f"node-{node_id}").absolute()
        raise CommandError(f"{refusal(folder)}: stop it first") from None
    except* StorageError as group:
        raise CommandError(str(group.exceptions[0])) from group


async def _find_and_delete(data_dir: Path, node_id: int, metadata: str | None, delete: bool) -> list[UnknownTopic]:
    from ottla.storage.clock import SystemClock
    from ottla.storage.config import StorageConfig, StoreLayout
    from ottla.storage.log_manager import LogManager
    from ottla.storage.unknown_topics import delete_unknown, find_unknown

    cluster_id, topic_ids = await _known_topics(data_dir, metadata)
    _check_cluster(data_dir / f"node-{node_id}", cluster_id, may_be_none=metadata is None)
    # With this layout everything in the shared store is found there; other topics are known by their folders.
    config = StorageConfig(store_layout=StoreLayout.SHARED)
    manager = LogManager(RealDisk(), data_dir, config, SystemClock(), node_id=node_id)
    async with manager.run():
        found = await find_unknown(manager, topic_ids)
        if delete:
            await delete_unknown(manager, found)
    return found


def _check_cluster(node_dir: Path, cluster_id: str, *, may_be_none: bool) -> None:
    """With another cluster's metadata every topic would be unknown. `may_be_none`: the folder need not say."""
    own = (read_note(RealDisk(), str(node_dir)) or {}).get("cluster_id")
    if own != cluster_id and not (own is None and may_be_none):
        raise CommandError(
            f"{node_dir} belongs to {f'the cluster {own}' if own else 'no cluster yet'}, and the metadata is that of "
            f"{cluster_id}"
        )


async def _known_topics(data_dir: Path, metadata: str | None) -> tuple[str, set[UUID]]:
    """The id of the cluster, and those of its topics."""
    from ottla.server.metadata import keys
    from ottla.server.metadata.errors import StoreUnavailableError
    from ottla.server.metadata.move import refuse_moved

    place, store = await _open_metadata(data_dir, metadata)
    try:
        await refuse_moved(store)
        cluster = await store.get(keys.CLUSTER_ID)
        if cluster is None:
            raise CommandError(f"{place} holds no cluster: without its metadata every topic would be unknown")
        listing = await store.list(keys.TOPICS)
        return keys.decode(cluster.value), {keys.decode_topic(item.value)[0] for item in listing.entries}
    except StoreUnavailableError as error:
        raise CommandError(str(error)) from None
    finally:
        await store.close()


async def _open_metadata(data_dir: Path, metadata: str | None) -> tuple[str, MetadataStore]:
    from ottla.server.metadata.errors import StoreUnavailableError
    from ottla.server.metadata.open_store import SQLITE_FILE, open_etcd
    from ottla.server.metadata.sqlite import open_sqlite_store
    from ottla.server.settings.metadata_address import parse_metadata_address
    from ottla.server.settings.sources import load
    from ottla.storage.clock import SystemClock

    try:
        address = None if metadata is None else parse_metadata_address(metadata)
        if address is not None:
            return str(metadata), await open_etcd(address, load(environment=os.environ))
    except (ValueError, StoreUnavailableError) as error:
        raise CommandError(f"--metadata {metadata}: {error}") from None
    path = data_dir / SQLITE_FILE
    if not path.exists():
        raise CommandError(f"{path} is missing: without the cluster's metadata every topic would be unknown")
    try:
        return str(path), await open_sqlite_store(path, SystemClock().time_ms)
    except StoreUnavailableError as error:
        raise CommandError(str(error)) from None
