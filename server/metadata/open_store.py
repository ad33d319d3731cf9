"""Which metadata store a node has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ottla.server.metadata.errors import StoreUnavailableError
from ottla.server.metadata.move import refuse_moved
from ottla.server.settings.metadata_address import MEMORY, parse_metadata_address

if TYPE_CHECKING:
    from ottla.server.metadata.store import MetadataStore
    from ottla.server.settings.config import BrokerConfig
    from ottla.server.settings.metadata_address import EtcdAddress
    from ottla.storage.clock import Clock

SQLITE_FILE: Final = "cluster.sqlite"
"""In the data folder, which the nodes of one machine may share."""


async def open_store(
    config: BrokerConfig, data_dir: Path, clock: Clock, make_room: Callable[[], Awaitable[bool]]
) -> MetadataStore:
    """The store that `ottla.metadata.store` names; whoever opens it closes it. Raises StoreUnavailableError."""
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
        return await open_etcd(address, config)
    if config.ottla_metadata_store == MEMORY:
        from ottla.server.metadata.memory import MemoryMetadataStore

        return MemoryMetadataStore(clock.time_ms)
    from ottla.server.metadata.sqlite import open_sqlite_store

    return await open_sqlite_store(data_dir / SQLITE_FILE, clock.time_ms, make_room=make_room)


async def open_etcd(address: EtcdAddress, config: BrokerConfig) -> MetadataStore:
    """The store in etcd, with the access that the configuration gives. Raises StoreUnavailableError."""
    try:
        from ottla.server.metadata.etcd import open_etcd_store
        from ottla.server.metadata.etcd_client import EtcdAccess
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
    )
