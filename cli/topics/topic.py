"""`ottla topic`: create, list, describe, alter and delete topics, and delete their oldest records."""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Iterable
from typing import Any

from ottla.cli import CommandError, options, where
from ottla.cli.connection import connected
from ottla.cli.setting_names import did_you_mean
from ottla.cli.topics.delete_records import delete_records
from ottla.cli.topics.describe import describe, topic_as_json
from ottla.client.admin.topics import delete_topics
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.topics.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from ottla.kproto.messages.topics.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest

HAS_ACTIONS = True

_TOPIC_RESOURCE = 2
_SET, _DELETE = 0, 1


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    for name, purpose, add_arguments in (
        ("create", "create topics", _configure_create),
        ("list", "list topics", _configure_list),
        ("describe", "show partitions with their offsets and sizes, settings, and lag", _configure_describe),
        ("alter", "add partitions, or change settings or the number of replicas", _configure_alter),
        ("delete", "delete topics and all their records", _configure_delete),
        ("delete-records", "delete the oldest records of topics", _configure_delete_records),
    ):
        action = actions.add_parser(name, help=purpose)
        add_arguments(action)
        options.add_bootstrap(action)


def _add_config(action: argparse.ArgumentParser) -> None:
    action.add_argument(
        "-c",
        "--config",
        type=options.settings,
        action="extend",
        default=[],
        metavar="NAME=VALUE[,…]",
        help="settings, separated by commas, with units if you like: retention.ms=7d; may be repeated",
    )


def _configure_create(create: argparse.ArgumentParser) -> None:
    create.add_argument("topics", nargs="+", metavar="topic")
    create.add_argument(
        "-p", "--partitions", type=options.count, default=-1, help="default: the broker's num.partitions"
    )
    create.add_argument("-r", "--replication-factor", type=options.count, default=-1, help="default: the broker's")
    _add_config(create)
    create.add_argument("--if-not-exists", action="store_true", help="do not fail if a topic exists")
    create.set_defaults(act=_create)


def _configure_list(listing: argparse.ArgumentParser) -> None:
    listing.add_argument("--internal", action="store_true", help="show internal topics, too")
    options.add_json(listing)
    listing.set_defaults(act=_list)


def _configure_describe(describing: argparse.ArgumentParser) -> None:
    describing.add_argument("topics", nargs="+", metavar="topic")
    options.add_json(describing)
    describing.set_defaults(act=describe)


def _configure_alter(alter: argparse.ArgumentParser) -> None:
    alter.add_argument("topic")
    alter.add_argument("-p", "--partitions", type=options.count, help="the new number of partitions")
    alter.add_argument(
        "-r",
        "--replication-factor",
        type=options.count,
        help="the new number of replicas; waits until they are in sync",
    )
    _add_config(alter)
    alter.add_argument("--delete-config", action="append", default=[], metavar="NAME", help="return to the default")
    alter.set_defaults(act=_alter)


def _configure_delete(delete: argparse.ArgumentParser) -> None:
    delete.add_argument("topics", nargs="+", metavar="topic")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if a topic does not exist")
    delete.set_defaults(act=_delete)


def _configure_delete_records(truncate: argparse.ArgumentParser) -> None:
    where.allow_minus(truncate)
    truncate.add_argument("partitions", nargs="+", metavar="topic[:partition,…]", help="whose records")
    truncate.add_argument(
        "--before", required=True, metavar="WHERE", help=f"the first place to keep: {where.HELP}; end: delete all"
    )
    truncate.add_argument("--dry-run", action="store_true", help="show what would be deleted, and delete nothing")
    options.add_json(truncate)
    truncate.set_defaults(act=delete_records)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        arguments.act(client, arguments)
    return 0


def _create(client: Client, arguments: argparse.Namespace) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in arguments.config]
    topics = [
        CreatableTopic(
            name=name,
            num_partitions=arguments.partitions,
            replication_factor=arguments.replication_factor,
            configs=configs,
        )
        for name in arguments.topics
    ]
    response = client.call_controller(CreateTopicsRequest(topics=topics, timeout_ms=_timeout_ms(arguments)))
    tolerated = {ErrorCode.TOPIC_ALREADY_EXISTS} if arguments.if_not_exists else set()
    names = [name for name, _ in arguments.config]
    _check(((topic.name, topic.error_code, topic.error_message) for topic in response.topics), tolerated, names)


def _list(client: Client, arguments: argparse.Namespace) -> None:
    topics = sorted(client.metadata(None).topics, key=lambda topic: topic.name or "")
    shown = [topic for topic in topics if arguments.internal or not topic.is_internal]
    if arguments.json:
        print(json.dumps([topic_as_json(topic) for topic in shown], indent=2))
        return
    options.print_table(
        ("TOPIC", "PARTITIONS", "REPLICAS"),
        ((topic.name, len(topic.partitions), _replication_factor(topic)) for topic in shown),
    )


def _alter(client: Client, arguments: argparse.Namespace) -> None:
    replicas = arguments.replication_factor
    if (arguments.partitions, replicas) == (None, None) and not arguments.config and not arguments.delete_config:
        raise CommandError("nothing to change: give --partitions, --replication-factor, --config or --delete-config")
    if arguments.partitions is not None:
        topic = CreatePartitionsTopic(name=arguments.topic, count=arguments.partitions, assignments=None)
        response = client.call_controller(CreatePartitionsRequest(topics=[topic], timeout_ms=_timeout_ms(arguments)))
        _check((r.name, r.error_code, r.error_message) for r in response.results)
    changes = [AlterableConfig(name=n, config_operation=_SET, value=v) for n, v in arguments.config]
    changes += [AlterableConfig(name=n, config_operation=_DELETE, value=None) for n in arguments.delete_config]
    if changes:
        resource = AlterConfigsResource(resource_type=_TOPIC_RESOURCE, resource_name=arguments.topic, configs=changes)
        response = client.call_controller(IncrementalAlterConfigsRequest(resources=[resource]))
        results = ((r.resource_name, r.error_code, r.error_message) for r in response.responses)
        _check(results, settings=[change.name for change in changes])
    if replicas is not None:
        from ottla.cli.cluster.moves import change_replication_factor

        change_replication_factor(client, arguments.topic, replicas)


def _delete(client: Client, arguments: argparse.Namespace) -> None:
    results = delete_topics(client, arguments.topics, _timeout_ms(arguments))
    tolerated = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION} if arguments.if_exists else set()
    _check(((r.name, r.error_code, r.error_message) for r in results), tolerated)


def _check(results: Any, tolerated: Collection[int] = (), settings: Iterable[str] = ()) -> None:
    """Raise CommandError with every failure in the answer to a request on several things; `settings` are those it
    named.
    """
    failures = [
        f"{BrokerError(code, message, what=f'topic {name}')}{did_you_mean('topic', settings, code)}"
        for name, code, message in results
        if code and code not in tolerated
    ]
    if failures:
        raise CommandError("; ".join(failures))


def _timeout_ms(arguments: argparse.Namespace) -> int:
    return int(arguments.timeout * 1000)


def _replication_factor(topic: Any) -> int:
    return max((len(partition.replica_nodes) for partition in topic.partitions), default=0)
