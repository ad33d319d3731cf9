"""`ottla serve`: run a broker in the foreground."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli import CommandError, options
from ottla.cli.notify import READY, STOPPING, notify
from ottla.server.telemetry import logs

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    import trio

    from ottla.server.event_loop.watchdog import LoopWatchdog
    from ottla.server.main import Node, Ready
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.disk import Disk

logger = logging.getLogger(__name__)

# A request's objects die by reference count: collections find next to nothing, and run while the tail cache fills. Each
# holds the loop for as long as it looks at what came since the last one, so they are small: 4,000 objects take 1 ms.
_GC_THRESHOLDS = (2_000, 1, 25_000)

# So long a worker thread that computes may keep the interpreter from the event loop; Python's default is 5 ms.
_SWITCH_INTERVAL_SECONDS = 0.000_5

_MEMORY_MIB = 1024


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen",
        action="append",
        metavar="HOST:PORT",
        help="default 127.0.0.1:9092; may be repeated; port 0: a free one",
    )
    parser.add_argument("--port", type=options.port, help="listen on 127.0.0.1 at this port; 0 takes a free one")
    parser.add_argument(
        "--advertise", action="append", metavar="HOST[:PORT]", help="what clients are told; one for each --listen"
    )
    parser.add_argument("--data-dir", metavar="DIR", help="where the data is kept (default: ottla-data)")
    parser.add_argument(
        "--memory",
        type=options.mib,
        nargs="?",
        const=_MEMORY_MIB,
        metavar="MIB",
        help=f"keep everything in memory, at most so much (default {_MEMORY_MIB} MiB; 2GiB), and leave nothing behind",
    )
    parser.add_argument(
        "--http", metavar="HOST:PORT", help="serve /metrics, /healthz and /readyz here; port 0: a free one"
    )
    parser.add_argument(
        "--console",
        nargs="?",
        const="127.0.0.1:8080",
        metavar="HOST:PORT",
        help="as --http, with the web console (default 127.0.0.1:8080)",
    )
    parser.add_argument(
        "--log-format", choices=["auto", "console", "json"], help="how log lines are written (default: auto)"
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
        help="log whatever holds the event loop for so long (default 0.5 ms)",
    )


def run(arguments: argparse.Namespace) -> int:
    gc.disable()  # importing makes many objects and little garbage: collecting would cost a tenth of the start

    from ottla.cli.trio_import import import_trio

    import_trio()
    import trio

    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)

    from ottla.server.errors import StartupError
    from ottla.server.main import Node
    from ottla.server.metadata.errors import MetadataError
    from ottla.server.settings.config import ConfigError
    from ottla.storage.errors import DataDirLockedError, StorageError

    try:
        config = load_config(arguments)
        logs.configure(config.ottla_log_level, config.ottla_log_format.lower())
        without_effect = config.accepted_without_effect()
        if without_effect:
            names = ", ".join(without_effect)
            logger.warning("accepted without effect: %s", names, extra={"settings": names})
        watchdog = _watchdog(arguments.debug_loop or config.ottla_loop_hold_warning_ms)
        node = Node(config, disk=_disk(arguments), watchdog=watchdog)
        instruments = [watchdog] if watchdog is not None else []
        trio.run(_serve, node, watchdog, instruments=instruments, strict_exception_groups=True)
    except DataDirLockedError:
        raise _locked(config) from None
    except (ConfigError, StartupError, MetadataError, StorageError) as error:
        raise CommandError(str(error)) from None
    except BaseExceptionGroup as group:
        if group.subgroup(DataDirLockedError) is not None:
            raise _locked(config) from None
        raise _why_it_did_not_start(group, (ConfigError, StartupError, MetadataError, StorageError)) from None
    return 0


def _locked(config: BrokerConfig) -> CommandError:
    from ottla.cli.lock_holder import refusal

    folder = Path((config.log_dirs or config.log_dir)[0]).absolute() / f"node-{config.node_id}"
    return CommandError(f"{refusal(folder)}: stop it, or choose another --data-dir")


def load_config(arguments: argparse.Namespace) -> BrokerConfig:
    """The settings that these flags, their file and the environment give; ConfigError if they are wrong."""
    from ottla.server.settings.sources import load

    flags = dict(arguments.set)
    listen = arguments.listen or []
    if arguments.port is not None:
        listen = [f"127.0.0.1:{arguments.port}", *listen]
    if listen:
        flags["listeners"] = ",".join(map(_named, range(len(listen)), listen))
        flags.setdefault(
            "listener.security.protocol.map", ",".join(f"{_name(n)}:PLAINTEXT" for n in range(len(listen)))
        )
    if arguments.advertise:
        flags["advertised.listeners"] = ",".join(
            _named(number, text if ":" in text else f"{text}:0") for number, text in enumerate(arguments.advertise)
        )
    if arguments.memory is not None:
        if arguments.memory < 1 or arguments.data_dir is not None:
            raise CommandError("give --memory at least 1 MiB, and no --data-dir: nothing is kept in a folder")
        flags["log.dirs"] = "/memory"
        flags["ottla.metadata.store"] = "memory"
    if arguments.data_dir is not None:
        flags["log.dirs"] = arguments.data_dir
    if arguments.http is not None:
        flags["ottla.http.listen"] = arguments.http
    if arguments.console is not None:
        flags["ottla.console.enable"] = "true"
        flags.setdefault("ottla.http.listen", arguments.console)
    if arguments.log_format is not None:
        flags["ottla.log.format"] = arguments.log_format
    is_toml = arguments.config is not None and arguments.config.suffix == ".toml"
    return load(
        toml=arguments.config if is_toml else None,
        properties=None if is_toml else arguments.config,
        environment=os.environ,
        flags=flags,
    )


def _disk(arguments: argparse.Namespace) -> Disk | None:
    if arguments.memory is None:
        return None
    from ottla.storage.disk.memory_disk import MemoryDisk

    return MemoryDisk(arguments.memory * 1024 * 1024)


def _name(number: int) -> str:
    return "PLAINTEXT" if number == 0 else f"PLAINTEXT_{number + 1}"


def _named(number: int, address: str) -> str:
    return f"{_name(number)}://{address}"


def _watchdog(threshold_ms: float) -> LoopWatchdog | None:
    if not threshold_ms:
        return None
    from ottla.server.event_loop.watchdog import LoopWatchdog

    return LoopWatchdog(threshold_ms)


async def _serve(node: Node, watchdog: LoopWatchdog | None) -> None:
    import trio

    with trio.open_signal_receiver(*_stop_signals()) as signals:
        async with trio.open_nursery() as obeying:
            obeying.start_soon(_obey, signals, node, watchdog, obeying.cancel_scope)
            async with trio.open_nursery() as serving:
                ready = await serving.start(node.serve)
                _settle_memory()
                if watchdog is not None:
                    watchdog.forget()
                _announce(ready)
                _warn_if_exposed(ready)
                notify(READY, f"STATUS=serving on {ready.endpoints[0].host}:{ready.endpoints[0].port}")
            obeying.cancel_scope.cancel()
    logger.info("stopped in order")


def _stop_signals() -> list[signal.Signals]:
    """A terminal that goes away asks for the end, too, unless somebody has seen to it (nohup)."""
    hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hung_up]


def _settle_memory() -> None:
    """Take what the start made out of the garbage collector's sight for good, and let it run seldom from here on."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(*_GC_THRESHOLDS)


async def _obey(
    signals: AsyncIterator[int], node: Node, watchdog: LoopWatchdog | None, scope: trio.CancelScope
) -> None:
    """The first signal asks the node to stop in order, the second one cuts short what it still waits for."""
    async for received in signals:
        name = signal.Signals(received).name
        logger.info("%s: stopping; once more to stop at once", name, extra={"signal": name})
        notify(STOPPING)
        if watchdog is not None:
            watchdog.sum_up()
        node.stop()
        break
    async for _ in signals:
        scope.cancel()


def _why_it_did_not_start(group: BaseExceptionGroup[Any], known: tuple[type[Exception], ...]) -> BaseException:
    """The first error of a group that is meant for the operator; the group itself if there is none."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            error = _why_it_did_not_start(error, known)
        if isinstance(error, known):
            return CommandError(str(error))
        if isinstance(error, CommandError):
            return error
    return group


def _announce(ready: Ready) -> None:
    """Say on standard output that the broker serves: one line for people, or one JSON object for programs."""
    endpoint = ready.endpoints[0]
    if sys.stdout.isatty():
        from ottla.server.version import version

        others = "".join(f", {other.host}:{other.port}" for other in ready.endpoints[1:])
        others += f", {ready.http_url}" if ready.http_url else ""
        print(f"Ottla {version()} ready on {endpoint.host}:{endpoint.port}{others} (stop with Ctrl-C)", flush=True)
        return
    import json

    line = {"event": "ready", "host": endpoint.host, "port": endpoint.port, "node_id": ready.node_id}
    if ready.http_url:
        line["http"] = ready.http_url
    listeners = ", ".join(f"{it.name}://{it.host}:{it.port}" for it in ready.listening)
    keys = {"node": ready.node_id, "listeners": listeners, "http": ready.http_url}
    logger.info("ready: node %d listens on %s", ready.node_id, listeners, extra=keys)
    print(json.dumps(line), flush=True)


def _warn_if_exposed(ready: Ready) -> None:
    from ottla.cli.exposure import WHAT_ANYBODY_CAN_DO, exposed

    if where := ", ".join(exposed(ready.listening, ready.endpoints)):
        advice = "keep others away by a firewall or a private network, or --listen on 127.0.0.1"
        logger.warning("%s: %s; %s", where, WHAT_ANYBODY_CAN_DO, advice, extra={"listeners": where})
