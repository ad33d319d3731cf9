"""`ottla proxy`: stand in front of a cluster, in the foreground.

Clients connect to the proxy as they would to the cluster: each of its brokers has a port here, and every answer that
names brokers names these ports. docs/proxy.md says more. Flags override the file of `--config`.
"""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli import CommandError
from ottla.cli.serve.notify import READY, STOPPING, notify
from ottla.runtime import logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import trio

    from ottla.cli.proxy.config import Chosen
    from ottla.proxy.proxy import Proxy, Ready

logger = logging.getLogger(__name__)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", metavar="HOST:PORT[,…]", help="brokers of the cluster to ask first")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="the bootstrap address (default 127.0.0.1:19092); brokers get the ports after it; port 0: free ones",
    )
    parser.add_argument(
        "--advertise", metavar="HOST", help="the host that clients are told (default: the one that they connected to)"
    )
    parser.add_argument(
        "--listen-config",
        metavar="FILE",
        help="TLS and SASL towards clients: a broker's properties for a listener, with security.protocol and users",
    )
    parser.add_argument(
        "--upstream-config",
        metavar="FILE",
        help="TLS and SASL towards the cluster: a client's properties, as Kafka's tools take them",
    )
    parser.add_argument("--http", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz here")
    parser.add_argument("--max-connections", metavar="NUMBER", help="refuse more connections (default 10000)")
    parser.add_argument("--max-frame", metavar="SIZE", help="the largest request or answer (default 100MiB)")
    parser.add_argument("--memory", metavar="SIZE", help="for frames that are held whole (default 256MiB)")
    parser.add_argument(
        "--idle", metavar="TIME", help="end connections on which nothing moves for this long (default 11m)"
    )
    parser.add_argument("--cache", metavar="SIZE", help="keep this much of what is fetched for other readers")
    parser.add_argument("--cache-dir", metavar="DIR", help="where it is kept (default /var/tmp)")
    parser.add_argument(
        "--cache-topics", metavar="REGEX", help="topics to keep without asking whether they are compacted"
    )
    parser.add_argument("--config", type=Path, metavar="FILE", help="all of this in TOML, and the filters")
    parser.add_argument(
        "--log-format",
        choices=["auto", "console", "json"],
        default="auto",
        help="how log lines are written (default: auto)",
    )


def run(arguments: argparse.Namespace) -> int:
    from ottla.cli.proxy.config import load
    from ottla.cli.serve.trio_import import import_trio
    from ottla.proxy.errors import ProxyError

    chosen = load(arguments)
    logs.configure("INFO", arguments.log_format)
    import_trio()
    import trio

    try:
        trio.run(_serve, chosen, strict_exception_groups=True)
    except ProxyError as error:
        raise CommandError(str(error)) from None
    except BaseExceptionGroup as group:
        raise _why(group) from None
    return 0


async def _serve(chosen: Chosen) -> None:
    import trio

    from ottla.proxy.proxy import Proxy
    from ottla.proxy.shared import PLAIN_WAYS

    securities = chosen.securities
    proxy = Proxy(chosen.settings, chosen.filters, PLAIN_WAYS if securities is None else securities)
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as obeying:
            obeying.start_soon(_obey, signals, proxy, obeying.cancel_scope)
            if securities is not None:
                obeying.start_soon(securities.run)
            async with trio.open_nursery() as serving:
                ready = await serving.start(proxy.serve)
                http = None
                if chosen.http is not None:
                    from ottla.cli.proxy import http as proxy_http

                    http = await obeying.start(proxy_http.serve, proxy, chosen.http)
                _announce(ready, http)
                notify(READY, f"STATUS=forwarding on {ready.host}:{ready.port}")
            obeying.cancel_scope.cancel()
    logger.info("stopped in order")


async def _obey(signals: AsyncIterator[int], proxy: Proxy, scope: trio.CancelScope) -> None:
    """The first signal asks for an orderly end; the second one cuts short what is still waited for."""
    async for received in signals:
        name = signal.Signals(received).name
        logger.info("%s: stopping; once more to stop at once", name, extra={"signal": name})
        notify(STOPPING)
        proxy.stop()
        break
    async for _ in signals:
        scope.cancel()


def _announce(ready: Ready, http: str | None) -> None:
    """Say on standard output that it is ready: one line for people, or one JSON object for programs."""
    if sys.stdout.isatty():
        others = f", {http}" if http else ""
        found = f"{ready.brokers} brokers behind it" if ready.brokers else "upstream does not answer yet"
        print(f"proxy ready on {ready.host}:{ready.port}{others}: {found} (stop with Ctrl-C)", flush=True)
        return
    import json

    line: dict[str, Any] = {"event": "ready", "host": ready.host, "port": ready.port, "brokers": ready.brokers}
    if http:
        line["http"] = http
    print(json.dumps(line), flush=True)


def _why(group: BaseExceptionGroup[Any]) -> BaseException:
    """The first error in a group that is meant for the operator; the group itself if there is none."""
    from ottla.proxy.errors import ProxyError

    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            error = _why(error)
        if isinstance(error, (ProxyError, CommandError)):
            return CommandError(str(error))
    return group
