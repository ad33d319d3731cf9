"""Which nodes `ottla serve --nodes N` starts: the settings of each, and reasons not to start them."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.cli import CommandError
from ottla.cli.folders.nodes import data_dir_of, refuse_to_leave_out
from ottla.cli.options import human_size
from ottla.cli.serve.config import data_dir, load_config
from ottla.cli.serve.memory import machine_memory
from ottla.runtime.errors import StartupError
from ottla.server.network.endpoints import listen_addresses, parse_http_address, parse_listener
from ottla.server.network.http_ports import PORTS
from ottla.server.network.listener import ListenAddress
from ottla.server.network.network import open_listening_socket

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.cli.serve.nodes.link import UnderSupervisor
    from ottla.settings.config import BrokerConfig

#: What a node takes besides its memory budget.
IDLE_BYTES: Final = 50 << 20

_EVERY_ADDRESS: Final = frozenset({"", "0.0.0.0", "::"})

#: The nodes share one disk, and each partition has one replica unless more are asked for.
_DEFAULTS: Final = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}


class NodePlan(NamedTuple):
    """One node: the flags as they would be if it were started alone, what overrides them, and the resulting
    configuration.
    """

    arguments: argparse.Namespace
    overrides: Mapping[str, str]
    config: BrokerConfig
    #: The address of its own HTTP page, once it has started.
    http_url: str | None = None
    #: The socket at which the page of all nodes asks it; None if there is no such page.
    page_socket: str | None = None

    def pinned(self, listeners: str, http_url: str | None, urls: Mapping[str, str | None]) -> NodePlan:
        """The same node on the ports that it got; `urls` has those of `http_ports` by their names."""
        overrides = {**self.overrides, "listeners": listeners}
        if http_url is not None:
            address = parse_http_address(self.config.ottla_http_listen or "")
            overrides["ottla.http.listen"] = f"{_bracketed(address.host)}:{http_url.rpartition(':')[2]}"
        for port in PORTS:
            wanted, got = port.address(self.config), urls.get(port.name)
            if wanted is not None and got is not None:
                overrides[port.setting] = f"{_bracketed(wanted.host)}:{got.rpartition(':')[2]}"
        return self._replace(overrides=overrides, config=load_config(self.arguments, overrides), http_url=http_url)

    def run(self, link: UnderSupervisor) -> int:
        """Be this node, in a process of its own; returns the exit code."""
        from ottla.cli.serve.node_process import run_node
        from ottla.runtime import logs

        config = self.config
        logs.configure(config.ottla_log_level, config.ottla_log_format.lower(), node_id=config.node_id)
        try:
            run_node(self.arguments, config, link, self.page_socket)
        except CommandError as error:
            link.failed(error)
            return 1
        return 0


class Plan(NamedTuple):
    """The nodes to start, and where the page about all of them is served; None if there is none."""

    nodes: tuple[NodePlan, ...]
    page: ListenAddress | None
    #: The data folder of `--secure`; None without it.
    secure: Path | None = None

    @property
    def configs(self) -> list[BrokerConfig]:
        return [node.config for node in self.nodes]

    def with_sockets(self, folder: Path) -> Plan:
        """The same plan with a socket in this folder for each node, at which the page asks it."""
        nodes = [node._replace(page_socket=str(folder / f"{node.config.node_id}")) for node in self.nodes]
        return self._replace(nodes=tuple(nodes))


def make_plan(arguments: argparse.Namespace) -> Plan:
    """The configuration of every node, as if it were started by itself.

    Node ids and ports count up from the configured ones; a list of addresses in one `--listen` gives each node its own.
    The page of all nodes has the HTTP port, and the nodes' own pages have the ports after it. Raises ConfigError or
    CommandError.
    """
    if arguments.memory is not None:
        raise CommandError(
            "--memory is for one node: the nodes of a cluster share files; leave out --nodes or --memory"
        )
    given = _lists_of(arguments)
    secure = _make_secure(arguments, given) if arguments.secure else None
    first = load_config(_arguments_of(arguments, given, 0))
    if first.ottla_metadata_store == "memory":
        raise CommandError("ottla.metadata.store=memory is for one node: the nodes of a cluster share it as a file")
    if first.node_id < 0:
        raise CommandError("node.id=-1 is for one node: those of --nodes are counted from the node.id of the first")
    count = arguments.nodes or _as_many_as_cores(first)
    for flag, lists in given.items():
        for addresses in lists:
            if len(addresses) not in (1, count):
                raise CommandError(
                    f"--{flag} {','.join(addresses)} names {len(addresses)} addresses for {count} nodes: "
                    "name the first one, or one for each"
                )
    nodes = tuple(_node(arguments, given, first, index) for index in range(count))
    page = parse_http_address(first.ottla_http_listen) if first.ottla_http_listen else None
    return Plan(nodes, page, secure)


def check(plan: Plan) -> None:
    """Refuse a start that cannot succeed, before anything is touched. Raises ConfigError or CommandError."""
    check_settings(plan)
    for address, flag in _ports(plan):
        try:
            open_listening_socket(address.host, address.port, 1, flag).close()
        except StartupError as error:
            raise CommandError(str(error)) from None


def check_settings(plan: Plan) -> None:
    """The same without trying the ports, which a cluster that runs has taken."""
    _check_memory(plan)
    refuse_to_leave_out(data_dir_of(plan.configs[0]), [config.node_id for config in plan.configs])
    _check_numbers(_ports(plan))


def _make_secure(arguments: argparse.Namespace, given: dict[str, list[list[str]]]) -> Path:
    """Make one certificate for the addresses of all nodes, in the data folder."""
    from ottla.cli.access.secure import make_files

    folder = data_dir(arguments)
    make_files(folder, *([text for each in given[flag] for text in each] for flag in ("listen", "advertise")))
    return folder


def _lists_of(arguments: argparse.Namespace) -> dict[str, list[list[str]]]:
    return {flag: [text.split(",") for text in getattr(arguments, flag) or []] for flag in ("listen", "advertise")}


def _arguments_of(arguments: argparse.Namespace, given: dict[str, list[list[str]]], index: int) -> argparse.Namespace:
    """The flags, with this node's address taken from every list."""
    own = {flag: [each[min(index, len(each) - 1)] for each in lists] for flag, lists in given.items()}
    return argparse.Namespace(**{**vars(arguments), **own})


def _node(
    arguments: argparse.Namespace, given: dict[str, list[list[str]]], first: BrokerConfig, index: int
) -> NodePlan:
    own = _arguments_of(arguments, given, index)
    config = load_config(own)
    node_id = str(first.node_id + index)
    defaults = {name: value for name, value in _DEFAULTS.items() if name not in config.static}
    overrides = {**defaults, "node.id": node_id, "broker.id": node_id}
    for flag, name, listeners in (
        ("listen", "listeners", config.listeners),
        ("advertise", "advertised.listeners", config.advertised_listeners),
    ):
        is_list = any(len(each) > 1 for each in given[flag])
        if listeners and not is_list:
            overrides[name] = ",".join(_shifted(text, index) for text in listeners)
    if config.ottla_http_listen:
        http = parse_http_address(config.ottla_http_listen)
        port = http.port and _port(http.port + 1 + index, config.ottla_http_listen)
        overrides["ottla.http.listen"] = f"{_bracketed(http.host)}:{port}"
    for each in PORTS:
        if (wanted := each.address(config)) is not None:
            number = wanted.port and _port(wanted.port + index, each.text(config) or "")
            overrides[each.setting] = f"{_bracketed(wanted.host)}:{number}"
    return NodePlan(own, overrides, load_config(own, overrides))


def _shifted(listener: str, by: int) -> str:
    """The same listener `by` ports further on; port 0 stays."""
    name, host, port = parse_listener(listener)
    return f"{name}://{_bracketed(host)}:{port and _port(port + by, listener)}"


def _port(port: int, of: str) -> int:
    if port > 65_535:
        raise CommandError(f"{of} leaves no room for the ports of all nodes: choose a lower port")
    return port


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _as_many_as_cores(config: BrokerConfig) -> int:
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores, _most_nodes(config)))


def _most_nodes(config: BrokerConfig) -> int:
    return machine_memory() // (config.ottla_memory_budget_bytes + IDLE_BYTES)


def _check_memory(plan: Plan) -> None:
    count, most = len(plan.configs), _most_nodes(plan.configs[0])
    if count > max(most, 1):
        needed = count * (plan.configs[0].ottla_memory_budget_bytes + IDLE_BYTES)
        raise CommandError(
            f"{count} nodes may take {human_size(needed)} of memory, and this machine has "
            f"{human_size(machine_memory())}: start at most {max(most, 1)}, or lower ottla.memory.budget.bytes"
        )


def _ports(plan: Plan) -> list[tuple[ListenAddress, str]]:
    """Every address that is listened at, with the flag that it comes from."""
    wanted = [(address, "--listen") for config in plan.configs for address in listen_addresses(config)]
    wanted += [
        (parse_http_address(config.ottla_http_listen), "--http") for config in plan.configs if config.ottla_http_listen
    ]
    wanted += [
        (address, port.flag)
        for config in plan.configs
        for port in PORTS
        if (address := port.address(config)) is not None
    ]
    if plan.page is not None:
        wanted.append((plan.page, "--http"))
    return wanted


def _check_numbers(wanted: list[tuple[ListenAddress, str]]) -> None:
    taken = Counter(address.port for address, _ in wanted if address.port)
    for address, flag in wanted:
        hosts = {other.host for other, _ in wanted if other.port == address.port}
        if address.port and taken[address.port] > 1 and (len(hosts) == 1 or hosts & _EVERY_ADDRESS):
            raise CommandError(
                f"port {address.port} is needed twice: {flag} needs a port for each node, one after the other"
            )
