"""A process that is a node: how it starts, who may ask it to stop, and what it reports when it serves."""

from __future__ import annotations

import faulthandler
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from ottla.cli import CommandError
from ottla.cli.serve.notify import READY, STOPPING, notify
from ottla.runtime.garbage import collect_seldom

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Sequence

    from ottla.runtime.watchdog import LoopWatchdog
    from ottla.server.main import Node, Ready
    from ottla.settings.config import BrokerConfig
    from ottla.storage.disk import Disk

logger = logging.getLogger(__name__)

# How long a computing worker thread may keep the interpreter from the event loop; Python's default is 5 ms.
_SWITCH_INTERVAL_SECONDS = 0.000_5
_STDERR = 2


class Starter(Protocol):
    """The process that has started this one."""

    #: These ask it to stop; a second one cuts short what it still waits for.
    stop_signals: Sequence[signal.Signals]

    def ready(self, ready: Ready) -> None:
        """The node is now serving."""

    async def follow(self, stop: Callable[[], None], cut_short: Callable[[], None]) -> None:
        """Ask the node to stop, by other means than signals; cancelled when the node has ended."""


class Shell:
    """A person, a script or a service manager, who reads standard output and sends signals."""

    def __init__(self, secure: Path | None = None) -> None:
        """`secure` is the data folder of `--secure`; with it, how to connect is printed as well."""
        self._secure = secure
        # A terminal that is closed asks for the end, too, unless that is ignored (nohup).
        hung_up = [] if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN else [signal.SIGHUP]
        self.stop_signals: Sequence[signal.Signals] = (signal.SIGTERM, signal.SIGINT, *hung_up)

    def ready(self, ready: Ready) -> None:
        _announce(ready)
        if self._secure is not None:
            from ottla.cli.access.secure import tell

            tell(self._secure, f"{ready.endpoints[0].host}:{ready.endpoints[0].port}")
        notify(READY, f"STATUS=serving on {ready.endpoints[0].host}:{ready.endpoints[0].port}")

    async def follow(self, stop: Callable[[], None], cut_short: Callable[[], None]) -> None:
        """Only signals ask for the end."""


def with_free_id(arguments: argparse.Namespace, config: BrokerConfig) -> BrokerConfig:
    """The configuration with the id that the node has or gets in its cluster. Raises CommandError if there is none."""
    import trio

    from ottla.cli.serve.config import load_config
    from ottla.metadata.free_ids import find_node_id
    from ottla.metastore.errors import MetadataError
    from ottla.runtime.errors import StartupError
    from ottla.storage.clock import SystemClock

    try:
        node_id = str(trio.run(find_node_id, config, SystemClock()))
    except (StartupError, MetadataError) as error:
        raise CommandError(str(error)) from None
    return load_config(arguments, {"node.id": node_id, "broker.id": node_id})


def run_node(
    arguments: argparse.Namespace, config: BrokerConfig, starter: Starter, page_socket: str | None = None
) -> None:
    """Run the node of this configuration until it is asked to stop. Raises CommandError if it cannot start.

    At the path `page_socket` the page of all nodes can ask for whatever the HTTP port serves.
    """
    import trio

    from ottla.metastore.errors import MetadataError
    from ottla.runtime.errors import StartupError
    from ottla.server.main import Node
    from ottla.settings.config import ConfigError
    from ottla.storage.errors import DataDirLockedError, StorageError

    sys.setswitchinterval(_SWITCH_INTERVAL_SECONDS)
    faulthandler.enable(_STDERR)  # if the interpreter or a native library crashes, the log says where
    try:
        for unknown in config.unknown_variables:
            logger.warning("ignored an unknown setting in the environment: %s", unknown, extra={"variable": unknown})
        without_effect = config.accepted_without_effect()
        if without_effect:
            names = ", ".join(without_effect)
            logger.warning("accepted without effect: %s", names, extra={"settings": names})
        watchdog = _watchdog(arguments.debug_loop or config.ottla_loop_hold_warning_ms)
        node = Node(config, disk=_disk(arguments), watchdog=watchdog, page_socket=page_socket)
        instruments = [watchdog] if watchdog is not None else []
        trio.run(_serve, node, starter, watchdog, instruments=instruments, strict_exception_groups=True)
    except DataDirLockedError:
        raise _locked(config) from None
    except (ConfigError, StartupError, MetadataError, StorageError) as error:
        raise CommandError(str(error)) from None
    except BaseExceptionGroup as group:
        if group.subgroup(DataDirLockedError) is not None:
            raise _locked(config) from None
        raise _why_it_did_not_start(group, (ConfigError, StartupError, MetadataError, StorageError)) from None


def _locked(config: BrokerConfig) -> CommandError:
    from ottla.cli.folders.lock_holder import refusal

    folder = Path((config.log_dirs or config.log_dir)[0]).absolute() / f"node-{config.node_id}"
    return CommandError(f"{refusal(folder)}: stop it, or choose another --data-dir")


def _disk(arguments: argparse.Namespace) -> Disk | None:
    if arguments.memory is None:
        return None
    from ottla.storage.disk.memory_disk import MemoryDisk

    return MemoryDisk(arguments.memory * 1024 * 1024)


def _watchdog(threshold_ms: float) -> LoopWatchdog | None:
    if not threshold_ms:
        return None
    from ottla.runtime.watchdog import LoopWatchdog

    return LoopWatchdog(threshold_ms)


async def _serve(node: Node, starter: Starter, watchdog: LoopWatchdog | None) -> None:
    import trio

    def stop() -> None:
        if watchdog is not None:
            watchdog.sum_up()
        node.stop()

    with trio.open_signal_receiver(*starter.stop_signals) as signals:
        async with trio.open_nursery() as obeying:
            obeying.start_soon(_obey, signals, stop, obeying.cancel_scope.cancel)
            obeying.start_soon(starter.follow, stop, obeying.cancel_scope.cancel)
            async with trio.open_nursery() as serving:
                ready = await serving.start(node.serve)
                collect_seldom()
                if watchdog is not None:
                    watchdog.forget()
                _log_ready(ready)
                starter.ready(ready)
                _warn_if_exposed(ready)
            obeying.cancel_scope.cancel()
    logger.info("stopped in order")


async def _obey(signals: AsyncIterator[int], stop: Callable[[], None], cut_short: Callable[[], None]) -> None:
    """The first signal asks the node to stop in order; the second one cuts short what it still waits for."""
    async for received in signals:
        name = signal.Signals(received).name
        logger.info("%s: stopping; once more to stop at once", name, extra={"signal": name})
        notify(STOPPING)
        stop()
        break
    async for _ in signals:
        cut_short()


def _why_it_did_not_start(group: BaseExceptionGroup[Any], known: tuple[type[Exception], ...]) -> BaseException:
    """The first error in a group that is meant for the operator; the group itself if there is none."""
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            error = _why_it_did_not_start(error, known)
        if isinstance(error, known):
            return CommandError(str(error))
        if isinstance(error, CommandError):
            return error
    return group


def _announce(ready: Ready) -> None:
    """Say on standard output that the broker is ready: one line for people, or one JSON object for programs."""
    endpoint = ready.endpoints[0]
    if sys.stdout.isatty():
        from ottla.runtime.version import version

        others = "".join(f", {other.host}:{other.port}" for other in ready.endpoints[1:])
        others += f", {ready.http_url}" if ready.http_url else ""
        others += f", schema registry {ready.registry_url}" if ready.registry_url else ""
        others += f", REST proxy {ready.rest_url}" if ready.rest_url else ""
        print(f"Ottla {version()} ready on {endpoint.host}:{endpoint.port}{others} (stop with Ctrl-C)", flush=True)
        return
    import json

    line = {"event": "ready", "host": endpoint.host, "port": endpoint.port, "node_id": ready.node_id}
    if ready.http_url:
        line["http"] = ready.http_url
    if ready.registry_url:
        line["registry"] = ready.registry_url
    if ready.rest_url:
        line["rest"] = ready.rest_url
    print(json.dumps(line), flush=True)


def _log_ready(ready: Ready) -> None:
    """For the log; on a terminal the ready line says it."""
    if sys.stdout.isatty():
        return
    listeners = ", ".join(f"{it.name}://{it.host}:{it.port}" for it in ready.listening)
    keys = {
        "node": ready.node_id,
        "listeners": listeners,
        "http": ready.http_url,
        "registry": ready.registry_url,
        "rest": ready.rest_url,
    }
    logger.info("ready: node %d listens on %s", ready.node_id, listeners, extra=keys)


def _warn_if_exposed(ready: Ready) -> None:
    from ottla.cli.access.exposure import WHAT_ANYBODY_CAN_DO, exposed, exposed_console, exposed_ports

    config = ready.broker.config
    others = exposed_console(config) + exposed_ports(config)
    if where := ", ".join(exposed(ready.listening, ready.endpoints, config) + others):
        advice = "set up authentication, keep others away with a firewall, or --listen on 127.0.0.1"
        logger.warning("%s: %s; %s", where, WHAT_ANYBODY_CAN_DO, advice, extra={"listeners": where})
