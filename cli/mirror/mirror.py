"""`ottla mirror`: exact copies of another cluster's topics, and the move from that cluster to this one.

The cluster itself does the copying while its brokers run, however often they are restarted; these commands begin, watch
and end it. `docs/mirror.md` describes a move.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Final

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.mirror.progress import MirrorBar
from ottla.cli.mirror.promote import add_promote
from ottla.cli.mirror.state import (
    CLIENT_PROPERTIES,
    GROUPS,
    SERVERS,
    TOPICS,
    add_source,
    alter_brokers,
    broker_settings,
    compare,
    connected_source,
    states,
)
from ottla.client.addresses import parse_addresses
from ottla.client.client import Client
from ottla.client.errors import AddressError
from ottla.kproto.api_keys import ApiKey

HAS_ACTIONS = True

_POLL_SECONDS: Final = 0.5
_FETCH_BY_TOPIC_ID: Final = 13


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")

    start = actions.add_parser("start", help="start copying topics of another cluster, and show the progress")
    add_source(start, required=True)
    start.add_argument(
        "--topics",
        action="append",
        default=[],
        metavar="NAMES",
        help="which topics, separated by commas, with * and ? as in file names; !name excludes (default: all)",
    )
    start.add_argument(
        "--groups",
        action="append",
        default=[],
        metavar="NAMES",
        help="the groups whose committed offsets are copied, in the same way (default: all)",
    )
    start.add_argument("--wait", action="store_true", help="return when everything is copied, instead of at once")
    start.set_defaults(act=_start)

    status = actions.add_parser("status", help="show each topic and how many records are still to be copied")
    add_source(status, required=False)
    options.add_json(status)
    status.set_defaults(act=_status)

    add_promote(actions)

    stop = actions.add_parser("stop", help="stop copying; the topics stay as they are and cannot be written to")
    stop.set_defaults(act=_stop)

    for action in actions.choices.values():
        options.add_bootstrap(action)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as here:
        return int(arguments.act(here, arguments) or 0)


def _start(here: Client, arguments: argparse.Namespace) -> None:
    try:
        servers = ",".join(f"{host}:{port}" for host, port in parse_addresses(arguments.source))
    except AddressError as error:
        raise CommandError(f"--from: {error}") from None
    known = broker_settings(here)
    if known.get(SERVERS) not in (None, "", servers):
        raise CommandError(f"this cluster already mirrors {known[SERVERS]}: `ottla mirror stop` ends that")
    with connected_source(here, arguments) as there:
        if there.metadata([]).cluster_id == here.metadata([]).cluster_id:
            raise CommandError(f"{servers} is this cluster itself, which cannot be a mirror of itself")
        if there.any_broker().version(ApiKey.FETCH) < _FETCH_BY_TOPIC_ID:
            raise CommandError(f"{servers} is older than Kafka 3.1: a mirror needs the ids of topics")
        settings: dict[str, str | None] = {
            SERVERS: servers,
            TOPICS: ",".join(arguments.topics) or None,
            GROUPS: ",".join(arguments.groups) or None,
            CLIENT_PROPERTIES: _text(arguments.source_config),
        }
        alter_brokers(here, settings)
        bar = MirrorBar()
        if not (bar.is_shown or arguments.wait):
            print(f"{servers} is mirrored from now on: `ottla mirror status` says how far it is")
            return
        try:
            _follow(here, there, ",".join(arguments.topics), bar, until_equal=arguments.wait)
        except KeyboardInterrupt:
            print("\nthe cluster continues to mirror: see `ottla mirror status`, `ottla mirror stop`")


def _text(config: Path | None) -> str | None:
    return None if config is None else config.read_text(encoding="utf-8")


def _follow(here: Client, there: Client, topics: str, bar: MirrorBar, *, until_equal: bool) -> None:
    while True:
        found = compare(here, there, topics)
        bar.show(found)
        if until_equal and found.is_whole:
            bar.finish()
            offsets = options.counted(found.records, "offset")
            print(f"the same here as there: {options.counted(len(found.topics), 'topic')}, {offsets}")
            return
        time.sleep(_POLL_SECONDS)


def _status(here: Client, arguments: argparse.Namespace) -> None:
    settings = broker_settings(here)
    servers = arguments.source or settings.get(SERVERS)
    if not servers:
        listed = [state._asdict() for state in states(here, None)]
    else:
        with connected_source(here, arguments) as there:
            listed = [state._asdict() for state in states(here, there, settings.get(TOPICS) or "*")]
    if arguments.json:
        print(json.dumps({"source": settings.get(SERVERS) or None, "topics": listed}, indent=2))
        return
    print(f"mirrors {settings[SERVERS]}" if settings.get(SERVERS) else "mirrors nothing now")
    if listed:
        options.print_table(
            ("TOPIC", "PARTITIONS", "LAG", "STATE"),
            ((it["topic"], it["partitions"], "?" if it["lag"] is None else it["lag"], it["state"]) for it in listed),
        )


def _stop(here: Client, _arguments: argparse.Namespace) -> None:
    if not broker_settings(here).get(SERVERS):
        raise CommandError("this cluster mirrors nothing now")
    alter_brokers(here, dict.fromkeys((SERVERS, TOPICS, GROUPS, CLIENT_PROPERTIES)))
    print("nothing is copied any more: `ottla mirror promote` makes the topics writable, and `start` continues")
