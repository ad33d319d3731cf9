"""`ottla table`: tables kept in step with topics, and tables sent to topics, on Spark.

Spark is an extra: without it the command says how to install it. Ends with 0 when all is done, 1 when it failed; a
sentence on stderr says why and what to do.
"""

from __future__ import annotations

import argparse
import os
import sys
from importlib.util import find_spec

HAS_ACTIONS = True


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", required=True, metavar="action")
    _configure_sync(actions.add_parser("sync", help="bring tables up to date with their topics"))
    _configure_publish(actions.add_parser("publish", help="send the rows of a table, or of a query, to a topic"))


def _configure_sync(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("config", help="the TOML file that declares topics and tables (docs/spark.md)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each batch")


def _configure_publish(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--table", metavar="PATH", help="the table's folder")
    source.add_argument("--query", metavar="SQL", help="a query, which may name tables as delta.`path`")
    parser.add_argument(
        "-b", "--bootstrap", default=None, metavar="HOST:PORT", help="default: $OTTLA_BOOTSTRAP, else 127.0.0.1:9092"
    )
    parser.add_argument(
        "--command-config",
        metavar="FILE",
        help="how to connect: a client's properties by Java's names (default: $OTTLA_COMMAND_CONFIG)",
    )
    parser.add_argument("--format", default="delta", choices=["delta", "parquet"], help="of the table (default: delta)")
    parser.add_argument("--key", metavar="COLUMN", help="the column that becomes the records' key")
    parser.add_argument("--value", metavar="COLUMN", help="one column as the value; default: the row as JSON")
    parser.add_argument(
        "--header", metavar="COLUMN", action="append", default=[], help="a column that becomes a header"
    )
    parser.add_argument(
        "--source",
        default="ottla",
        choices=["ottla", "kafka"],
        help="the writer: without a jar (the default), or Spark's",
    )
    parser.add_argument(
        "--batch-bytes",
        type=_positive,
        default=None,
        metavar="BYTES",
        help="how large a batch may be before compression (default: what the topic takes, at most 900,000)",
    )
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="a setting of Spark")


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    if find_spec("pyspark") is None:
        print("ottla table: Spark is not installed: install Ottla with its extra `spark`", file=sys.stderr)
        return 1
    from ottla.pipeline.errors import PipelineError

    try:
        if arguments.action == "sync":
            return _sync(arguments)
        return _publish(arguments)
    except PipelineError as error:
        print(f"ottla table: {error}", file=sys.stderr)
        return 1


def _sync(arguments: argparse.Namespace) -> int:
    from ottla.pipeline.tables import config, runner

    runner.run(config.load(arguments.config), as_json=arguments.json, say=lambda line: print(line, flush=True))
    return 0


def _properties(path: str | None) -> dict[str, str]:
    """What of a client's properties says how to connect."""
    if not path:
        return {}
    from ottla.client.errors import SecurityConfigError
    from ottla.client.security import SETTINGS, read_properties
    from ottla.pipeline.errors import OptionError

    try:
        return {name: value for name, value in read_properties(path).items() if name in SETTINGS}
    except SecurityConfigError as error:
        raise OptionError(f"--command-config {error}.") from None


def _publish(arguments: argparse.Namespace) -> int:
    from ottla.pipeline.tables import publish

    sent = publish.run(
        publish.Publication(
            topic=arguments.topic,
            bootstrap=arguments.bootstrap or os.environ.get("OTTLA_BOOTSTRAP", "127.0.0.1:9092"),
            table=arguments.table,
            query=arguments.query,
            format=arguments.format,
            key=arguments.key,
            value=arguments.value,
            headers=tuple(arguments.header),
            source=arguments.source,
            batch_bytes=arguments.batch_bytes,
            kafka=_properties(arguments.command_config or os.environ.get("OTTLA_COMMAND_CONFIG")),
        ),
        dict(setting.partition("=")[::2] for setting in arguments.set),
    )
    print(f"{sent:,} rows sent to {arguments.topic}")
    return 0
