"""`ottla cluster`: the brokers, the features and the APIs of a cluster, where its replicas and its metadata are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from ottla.cli import options
from ottla.cli.cluster.health import health
from ottla.cli.cluster.moves import balance, drain
from ottla.cli.connection import connected
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.cluster.describe_cluster import DescribeClusterRequest

HAS_ACTIONS = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    describe = actions.add_parser("describe", help="show the cluster's id, controller and brokers")
    describe.set_defaults(act=_describe)
    features = actions.add_parser("features", help="show the features and their levels")
    features.set_defaults(act=_features)
    apis = actions.add_parser("apis", help="show which APIs a broker serves, in which versions")
    apis.set_defaults(act=_apis)
    checking = actions.add_parser("health", help="say in a line whether all is well; exit code 1 if not")
    checking.set_defaults(act=health)
    draining = actions.add_parser(
        "drain", help="move every replica of a broker to the others, so that it can be removed"
    )
    draining.add_argument("broker", type=options.number)
    draining.set_defaults(act=drain)
    balancing = actions.add_parser("balance", help="move replicas, so that each broker holds about as many")
    balancing.set_defaults(act=balance)
    for action in (describe, features, apis, checking):
        options.add_json(action)
    for action in (draining, balancing):
        action.add_argument("--dry-run", action="store_true", help="show what would move, and move nothing")
        action.add_argument("--no-wait", action="store_true", help="do not wait until everything has moved")
    for action in (describe, features, apis, checking, draining, balancing):
        options.add_bootstrap(action)
    move = actions.add_parser("move-metadata", help="move the metadata of a stopped cluster, into etcd or back")
    move.set_defaults(act=None)
    for flag, dest in (("--from", "source"), ("--to", "target")):
        move.add_argument(
            flag, dest=dest, required=True, metavar="PLACE", help="a data folder, or etcd://host:port,…/prefix"
        )
    move.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as for `ottla serve`: how to log in to etcd"
    )
    move.add_argument(
        "--set", type=options.name_and_value, action="append", default=[], metavar="NAME=VALUE", help="one setting"
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.act is None:
        from ottla.cli.cluster.move_metadata import move_metadata

        return move_metadata(arguments)
    with connected(arguments) as client:
        return int(arguments.act(client, arguments) or 0)


def _describe(client: Client, arguments: argparse.Namespace) -> None:
    cluster = client.call(DescribeClusterRequest())
    if cluster.error_code:
        raise BrokerError(cluster.error_code, cluster.error_message)
    brokers = sorted(cluster.brokers, key=lambda broker: broker.broker_id)
    if arguments.json:
        described = {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "brokers": [
                {"id": it.broker_id, "host": it.host, "port": it.port, "rack": it.rack, "fenced": it.is_fenced}
                for it in brokers
            ],
        }
        print(json.dumps(described, indent=2))
        return
    print(f"cluster {cluster.cluster_id}")
    options.print_table(
        ("BROKER", "ADDRESS", "RACK", "ROLE"),
        (
            (
                it.broker_id,
                f"{it.host}:{it.port}",
                it.rack or "-",
                "fenced" if it.is_fenced else "controller" if it.broker_id == cluster.controller_id else "",
            )
            for it in brokers
        ),
    )


def _features(client: Client, arguments: argparse.Namespace) -> None:
    answer = _api_versions(client)
    finalized = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    rows = [
        {"feature": it.name, "min": it.min_version, "max": it.max_version, "finalized": finalized.get(it.name, 0)}
        for it in sorted(answer.supported_features, key=lambda it: it.name)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    options.print_table(("FEATURE", "MIN", "MAX", "FINALIZED"), (tuple(row.values()) for row in rows))


def _apis(client: Client, arguments: argparse.Namespace) -> None:
    rows = [
        {"key": it.api_key, "api": _name(it.api_key), "min": it.min_version, "max": it.max_version}
        for it in sorted(_api_versions(client).api_keys, key=lambda it: it.api_key)
    ]
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    options.print_table(("KEY", "API", "MIN", "MAX"), (tuple(row.values()) for row in rows))


def _api_versions(client: Client) -> Any:
    answer = client.call(ApiVersionsRequest(client_software_name="ottla", client_software_version="0"))
    if answer.error_code:
        raise BrokerError(answer.error_code)
    return answer


def _name(key: int) -> str:
    try:
        return ApiKey(key).kafka_name
    except ValueError:
        return "(unknown here)"
