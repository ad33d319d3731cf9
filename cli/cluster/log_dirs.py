"""`ottla log-dirs`: how much of the disk each partition takes, and how much is left."""

from __future__ import annotations

import argparse
import json
from typing import Any

from ottla.cli import options
from ottla.cli.connection import connected
from ottla.client.client import Client
from ottla.client.errors import BrokerError
from ottla.kproto.messages.data.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="topic", help="only these (default: all)")
    parser.add_argument("--partitions", action="store_true", help="a line for each partition, not for each topic")
    options.add_json(parser)
    options.add_bootstrap(parser)


def run(arguments: argparse.Namespace) -> int:
    with connected(arguments) as client:
        folders = _ask(client, arguments.topics)
    if arguments.json:
        print(json.dumps(folders, indent=2))
        return 0
    for folder in folders:
        space = f", {_size(folder['free'])} of {_size(folder['total'])} free" if folder["total"] >= 0 else ""
        print(f"broker {folder['broker']}: {folder['path']}{space}")
        if arguments.partitions:
            options.print_table(
                ("  TOPIC", "PARTITION", "SIZE"),
                ((f"  {name}", p, _size(n)) for name, sizes in folder["topics"].items() for p, n in sizes.items()),
            )
        else:
            options.print_table(
                ("  TOPIC", "PARTITIONS", "SIZE"),
                ((f"  {name}", len(sizes), _size(sum(sizes.values()))) for name, sizes in folder["topics"].items()),
            )
    return 0


def _ask(client: Client, names: list[str]) -> list[dict[str, Any]]:
    asked = None
    if names:
        topics = [client.topic(name) for name in names]
        asked = [
            DescribableLogDirTopic(topic=topic.name or "", partitions=[p.partition_index for p in topic.partitions])
            for topic in topics
        ]
    folders = []
    for broker in sorted(client.metadata([]).brokers, key=lambda it: it.node_id):
        answer = client.broker(broker.node_id).call(DescribeLogDirsRequest(topics=asked))
        if answer.error_code:
            raise BrokerError(answer.error_code, what=f"broker {broker.node_id}")
        for result in answer.results:
            if result.error_code:
                raise BrokerError(result.error_code, what=f"broker {broker.node_id}, {result.log_dir}")
            topics_here = {
                topic.name: {p.partition_index: p.partition_size for p in _in_order(topic.partitions)}
                for topic in sorted(result.topics, key=lambda it: it.name)
            }
            folders.append(
                {
                    "broker": broker.node_id,
                    "path": result.log_dir,
                    "total": result.total_bytes,
                    "free": result.usable_bytes,
                    "topics": topics_here,
                }
            )
    return folders


def _in_order(partitions: Any) -> Any:
    return sorted(partitions, key=lambda it: it.partition_index)


def _size(size_bytes: int) -> str:
    return options.human_size(size_bytes)
