"""`ottla cluster move-metadata`: from a data folder into etcd, or back."""

from __future__ import annotations

import argparse
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.cli import CommandError
from ottla.cli.folders.backup.snapshot import node_dirs
from ottla.cli.folders.lock_holder import refuse_running
from ottla.cli.options import counted
from ottla.metadata.move import Place, move
from ottla.metadata.open_store import SQLITE_FILE, open_etcd
from ottla.metastore.address import MEMORY, SQLITE, parse_metadata_address
from ottla.metastore.errors import MetadataError
from ottla.settings.config import ConfigError

if TYPE_CHECKING:
    from ottla.settings.config import BrokerConfig


def move_metadata(arguments: argparse.Namespace) -> int:
    from ottla.settings.sources import load

    is_toml = arguments.config is not None and arguments.config.suffix == ".toml"
    try:
        config = load(
            toml=arguments.config if is_toml else None,
            properties=None if is_toml else arguments.config,
            environment=os.environ,
            flags=dict(arguments.set),
        )
        count = trio.run(_move, arguments.source, arguments.target, config)
    except (ConfigError, MetadataError) as error:
        raise CommandError(str(error)) from None
    how = f"--metadata {arguments.target}" if "://" in arguments.target else f"--data-dir {arguments.target}"
    print(f"{counted(count, 'key')} moved; start every node with {how}")
    return 0


async def _move(source: str, target: str, config: BrokerConfig) -> int:
    async with AsyncExitStack() as stack:
        places: list[Place] = []
        for text in (source, target):
            place = await _open(text, config, must_exist=not places)
            stack.push_async_callback(place.store.close)
            places.append(place)
        return await move(*places)


async def _open(text: str, config: BrokerConfig, *, must_exist: bool) -> Place:
    if "://" in text:
        try:
            address = parse_metadata_address(text)
        except ValueError as error:
            raise CommandError(f"{text}: {error}") from None
        assert address is not None
        return Place(await open_etcd(address, config), text)
    if text in (SQLITE, MEMORY):
        raise CommandError(f"name the data folder that {SQLITE_FILE} is in, or etcd://host:port,…/prefix")
    from ottla.metastore.sqlite import open_sqlite_store
    from ottla.storage.clock import SystemClock

    path = _file_in(text, must_exist=must_exist)
    return Place(await open_sqlite_store(path, SystemClock().time_ms), str(path.parent))


def _file_in(folder: str, *, must_exist: bool) -> Path:
    data_dir = Path(folder).absolute()
    path = data_dir / SQLITE_FILE
    if must_exist and not path.exists():
        raise CommandError(f"{path} is missing")
    if not data_dir.is_dir():
        raise CommandError(f"there is no folder {data_dir}")
    refuse_running(node_dirs(data_dir))
    return path
