"""What the folder of a stopped node says about the topics in it (`ottla restore --metadata-from-data`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.config import LogConfig
from ottla.storage.format.block import split_key
from ottla.storage.format.topic_file import TOPIC_FILE
from ottla.storage.unknown_topics import unknown_folders

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import LogManager

__all__ = ["FoundTopic", "FoundTopics", "find_topics"]

# A topic's records are only looked at, so none of them expires meanwhile.
_LOOKED_AT = LogConfig(delete=False)


class FoundTopic(NamedTuple):
    """A topic with data: the name of its folder, the partitions with records, and its description, if there is one.

    `name` is the folder's, in which long ones are cut short. `description` is in the words of whoever owns the
    metadata.
    """

    topic_id: UUID
    name: str
    partitions: tuple[int, ...]
    description: bytes | None


class FoundTopics(NamedTuple):
    """The topics of a node, and the largest leader epoch and producer id in any of its logs, -1 if there is none."""

    topics: list[FoundTopic]
    largest_epoch: int
    largest_producer_id: int


async def find_topics(manager: LogManager) -> FoundTopics:
    """Open every store that is a topic's own, one after the other; a topic without records is not found."""
    context = manager.context
    topics, largest_epoch, largest_producer_id = [], -1, -1
    for folder in await context.offload(unknown_folders, context.disk, manager.node_dir.path, frozenset()):
        name = os.path.basename(folder.path).rpartition(".")[0]
        partitions: set[int] = set()
        description = None
        for number in sorted(await context.offload(context.disk.listdir, folder.path)):
            directory = os.path.join(folder.path, number)
            description = await context.offload(_read_description, context.disk, directory) or description
            store = await manager.open_store(directory)
            for key in sorted({*store.snapshots, *store.logs}):
                _, partition = split_key(key)
                log = await manager.open_log(folder.topic_id, name, partition, _LOOKED_AT)
                partitions.add(partition)
                largest_epoch = max(largest_epoch, log.latest_epoch)
                for producer in log.active_producers():
                    largest_producer_id = max(largest_producer_id, producer.producer_id)
        if partitions:
            topics.append(FoundTopic(folder.topic_id, name, tuple(sorted(partitions)), description))
    return FoundTopics(topics, largest_epoch, largest_producer_id)


def _read_description(disk: Disk, directory: str) -> bytes | None:
    path = os.path.join(directory, TOPIC_FILE)
    return disk.read_file(path) if disk.exists(path) else None
