"""`ottla restore`: make a data folder from a backup, checking every byte, or from the objects of tiered topics; or
recreate the lost metadata of one.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from ottla.cli import CommandError, options
from ottla.cli.folders.backup.archive import restore
from ottla.cli.folders.backup.errors import BackupError
from ottla.cli.folders.nodes import serve_command
from ottla.storage.node_dir import node_ids_in


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", type=Path, nargs="?", metavar="BACKUP", help="the folder that `ottla backup` made")
    parser.add_argument(
        "--metadata-from-data",
        action="store_true",
        help="instead: recreate the lost cluster.sqlite of a data folder from the descriptions beside the topics' "
        "records",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="URL",
        help="instead: make a cluster from the objects of its tiered topics, at the address that ottla.remote.url had; "
        "credentials are found in the environment. It shuts the cluster out that wrote them",
    )
    parser.add_argument(
        "--cluster-id", metavar="ID", help="with --from: which cluster, if the object store has several"
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="with --from: settings as for `ottla serve`, such as node.id"
    )
    parser.add_argument(
        "--prefer-node",
        type=options.number,
        metavar="ID",
        help="with --metadata-from-data: the node to believe where folders contradict each other in what cannot be "
        "decided otherwise",
    )
    parser.add_argument(
        "--data-dir",
        type=Path,
        default=Path("ottla-data"),
        help="the folder for `ottla serve`: new, or empty (default: ottla-data)",
    )
    options.add_json(parser, instead_of="a sentence")


def run(arguments: argparse.Namespace) -> int:
    if arguments.metadata_from_data:
        from ottla.cli.folders import restore_metadata

        return restore_metadata.run(arguments)
    if arguments.source is not None:
        if arguments.backup is not None or arguments.metadata_from_data:
            raise CommandError("--from makes a folder by itself: name neither a backup nor --metadata-from-data")
        from ottla.cli.folders.objects import restore as restore_objects

        return restore_objects.run(arguments)
    if arguments.backup is None:
        raise CommandError("which backup? Name the folder that `ottla backup` made")
    progress = options.Progress("restored")
    try:
        manifest = restore(arguments.backup, arguments.data_dir, progress.set_bytes)
    except BackupError as error:
        raise CommandError(str(error)) from None
    finally:
        progress.finish()
    if arguments.json:
        print(json.dumps(manifest))
    else:
        when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(manifest["created_at_ms"] / 1000))
        command = serve_command(arguments.data_dir, node_ids_in(arguments.data_dir))
        print(f"{arguments.data_dir} is as it was on {when}: start it with `{command}`")
    return 0
