"""`ottla serve`: run a broker in the foreground."""

from __future__ import annotations

import argparse
import gc
from pathlib import Path

from ottla.cli import CommandError, options
from ottla.cli.serve.config import CONSOLE_ADDRESS, data_dir, load_config
from ottla.runtime import logs

_MEMORY_MIB = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    _add_listeners(parser)
    _add_data(parser)
    _add_http(parser)
    _add_settings(parser)


def _add_listeners(parser: argparse.ArgumentParser) -> None:
    """Where clients reach the brokers, and how many there are."""
    parser.add_argument(
        "--listen",
        action="append",
        metavar="HOST:PORT",
        help="default 127.0.0.1:9092; may be repeated; port 0 takes a free port",
    )
    parser.add_argument("--port", type=options.port, help="listen on 127.0.0.1 and this port; 0 takes a free port")
    parser.add_argument(
        "--advertise",
        action="append",
        metavar="HOST[:PORT]",
        help="the address that clients are told to use; one for each --listen",
    )
    parser.add_argument(
        "--nodes",
        type=options.nodes,
        metavar="N",
        help="a cluster of this many brokers on this machine, one process each (auto: one per core), on consecutive "
        "ports, or on those of --listen HOST:PORT,HOST:PORT,…",
    )


def _add_data(parser: argparse.ArgumentParser) -> None:
    """Where records and metadata are kept."""
    parser.add_argument("--data-dir", metavar="DIR", help="where the data is kept (default: ottla-data)")
    parser.add_argument(
        "--memory",
        type=options.mib,
        nargs="?",
        const=_MEMORY_MIB,
        metavar="MIB",
        help=f"keep everything in memory and leave nothing behind; at most this much (default: {_MEMORY_MIB} MiB)",
    )
    parser.add_argument(
        "--metadata",
        metavar="STORE",
        help="where the cluster's metadata is kept: sqlite (default), or etcd://host:port,…/prefix for many machines",
    )


def _add_http(parser: argparse.ArgumentParser) -> None:
    """What is served by HTTP."""
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz here; port 0 takes a free port"
    )
    parser.add_argument(
        "--console",
        nargs="?",
        const=CONSOLE_ADDRESS,
        metavar="HOST:PORT",
        help=f"like --http, with the web console (default {CONSOLE_ADDRESS})",
    )
    parser.add_argument(
        "--registry",
        nargs="?",
        const="127.0.0.1:8081",
        metavar="HOST:PORT",
        help="serve a schema registry with Confluent's HTTP interface (default 127.0.0.1:8081)",
    )
    parser.add_argument(
        "--rest",
        nargs="?",
        const="127.0.0.1:8082",
        metavar="HOST:PORT",
        help="serve records and topics by HTTP, as Confluent's REST proxy does (default 127.0.0.1:8082)",
    )


def _add_settings(parser: argparse.ArgumentParser) -> None:
    """How the broker behaves."""
    parser.add_argument(
        "--log-format", choices=["auto", "console", "json"], help="how log lines are written (default: auto)"
    )
    parser.add_argument(
        "--secure",
        action="store_true",
        help="encrypt, ask for passwords and check access; keys and an administrator are created in the data folder",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings: a TOML file or Kafka's server.properties"
    )
    parser.add_argument(
        "--set",
        type=options.name_and_value,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting by Kafka's name; overrides the file and the environment",
    )
    parser.add_argument(
        "--debug-loop",
        type=float,
        nargs="?",
        const=0.5,
        metavar="MS",
        help="log whatever holds the event loop for this long (default 0.5 ms)",
    )


def run(arguments: argparse.Namespace) -> int:
    gc.disable()  # importing makes many objects and little garbage: collecting it would take a tenth of the start

    from ottla.cli.serve.trio_import import import_trio

    import_trio()
    from ottla.cli.serve.refused_start import leaving_nothing

    with leaving_nothing(data_dir(arguments)):
        return _serve(arguments)


def _serve(arguments: argparse.Namespace) -> int:
    if arguments.nodes is not None:
        from ottla.cli.serve.nodes import serve_nodes

        return serve_nodes(arguments)

    from ottla.cli.folders.nodes import check_lone_node, data_dir_of
    from ottla.cli.serve.node_process import Shell, run_node, with_free_id
    from ottla.cli.serve.refused_start import leaving_nothing
    from ottla.settings.config import ConfigError

    try:
        config = load_config(arguments)
        if config.node_id < 0:
            config = with_free_id(arguments, config)
        elif arguments.memory is None:
            check_lone_node(config, data_dir_of(config))
    except ConfigError as error:
        raise CommandError(str(error)) from None
    logs.configure(config.ottla_log_level, config.ottla_log_format.lower())
    with leaving_nothing(data_dir_of(config)):
        run_node(arguments, config, Shell(secure=data_dir(arguments) if arguments.secure else None))
    gc.freeze()  # else the end of the interpreter looks for garbage among all that the node had: 0.3 ms a topic
    return 0
