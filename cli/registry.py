"""`ottla registry`: a schema registry before any Kafka, in the foreground. docs/registry.md says more."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import signal
import sys
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError
from ottla.cli.serve.notify import READY, STOPPING, notify
from ottla.runtime import logs
from ottla.runtime.garbage import collect_seldom

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    import trio

    from ottla.client.security import Security
    from ottla.registry.standalone import Running

logger = logging.getLogger(__name__)

_READING_SECONDS: Final = 30.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--upstream", metavar="HOST:PORT[,…]", required=True, help="brokers of the cluster to ask first"
    )
    parser.add_argument(
        "--listen", metavar="HOST:PORT", default="127.0.0.1:8081", help="default 127.0.0.1:8081; port 0: a free one"
    )
    parser.add_argument(
        "--upstream-config",
        metavar="FILE",
        help="TLS and SASL towards the cluster: a client's properties, as Kafka's tools take them",
    )
    parser.add_argument("--topic", default="_schemas", help="where the schemas are kept (default: _schemas)")
    parser.add_argument(
        "--allowed-host", action="append", default=[], metavar="NAME", help="a name by which clients may ask for it"
    )
    parser.add_argument(
        "--log-format",
        choices=["auto", "console", "json"],
        default="auto",
        help="how log lines are written (default: auto)",
    )


def run(arguments: argparse.Namespace) -> int:
    from ottla.cli.serve.trio_import import import_trio
    from ottla.client.addresses import parse_addresses
    from ottla.client.errors import ClientError
    from ottla.client.security import NO_SECURITY, from_properties, read_properties
    from ottla.runtime.errors import StartupError
    from ottla.server.network.endpoints import parse_http_address
    from ottla.settings.config import ConfigError

    logs.configure("INFO", arguments.log_format)
    gc.disable()  # importing makes many objects and little garbage
    import_trio()
    import trio

    try:
        upstream = parse_addresses(arguments.upstream)
        security = NO_SECURITY
        if arguments.upstream_config is not None:
            security = from_properties(read_properties(arguments.upstream_config))
        listen = parse_http_address(arguments.listen, "--listen")
    except (ClientError, ConfigError) as error:
        raise CommandError(str(error)) from None
    try:
        trio.run(_serve, arguments, upstream, (listen.host, listen.port), security, strict_exception_groups=True)
    except BaseExceptionGroup as group:
        found = group.subgroup(StartupError)
        if found is None:
            raise
        reason: BaseException = found
        while isinstance(reason, BaseExceptionGroup):
            reason = reason.exceptions[0]
        raise CommandError(str(reason)) from None
    return 0


async def _serve(
    arguments: argparse.Namespace, upstream: Sequence[tuple[str, int]], listen: tuple[str, int], security: Security
) -> None:
    from functools import partial

    import trio

    from ottla.registry import standalone

    has_read = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_obey, signals, nursery.cancel_scope)
            nursery.start_soon(_collect_after_reading, has_read)
            serve = partial(
                standalone.run,
                upstream,
                listen,
                security=security,
                topic=arguments.topic,
                allowed_hosts=arguments.allowed_host,
            )
            running: Running = await nursery.start(serve)
            has_read.set()
            _announce(running)
            notify(READY, f"STATUS=schema registry on {running.url}")
    logger.info("stopped in order")


async def _collect_after_reading(has_read: trio.Event) -> None:
    """Let the garbage collector run once the topic has been read: it would look at schemas that stay, for a fifth of
    the time that reading takes. While no broker answers, its turn comes anyway.
    """
    import trio

    with trio.move_on_after(_READING_SECONDS):
        await has_read.wait()
    collect_seldom()


async def _obey(signals: AsyncIterator[int], scope: trio.CancelScope) -> None:
    async for received in signals:
        name = signal.Signals(received).name
        logger.info("%s: stopping", name, extra={"signal": name})
        notify(STOPPING)
        scope.cancel()
        return


def _announce(running: Running) -> None:
    if sys.stdout.isatty():
        print(f"schema registry ready on {running.url} (stop with Ctrl-C)", flush=True)
    else:
        print(json.dumps({"event": "ready", "registry": running.url}), flush=True)
