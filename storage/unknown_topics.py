"""What a node's folder holds of topics that the cluster does not know (`ottla fsck --delete-unknown`).

Such data is left when a topic was deleted while the node was down. A broker never removes it by itself: where the
cluster's metadata was lost, everything is unknown. It is an operator's decision, on a stopped node.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.storage.config import LogConfig
from ottla.storage.format.block import split_key
from ottla.storage.format.topic_file import topic_id_of_folder
from ottla.storage.node_dir import DELETED_SUFFIX, remove_folder

if TYPE_CHECKING:
    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import LogManager

__all__ = ["UnknownTopic", "delete_unknown", "find_unknown", "topic_folders", "unknown_folders"]


class UnknownTopic(NamedTuple):
    """A topic's data. `partitions` are those of a shared store, None where the topic has a folder of its own."""

    topic_id: UUID
    path: str
    partitions: tuple[int, ...] | None


def topic_folders(disk: Disk, node_path: str) -> Iterator[tuple[UUID, str]]:
    """The topics with a folder of their own, and where it is. Blocks for a listing."""
    for name in disk.listdir(node_path):
        topic_id = topic_id_of_folder(name)
        if topic_id is not None:
            yield topic_id, os.path.join(node_path, name)


def unknown_folders(disk: Disk, node_path: str, topic_ids: Container[UUID]) -> list[UnknownTopic]:
    """The topics with a folder of their own which are not among these. Blocks for a listing."""
    folders = topic_folders(disk, node_path)
    return [UnknownTopic(topic_id, path, None) for topic_id, path in folders if topic_id not in topic_ids]


async def find_unknown(manager: LogManager, topic_ids: Container[UUID]) -> list[UnknownTopic]:
    """The topics with data in the folder of a manager without open logs which are not among these."""
    disk, node_path = manager.context.disk, manager.node_dir.path
    found = await manager.context.offload(unknown_folders, disk, node_path, topic_ids)
    shared = manager.shared_store_directory
    if await manager.context.offload(disk.exists, shared):
        store = await manager.open_store(shared)
        partitions: dict[UUID, list[int]] = {}
        for key in sorted({*store.snapshots, *store.logs}):
            raw_id, partition = split_key(key)
            if UUID(bytes=raw_id) not in topic_ids:
                partitions.setdefault(UUID(bytes=raw_id), []).append(partition)
        found += [UnknownTopic(topic_id, shared, tuple(numbers)) for topic_id, numbers in partitions.items()]
    return found


async def delete_unknown(manager: LogManager, topics: list[UnknownTopic]) -> None:
    """Remove what `find_unknown` has found, durably. A shared store gives the space back when it is cleaned."""
    for topic in topics:
        if topic.partitions is None:
            await manager.context.offload(_delete_folder, manager.context.disk, topic.path)
        else:
            for partition in topic.partitions:
                await manager.open_log(topic.topic_id, "", partition, LogConfig())
                await manager.delete_logs(topic.topic_id, [partition])


def _delete_folder(disk: Disk, path: str) -> None:
    remove_folder(disk, path, path + DELETED_SUFFIX)
