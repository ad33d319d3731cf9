"""The object store that a broker's settings name."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from ottla.replica.remote.remote_storage import RemoteStorage
from ottla.tiers.address import open_object_store
from ottla.tiers.marked_store import MarkedObjectStore
from ottla.tiers.patient_store import PatientObjectStore
from ottla.tiers.reading.disk_cache import DiskCache

if TYPE_CHECKING:
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.disk import Disk
    from ottla.storage.node_dir import NodeDir
    from ottla.tiers.object_store import ObjectStore

__all__ = ["CACHE_FOLDER", "STORE_NOTE", "open_remote_storage"]

CACHE_FOLDER: Final = "remote-cache"
STORE_NOTE: Final = "remote-store-id"
_ATTEMPTS: Final = 3


def open_remote_storage(
    url: str, config: BrokerConfig, disk: Disk, clock: Clock, node_dir: NodeDir, *, store: ObjectStore | None = None
) -> RemoteStorage:
    """Nobody is asked anything yet. `store` replaces the one at the address. Raises what `open_object_store` does."""
    timeout_seconds = config.ottla_remote_request_timeout_ms / 1000
    if store is None:
        store = open_object_store(url, timeout_seconds=timeout_seconds)
    patient = PatientObjectStore(store, timeout_seconds=timeout_seconds, attempts=_ATTEMPTS)
    return RemoteStorage(
        MarkedObjectStore(patient, disk, os.path.join(node_dir.path, STORE_NOTE)),
        DiskCache(disk, os.path.join(node_dir.path, CACHE_FOLDER), config.ottla_remote_cache_bytes),
        config,
        clock,
        node_dir,
        node_id=config.node_id,
    )
