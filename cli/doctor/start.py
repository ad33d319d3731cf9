"""Reasons for which `ottla serve` refuses to start, by its own checks: settings, their files, the data folder."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError
from ottla.cli.access.secure import FOLDER
from ottla.cli.doctor.finding import Finding, fail
from ottla.cli.doctor.network import is_taken
from ottla.cli.folders.lock_holder import refusal, refuse_running
from ottla.cli.folders.nodes import check_lone_node
from ottla.cli.serve.config import data_dir, load_config
from ottla.cli.serve.nodes import plan
from ottla.runtime.errors import StartupError
from ottla.server.network.endpoints import listen_addresses
from ottla.server.wiring.start_checks import check_ports, refuse_without_metadata
from ottla.settings.config import BrokerConfig
from ottla.storage.disk import RealDisk
from ottla.storage.errors import UnsupportedFormatError
from ottla.storage.node_dir import read_note

if TYPE_CHECKING:
    from ottla.cli.serve.nodes.plan import Plan

_SUBJECT: Final = "data folder"


def lacks_keys(arguments: argparse.Namespace) -> bool:
    """Whether the first start with these flags makes the keys of `--secure`."""
    return bool(arguments.secure) and not (data_dir(arguments) / FOLDER).exists()


def configurations(arguments: argparse.Namespace) -> list[BrokerConfig]:
    """Of each node that `ottla serve` starts with these flags. Raises ConfigError or CommandError where it would.

    Nothing is written: where `--secure` has made no keys yet, they are made elsewhere, and are gone afterwards.
    """
    with _keys(arguments) as given:
        planned = None if arguments.nodes is None else plan.make_plan(given)
        configs = [load_config(given)] if planned is None else planned.configs
        for config in configs:
            check_ports(config)
    if given is not arguments:
        configs = [_at(config, data_dir(arguments)) for config in configs]
    _check_folder(arguments, configs, planned)
    return configs


@contextmanager
def _keys(arguments: argparse.Namespace) -> Iterator[argparse.Namespace]:
    """The flags, with a folder that has keys if `--secure` needs them."""
    if not lacks_keys(arguments):
        yield arguments
        return
    with TemporaryDirectory() as folder:
        yield argparse.Namespace(**vars(arguments) | {"data_dir": folder})


def _at(config: BrokerConfig, folder: Path) -> BrokerConfig:
    """The same settings for another data folder."""
    static = {**config.static, "log.dirs": str(folder)}
    return BrokerConfig(static, origins=config.origins, unknown_variables=config.unknown_variables)


def _check_folder(arguments: argparse.Namespace, configs: list[BrokerConfig], planned: Plan | None) -> None:
    if planned is not None:
        nodes = zip(planned.nodes, configs, strict=True)
        plan.check_settings(planned._replace(nodes=tuple(node._replace(config=config) for node, config in nodes)))
    elif arguments.memory is None and configs[0].node_id >= 0:
        check_lone_node(configs[0], folder_of(configs[0]))


def folder_of(config: BrokerConfig) -> Path:
    """The folder in which all nodes have theirs."""
    return Path((config.log_dirs or config.log_dir)[0]).absolute()


def examine_folder(config: BrokerConfig) -> Iterator[Finding]:
    """Reasons for which a node cannot use its folder; none if it can."""
    folder = folder_of(config)
    node = folder / f"node-{config.node_id}"
    if not node.is_dir():
        return
    try:
        read_note(RealDisk(), str(node))
        if config.ottla_metadata_store == "sqlite":
            refuse_without_metadata(str(folder), str(node), RealDisk())
    except UnsupportedFormatError as error:
        yield fail(_SUBJECT, str(error), "start it with the release that has written it, or choose another --data-dir")
    except StartupError as error:
        yield fail(_SUBJECT, str(error), "stop here: a start would not find the topics")
    except OSError as error:
        yield fail(_SUBJECT, f"{node} cannot be read: {error.strerror}", "run this as the broker's user")
    if any(map(is_taken, listen_addresses(config))):
        return  # By the broker that uses the folder, or somebody else: the listeners say so.
    try:
        refuse_running([node])
    except CommandError:
        yield fail(_SUBJECT, refusal(node), "stop it, or choose another --data-dir")
