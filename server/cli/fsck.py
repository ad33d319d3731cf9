"""`ottla fsck`: check a stopped node's data folder. It changes nothing.

Exit codes: 0 sound, 1 it could not be checked, 3 only what the next start repairs by itself, 4 damage.
"""

from __future__ import annotations

import argparse
import json
import os
from dataclasses import asdict

from ottla.server.cli import CommandError
from ottla.storage.disk import RealDisk
from ottla.storage.errors import StorageError
from ottla.storage.fsck import Report, check_node
from ottla.storage.node_dir import LOCK_FILE

EXIT_SOUND = 0
EXIT_REPAIRABLE = 3
EXIT_DAMAGED = 4


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "--data-dir", default="ottla-data", help="the folder given to `ottla serve` (default: ottla-data)"
    )
    parser.add_argument("--node-id", type=int, default=1, help="whose folder in it (default: 1)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of lines")


def run(arguments: argparse.Namespace) -> int:
    """Check and print what was found."""
    disk = RealDisk()
    path = os.path.join(arguments.data_dir, f"node-{arguments.node_id}")
    if not disk.is_directory(path):
        raise CommandError(f"{path} is not a node's data folder; name it with --data-dir and --node-id")
    try:
        lock = disk.lock(os.path.join(path, LOCK_FILE))
    except StorageError as error:
        raise CommandError(f"{error}; stop the broker first") from error
    try:
        report = check_node(disk, path)
    finally:
        disk.close(lock)
    exit_code = EXIT_DAMAGED if report.is_damaged else EXIT_SOUND if report.is_sound else EXIT_REPAIRABLE
    if arguments.json:
        print(json.dumps(asdict(report) | {"exit_code": exit_code}))
    else:
        _print(report)
    return exit_code


def _print(report: Report) -> None:
    for finding in report.findings:
        place = f" at byte {finding.position}" if finding.position >= 0 else ""
        print(f"{finding.severity}: {finding.path}{place}: {finding.message}")
    verdict = "sound" if report.is_sound else f"{len(report.findings)} findings"
    print(
        f"{report.stores} stores, {report.segments} segments, {report.blocks} blocks, {report.batches} batches, "
        f"{report.bytes} bytes: {verdict}"
    )
