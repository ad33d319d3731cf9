"""The metadata of a backup where etcd keeps it: copied into a `cluster.sqlite`, which is what a restored folder has."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.cli.backup.errors import BackupError

if TYPE_CHECKING:
    from ottla.server.metadata.store import KeyValue, MetadataStore, Operation

_BATCH_KEYS: Final = 1_000


def copy_from_etcd(address: str, target: Path) -> None:
    """Everything except what is on leases, as it is at one moment. Raises BackupError if it cannot be read."""
    from ottla.server.metadata.errors import MetadataError
    from ottla.server.settings.config import ConfigError

    try:
        trio.run(_copy, address, target)
    except (MetadataError, ConfigError) as error:
        raise BackupError(f"--metadata {address}: {error}") from None


async def _copy(text: str, target: Path) -> None:
    from ottla.server.metadata import keys
    from ottla.server.metadata.open_store import open_etcd
    from ottla.server.metadata.sqlite import open_sqlite_store
    from ottla.server.settings.metadata_address import parse_metadata_address
    from ottla.server.settings.sources import load
    from ottla.storage.clock import SystemClock

    try:
        address = parse_metadata_address(text)
    except ValueError as error:
        raise BackupError(f"--metadata {text}: {error}") from None
    if address is None:
        raise BackupError(f"--metadata {text}: use it only with etcd://host:port,…/prefix")
    source = await open_etcd(address, load(environment=os.environ))
    try:
        entries = (await source.list("")).entries
    finally:
        await source.close()
    if not any(entry.key == keys.CLUSTER_ID for entry in entries):
        raise BackupError(f"{text} holds no cluster")
    store = await open_sqlite_store(target, SystemClock().time_ms)
    try:
        await _fill(store, entries)
    finally:
        await store.close()


async def _fill(store: MetadataStore, entries: tuple[KeyValue, ...]) -> None:
    from ottla.server.metadata.store import NO_LEASE, Put

    kept: list[Operation] = [Put(entry.key, entry.value) for entry in entries if entry.lease == NO_LEASE]
    for start in range(0, len(kept), _BATCH_KEYS):
        await store.commit([], kept[start : start + _BATCH_KEYS])
