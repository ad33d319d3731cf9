"""`ottla tier`: what is in the object store of tiered topics.

The cluster says where the object store is, unless an option or the environment does. Records are counted by their
offsets. Bytes that are nowhere else are those of whole segments: there may be a few more.
"""

from __future__ import annotations

import argparse

from ottla.cli import CommandError, options
from ottla.cli.tiers.place import add_place

HAS_ACTIONS = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    status = actions.add_parser(
        "status", help="show what is there of each partition, and what of it is on no leader's disk"
    )
    status.add_argument("topics", nargs="*", metavar="topic", help="only these (default: all)")
    add_place(status, otherwise="what --config, the environment or the cluster says")
    status.add_argument("--offline", action="store_true", help="look at the object store alone, and ask no broker")
    status.add_argument(
        "--cluster-id", metavar="ID", help="with --offline: only this cluster's topics (default: all that are there)"
    )
    options.add_json(status)
    options.add_bootstrap(status)


def run(arguments: argparse.Namespace) -> int:
    from ottla.cli.tiers.status import status

    if arguments.cluster_id is not None and not arguments.offline:
        raise CommandError("--cluster-id is for --offline: a broker knows of which cluster it is")
    return status(arguments)
