"""`ottla fsck`: check a stopped node, or all nodes in a data folder. It changes nothing unless it is asked to.

Exit codes: 0 sound (there may be notes), 1 it could not be checked, 3 only what the next start repairs by itself,
4 damage.

`--delete-unknown` names the data of topics that the cluster does not know (they were deleted while the node was down),
and with `--yes` removes it. Without the cluster's metadata it refuses: then everything would be unknown.
`--delete-stray` does the same with the logs of partitions that, by the metadata, other nodes have.

`--remote` checks the object store of tiered topics instead, while their brokers run or not: whether all is there that
manifests name, and with `--read-all` whether every byte is what was uploaded. It cannot tell that a manifest is gone.
"""

from __future__ import annotations

import argparse
import errno
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.cli import CommandError, options
from ottla.cli.folders import fsck_stray
from ottla.cli.folders.fsck_metadata import check_cluster, known_topics
from ottla.cli.folders.lock_holder import refusal
from ottla.cli.folders.watched_disk import WatchedDisk, size_of
from ottla.cli.tiers.place import add_place
from ottla.storage.disk import RealDisk
from ottla.storage.errors import DataDirLockedError, StorageError
from ottla.storage.inspect.fsck import Report, check_node
from ottla.storage.kept_logs import KEPT_FILE, read_kept_logs, write_kept_logs
from ottla.storage.node_dir import LOCK_FILE, node_ids_in

if TYPE_CHECKING:
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
        "--delete-stray",
        action="store_true",
        help="instead of checking, name the logs of partitions that other nodes have by the cluster's metadata; with "
        "--yes, remove them",
    )
    parser.add_argument(
        "--metadata",
        metavar="STORE",
        help="for --delete-unknown and --delete-stray: the --metadata of `ottla serve`, if that is etcd; how etcd lets "
        "us in is read from the environment",
    )
    parser.add_argument(
        "--yes", action="store_true", help="really remove what --delete-unknown or --delete-stray names"
    )
    parser.add_argument(
        "--remote", action="store_true", help="check the object store of tiered topics instead of a data folder"
    )
    add_place(parser, otherwise="what --config or the environment says")
    parser.add_argument(
        "--cluster-id", metavar="ID", help="for --remote: only this cluster's topics (default: all that are there)"
    )
    parser.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC",
        help="for --remote: only this topic; may be repeated (default: all)",
    )
    parser.add_argument(
        "--read-all",
        action="store_true",
        help="for --remote: read all batches and compare their checksums, not only the indexes of segments",
    )


def run(arguments: argparse.Namespace) -> int:
    """Check and print what was found."""
    if arguments.remote:
        return _check_remote(arguments)
    data_dir = Path(arguments.data_dir)
    node_ids = node_ids_in(data_dir) if arguments.node_id is None else [arguments.node_id]
    paths = [data_dir / f"node-{node_id}" for node_id in node_ids]
    if not paths or not all(map(Path.is_dir, paths)):
        missing = (paths or [data_dir])[0]
        raise CommandError(f"{missing} is not a node's data folder; name it with --data-dir and --node-id")
    if arguments.delete_unknown:
        return _delete_unknown(arguments, node_ids)
    if arguments.delete_stray:
        return fsck_stray.run(arguments, node_ids)
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


def _check_remote(arguments: argparse.Namespace) -> int:
    from ottla.cli.tiers import fsck_remote

    if arguments.delete_unknown or arguments.delete_stray:
        raise CommandError("--remote removes nothing: brokers sweep what no manifest names")
    return fsck_remote.run(arguments)


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
    """Check the metadata that all nodes share; it is reported with the first node."""
    from ottla.metastore.sqlite_checks import check_file

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
        if finding.severity == "note" and (finding.path == metadata or Path(finding.path).name == KEPT_FILE):
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
    """The node's data of topics that the cluster does not know; already removed if that was asked for."""
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

    cluster_id, topics = await known_topics(data_dir, metadata)
    check_cluster(data_dir / f"node-{node_id}", cluster_id, may_be_none=metadata is None)
    # With this layout everything in the shared store is found there; other topics are known by their folders.
    config = StorageConfig(store_layout=StoreLayout.SHARED)
    manager = LogManager(RealDisk(), data_dir, config, SystemClock(), node_id=node_id)
    async with manager.run():
        found = await find_unknown(manager, topics.keys())
        if delete:
            await delete_unknown(manager, found)
            node_path, unknown = manager.node_dir.path, {topic.topic_id for topic in found}
            kept = [log for log in read_kept_logs(RealDisk(), node_path) if log.topic_id not in unknown]
            write_kept_logs(RealDisk(), node_path, kept)
    return found
