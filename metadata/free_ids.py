"""The id of a node that is configured without one (`node.id=-1`): its folder's, or one that is free in its cluster."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.metadata import keys
from ottla.metadata.open_store import SQLITE_FILE, open_store
from ottla.metastore.address import MEMORY, parse_metadata_address
from ottla.metastore.store import Compare, Put
from ottla.runtime.errors import StartupError
from ottla.storage.node_dir import node_ids_in

if TYPE_CHECKING:
    from ottla.metastore.store import MetadataStore
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

_FIRST = 1


async def find_node_id(config: BrokerConfig, clock: Clock) -> int:
    """The id under which this folder's node is to be started. Raises StartupError or StoreUnavailableError."""
    data_dir = _absolute((config.log_dirs or config.log_dir)[0])
    own = await trio.to_thread.run_sync(node_ids_in, data_dir)
    if len(own) > 1:
        raise StartupError(
            f"{data_dir} holds data of nodes {', '.join(map(str, own))}: say with node.id which of them to start"
        )
    if own:
        return own[0]
    if config.ottla_metadata_store == MEMORY:
        return _FIRST
    is_alone = parse_metadata_address(config.ottla_metadata_store) is None
    if is_alone and not await trio.to_thread.run_sync((data_dir / SQLITE_FILE).exists):
        return _FIRST
    store = await open_store(config, data_dir, clock, _no_room)
    try:
        return await take_free_id(store)
    finally:
        await store.close()


async def take_free_id(store: MetadataStore) -> int:
    """The lowest id that no broker of the cluster has or was given. From here on it is given to nobody else."""
    while True:
        taken: set[int] = set()
        for prefix in (keys.BROKERS, keys.ALIVE, keys.TAKEN_IDS):
            taken.update(int(entry.key.removeprefix(prefix)) for entry in (await store.list(prefix)).entries)
        free = next(node_id for node_id in count(_FIRST) if node_id not in taken)
        if await store.commit([Compare(keys.taken_id(free), 0)], [Put(keys.taken_id(free), b"{}")]) is not None:
            return free


async def _no_room() -> bool:
    return False


def _absolute(path: str) -> Path:
    return Path(path).absolute()
