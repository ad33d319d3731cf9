"""The settings that the flags of `ottla serve` stand for."""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.cli import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.settings.config import BrokerConfig

CONSOLE_ADDRESS: Final = "127.0.0.1:8080"


def load_config(arguments: argparse.Namespace, overrides: Mapping[str, str] | None = None) -> BrokerConfig:
    """The settings from these flags, their file and the environment; `overrides` wins over all of them.

    Raises ConfigError if they are wrong.
    """
    from ottla.settings.sources import load

    flags = dict(arguments.set)
    _set_listeners(flags, arguments)
    if arguments.memory is not None:
        if arguments.memory < 1 or arguments.data_dir is not None:
            raise CommandError("give --memory at least 1 MiB, and no --data-dir: nothing is kept in a folder")
        flags["log.dirs"] = "/memory"
        flags["ottla.metadata.store"] = "memory"
    if arguments.metadata is not None:
        if arguments.memory is not None:
            raise CommandError("with --memory the metadata is in memory as well: leave out --metadata")
        flags["ottla.metadata.store"] = arguments.metadata
    if arguments.data_dir is not None:
        flags["log.dirs"] = arguments.data_dir
    if arguments.http is not None:
        flags["ottla.http.listen"] = arguments.http
    if arguments.console is not None:
        if arguments.http not in (None, arguments.console) and arguments.console != CONSOLE_ADDRESS:
            raise CommandError("the console is at the address of --http: give --console none of its own")
        flags["ottla.console.enable"] = "true"
        flags.setdefault("ottla.http.listen", arguments.console)
    if arguments.registry is not None:
        flags["ottla.registry.listeners"] = arguments.registry
    if arguments.rest is not None:
        flags["ottla.rest.listeners"] = arguments.rest
    if arguments.log_format is not None:
        flags["ottla.log.format"] = arguments.log_format
    flags.update(overrides or {})
    is_toml = arguments.config is not None and arguments.config.suffix == ".toml"
    return load(
        toml=arguments.config if is_toml else None,
        properties=None if is_toml else arguments.config,
        environment=os.environ,
        flags=flags,
    )


def _set_listeners(flags: dict[str, str], arguments: argparse.Namespace) -> None:
    """Set the listeners, their protocols, and the advertised addresses."""
    listen = arguments.listen or []
    if arguments.port is not None:
        listen = [f"127.0.0.1:{arguments.port}", *listen]
    for text in listen:
        if ":" not in text or not text.rpartition(":")[2].isdecimal():
            raise CommandError(f"{text!r} is not an address to listen on: write HOST:PORT")
    if listen:
        flags["listeners"] = ",".join(map(_named, range(len(listen)), listen))
        flags.setdefault(
            "listener.security.protocol.map", ",".join(f"{_name(n)}:PLAINTEXT" for n in range(len(listen)))
        )
    if arguments.secure:
        flags.pop("listener.security.protocol.map", None)
        flags.update(_secure(arguments, listen))
    if arguments.advertise:
        flags["advertised.listeners"] = ",".join(
            _named(number, text if ":" in text else f"{text}:0", is_secure=arguments.secure)
            for number, text in enumerate(arguments.advertise)
        )


def _secure(arguments: argparse.Namespace, listen: list[str]) -> dict[str, str]:
    if arguments.memory is not None:
        raise CommandError("--secure keeps keys in the data folder: leave out --memory")
    from ottla.cli.access.secure import settings

    return settings(data_dir(arguments), listen, arguments.advertise or [])


def data_dir(arguments: argparse.Namespace) -> Path:
    """The folder in which `--secure` keeps its files."""
    return Path(arguments.data_dir or "ottla-data")


def _name(number: int) -> str:
    return "PLAINTEXT" if number == 0 else f"PLAINTEXT_{number + 1}"


def _named(number: int, address: str, *, is_secure: bool = False) -> str:
    return f"{'SASL_SSL' if is_secure else _name(number)}://{address}"
