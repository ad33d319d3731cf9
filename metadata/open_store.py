"""Opening the metadata store that a node's settings name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from ottla.metadata import keys
from ottla.metadata.move import refuse_moved
from ottla.metastore.address import MEMORY, parse_metadata_address
from ottla.metastore.errors import StoreUnavailableError

if TYPE_CHECKING:
    from ottla.metastore.address import EtcdAddress
    from ottla.metastore.store import MetadataStore
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

SQLITE_FILE: Final = "cluster.sqlite"
"""In the data folder, which the nodes of one machine may share."""


async def open_store(
    config: BrokerConfig, data_dir: Path, clock: Clock, make_room: Callable[[], Awaitable[bool]]
) -> MetadataStore:
    """The store that `ottla.metadata.store` names; the caller closes it. Raises StoreUnavailableError."""
    store = await _open(config, data_dir, clock, make_room)
    try:
        await refuse_moved(store)
    except BaseException:
        await store.close()
        raise
    return store


async def _open(
    config: BrokerConfig, data_dir: Path, clock: Clock, make_room: Callable[[], Awaitable[bool]]
) -> MetadataStore:
    address = parse_metadata_address(config.ottla_metadata_store)
    if address is not None:
        store = await open_etcd(address, config, clock)
        try:
            await _refuse_metadata_left_behind(data_dir / SQLITE_FILE, clock, store)
        except BaseException:
            await store.close()
            raise
        return store
    if config.ottla_metadata_store == MEMORY:
        from ottla.metastore.memory import MemoryMetadataStore

        return MemoryMetadataStore(clock.time_ms)
    from ottla.metastore.sqlite import open_sqlite_store

    return await open_sqlite_store(data_dir / SQLITE_FILE, clock.time_ms, make_room=make_room)


async def open_etcd(address: EtcdAddress, config: BrokerConfig, clock: Clock | None = None) -> MetadataStore:
    """The store in etcd, with the access that the configuration gives. Raises StoreUnavailableError."""
    try:
        from ottla.metastore.etcd import open_etcd_store
        from ottla.metastore.etcd_client import EtcdAccess
    except ModuleNotFoundError as error:
        raise StoreUnavailableError(
            f"A metadata store in etcd needs {error.name}, which is not installed: pip install 'ottla[etcd]'."
        ) from None
    return await open_etcd_store(
        address,
        EtcdAccess(
            config.ottla_metadata_store_user,
            config.ottla_metadata_store_password,
            config.ottla_metadata_store_ssl_ca,
            config.ottla_metadata_store_ssl_certificate,
            config.ottla_metadata_store_ssl_key,
        ),
        None if clock is None else clock.time_ms,
    )


async def _refuse_metadata_left_behind(path: Path, clock: Clock, store: MetadataStore) -> None:
    """A folder that was used without etcd would look empty if it were used with etcd. Raises StoreUnavailableError."""
    if not await trio.to_thread.run_sync(path.exists):
        return
    from ottla.metastore.sqlite import open_sqlite_store

    beside = await open_sqlite_store(path, clock.time_ms)
    try:
        own = await beside.get(keys.CLUSTER_ID)
    finally:
        await beside.close()
    found = await store.get(keys.CLUSTER_ID)
    if own is not None and (found is None or found.value != own.value):
        raise StoreUnavailableError(
            f"{path} holds the metadata of this folder, and etcd does not: move it there with "
            "`ottla cluster move-metadata`, or choose another --data-dir."
        )
