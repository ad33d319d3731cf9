"""`ottla config`: the settings of topics, brokers, groups, client metrics and loggers."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import Any, Final

from ottla.cli import CommandError, options
from ottla.cli.connection import connected
from ottla.cli.setting_names import did_you_mean, own_settings
from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

HAS_ACTIONS = True

RESOURCE_TYPES: Final = {"topic": 2, "broker": 4, "logger": 8, "client-metrics": 16, "group": 32}
_OF_ONE_BROKER: Final = ("broker", "logger")
_ALL_BROKERS: Final = "all"
_OPERATIONS: Final = {"set": 0, "unset": 1, "append": 2, "subtract": 3}
_SOURCES: Final = {
    1: "topic", 2: "broker", 3: "all brokers", 4: "start", 5: "default", 6: "logger", 7: "client metrics", 8: "group",
}  # fmt: skip
_NOT_SET: Final = (4, 5)


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    get = actions.add_parser("get", help="show what is set, or with --all everything that can be set")
    _add_resource(get)
    get.add_argument("names", nargs="*", metavar="setting", help="only these, whether or not they are set")
    get.add_argument("--all", action="store_true", help="defaults, too")
    options.add_json(get)
    _add_offline(get)
    get.set_defaults(act=_get)
    for name, explanation in (
        ("set", "give settings a value"),
        ("append", "add a value to settings that are lists"),
        ("subtract", "remove a value from settings that are lists"),
    ):
        alter = actions.add_parser(name, help=explanation)
        _add_resource(alter)
        alter.add_argument("changes", nargs="+", type=options.setting, metavar="setting=value")
        alter.set_defaults(act=_alter)
    unset = actions.add_parser("unset", help="return to the default")
    _add_resource(unset)
    unset.add_argument("changes", nargs="+", type=lambda name: (name, None), metavar="setting")
    _add_offline(unset)
    unset.set_defaults(act=_alter)
    for action in (*actions.choices.values(),):
        options.add_bootstrap(action)


def _add_resource(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("type", choices=list(RESOURCE_TYPES), metavar="type", help=", ".join(RESOURCE_TYPES))
    parser.add_argument(
        "name", help=f"the name of the topic, group, …; for a broker its id, or `{_ALL_BROKERS}` for every broker"
    )


def _add_offline(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--offline", action="store_true", help="read the folder of a broker that is stopped, instead of asking one"
    )
    parser.add_argument(
        "--data-dir", default="ottla-data", metavar="DIR", help="with --offline: its folder (default: ottla-data)"
    )
    parser.add_argument("--metadata", metavar="URL", help="with --offline: the etcd of its metadata, if it has one")


def run(arguments: argparse.Namespace) -> int:
    if getattr(arguments, "offline", False):
        from ottla.cli.cluster import config_offline

        return config_offline.run(arguments, RESOURCE_TYPES[arguments.type], _resource_name(arguments))
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


def _get(client: Client, arguments: argparse.Namespace) -> None:
    asked = [arguments.names or None]
    if arguments.all and not arguments.names and (own := own_settings(arguments.type)):
        asked.append(own)
    resources = [
        DescribeConfigsResource(
            resource_type=RESOURCE_TYPES[arguments.type],
            resource_name=_resource_name(arguments),
            configuration_keys=keys,
        )
        for keys in asked
    ]
    results = _broker(client, arguments).call(DescribeConfigsRequest(resources=resources)).results
    if results[0].error_code:
        raise BrokerError(results[0].error_code, results[0].error_message, what=f"{arguments.type} {arguments.name}")
    show_all = arguments.all or arguments.names or arguments.type == "logger"
    told = {it.name: it for result in results for it in result.configs}
    found = [it for it in told.values() if show_all or it.config_source not in _NOT_SET]
    if missing := set(arguments.names) - {it.name for it in found}:
        hint = did_you_mean(arguments.type, sorted(missing), ErrorCode.INVALID_CONFIG)
        raise CommandError(
            f"a {arguments.type} has no setting {', '.join(sorted(missing))}: see them with --all.{hint}"
        )
    found.sort(key=lambda it: it.name)
    if arguments.json:
        print(json.dumps([_as_json(config) for config in found], indent=2))
        return
    options.print_table(
        ("SETTING", "VALUE", "FROM", "CHANGED"),
        (
            (
                it.name,
                "(hidden)" if it.is_sensitive else options.setting_value(it.name, it.value),
                _SOURCES.get(it.config_source, "?"),
                "at the start" if it.read_only else "at any time",
            )
            for it in found
        ),
    )


def _as_json(config: Any) -> dict[str, Any]:
    return {
        "name": config.name,
        "value": config.value,
        "source": _SOURCES.get(config.config_source, "unknown"),
        "read_only": config.read_only,
        "sensitive": config.is_sensitive,
    }


def _alter(client: Client, arguments: argparse.Namespace) -> None:
    operation = _OPERATIONS[arguments.action]
    changes: Sequence[tuple[str, str | None]] = arguments.changes
    resource = AlterConfigsResource(
        resource_type=RESOURCE_TYPES[arguments.type],
        resource_name=_resource_name(arguments),
        configs=[AlterableConfig(name=name, config_operation=operation, value=value) for name, value in changes],
    )
    (result,) = _broker(client, arguments).call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    if result.error_code:
        error = BrokerError(result.error_code, result.error_message, what=f"{arguments.type} {arguments.name}")
        hint = did_you_mean(arguments.type, (name for name, _ in changes), error.code)
        raise CommandError(f"{error}{hint}")


def _resource_name(arguments: argparse.Namespace) -> str:
    return "" if arguments.type == "broker" and arguments.name == _ALL_BROKERS else str(arguments.name)


def _broker(client: Client, arguments: argparse.Namespace) -> BrokerConnection:
    """A broker only answers for itself."""
    if arguments.type in _OF_ONE_BROKER and _resource_name(arguments):
        if not arguments.name.isdigit():
            raise CommandError(f"{arguments.name!r} is not a broker's id: write a number, or `{_ALL_BROKERS}`")
        client.metadata([])
        return client.broker(int(arguments.name))
    return client.any_broker()
