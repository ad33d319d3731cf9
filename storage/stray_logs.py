"""Logs that lie in a node's folder and belong elsewhere: their partitions were moved away while the node was down.

What of a topic is not known here at all is another matter: see `unknown_topics`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator, Container
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.storage.config import StoreLayout
from ottla.storage.errors import StorageError
from ottla.storage.format.block import split_key
from ottla.storage.unknown_topics import topic_folders

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import LogManager

__all__ = ["LogId", "find_logs"]

logger = logging.getLogger(__name__)


class LogId(NamedTuple):
    """Whose log it is."""

    topic_id: UUID
    partition: int


async def find_logs(manager: LogManager, topic_ids: Container[UUID]) -> AsyncIterator[list[LogId]]:
    """The logs of these topics in the folder, store by store: of each the files are opened and its logs named."""
    context = manager.context
    for directory in await context.offload(_stores_of, manager, topic_ids):
        try:
            store = await manager.open_store(directory)
        except (StorageError, OSError) as error:
            keys = {"path": directory, "error": str(error)}
            logger.warning("%s cannot be opened to look for what was moved away: %s", directory, error, extra=keys)
            continue
        found = [
            LogId(UUID(bytes=raw), partition) for raw, partition in map(split_key, {*store.snapshots, *store.logs})
        ]
        yield sorted(each for each in found if each.topic_id in topic_ids)


def _stores_of(manager: LogManager, topic_ids: Container[UUID]) -> list[str]:
    """The folders of the stores that may have logs of these topics. Blocks."""
    disk = manager.context.disk
    if manager.context.config.store_layout is StoreLayout.SHARED:
        shared = manager.shared_store_directory
        return [shared] if disk.exists(shared) else []
    folders = [path for topic_id, path in topic_folders(disk, manager.node_dir.path) if topic_id in topic_ids]
    return [path for folder in folders for path in _folders_in(disk, folder)]


def _folders_in(disk: Disk, folder: str) -> list[str]:
    paths = [os.path.join(folder, name) for name in sorted(disk.listdir(folder))]
    return [path for path in paths if disk.is_directory(path)]
