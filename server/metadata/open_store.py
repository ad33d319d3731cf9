"""Which metadata store a node has."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla.server.metadata.store import MetadataStore
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

SQLITE_FILE: Final = "cluster.sqlite"
"""In the data folder, which the nodes of one machine may share."""


async def open_store(
    config: BrokerConfig, data_dir: Path, clock: Clock, make_room: Callable[[], Awaitable[bool]]
) -> MetadataStore:
    """The store that `ottla.metadata.store` names; whoever opens it closes it. Raises StoreUnavailableError."""
    if config.ottla_metadata_store == "memory":
        from ottla.server.metadata.memory import MemoryMetadataStore

        return MemoryMetadataStore(clock.time_ms)
    from ottla.server.metadata.sqlite import open_sqlite_store

    return await open_sqlite_store(data_dir / SQLITE_FILE, clock.time_ms, make_room=make_room)
