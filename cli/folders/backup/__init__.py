"""`ottla backup`: copy a data folder while its broker runs, or when it is stopped.

The broker is paused for a moment while the lengths of its files are noted. Everything that it had acknowledged before
that is in the copy. `ottla restore` puts it back.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from ottla.cli import CommandError, options
from ottla.cli.folders.backup.archive import back_up
from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.backup.metadata import EtcdMetadata
from ottla.cli.folders.backup.snapshot import METADATA_FILE
from ottla.runtime.version import version


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", type=Path, metavar="TARGET", help="the folder to create for the backup")
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("ottla-data"),
        help="the folder given to `ottla serve` (default: ottla-data)",
    )
    parser.add_argument(
        "--metadata",
        metavar="STORE",
        help="the --metadata of `ottla serve`, if that is etcd: the backup gets a copy, as a cluster.sqlite; how etcd "
        "lets us in is read from the environment",
    )
    options.add_json(parser, instead_of="a sentence")


def run(arguments: argparse.Namespace) -> int:
    progress = options.Progress("copied")
    try:
        metadata = None if arguments.metadata is None else EtcdMetadata(arguments.metadata)
        manifest = back_up(arguments.data_dir, arguments.target, version(), progress.set_bytes, metadata=metadata)
    except BackupError as error:
        raise CommandError(str(error)) from None
    finally:
        progress.finish()
    size_bytes = sum(file["size"] for file in manifest["files"].values())
    if arguments.json:
        print(json.dumps(manifest))
    else:
        state = "running" if manifest["was_running"] else "stopped"
        print(f"{len(manifest['files'])} files, {size_bytes:,} bytes of a {state} broker are in {arguments.target}")
        if METADATA_FILE not in manifest["files"]:
            print("without metadata: if etcd keeps it, name etcd with --metadata")
    return 0
