"""What the folder of a stopped node says about the topics in it (`ottla restore --metadata-from-data`)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.storage.config import LogConfig
from ottla.storage.format.block import split_key
from ottla.storage.format.topic_file import TOPIC_FILE
from ottla.storage.unknown_topics import UnknownTopic, unknown_folders

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.storage.disk import Disk
    from ottla.storage.log_manager import LogManager
    from ottla.storage.state.leader_epochs import EpochEntry

__all__ = ["FoundLog", "FoundTopic", "FoundTopics", "find_topics"]

# A topic's records are only looked at, so none of them expires meanwhile.
_LOOKED_AT = LogConfig(delete=False)


class FoundLog(NamedTuple):
    """A partition's log: [`start_offset`, `end_offset`) and the leader epochs of its records, in ascending order.

    A log without records knows no epochs.
    """

    start_offset: int = 0
    end_offset: int = 0
    epochs: tuple[EpochEntry, ...] = ()

    @property
    def latest_epoch(self) -> int:
        """The leader epoch of the last record, -1 without one."""
        return self.epochs[-1].epoch if self.epochs else -1


class FoundTopic(NamedTuple):
    """A topic with data: the name of its folder, the logs by partition, and its descriptions, one of each store.

    `name` is the folder's, in which long ones are cut short. `descriptions` are encoded by the owner of the cluster's
    metadata. The topic's first segment that is still there was begun at `first_ms`, and its last one at `last_ms`.
    """

    topic_id: UUID
    name: str
    logs: dict[int, FoundLog]
    descriptions: tuple[bytes, ...] = ()
    first_ms: int = 0
    last_ms: int = 0


class FoundTopics(NamedTuple):
    """The topics of a node, the largest producer id in any of its logs (-1 if there is none), and how often the node
    had started when its folder was last in use."""

    topics: list[FoundTopic]
    largest_producer_id: int
    starts: int = 0

    @property
    def largest_epoch(self) -> int:
        """The largest leader epoch in any log, -1 if there is none."""
        return max((log.latest_epoch for topic in self.topics for log in topic.logs.values()), default=-1)


async def find_topics(manager: LogManager) -> FoundTopics:
    """Open every store that is a topic's own, one after the other; a topic without records is not found."""
    context = manager.context
    topics, largest_producer_id = [], -1
    for folder in await context.offload(unknown_folders, context.disk, manager.node_dir.path, frozenset()):
        topic, producer_id = await _find_topic(manager, folder)
        largest_producer_id = max(largest_producer_id, producer_id)
        if topic.logs:
            topics.append(topic)
    return FoundTopics(topics, largest_producer_id, manager.node_dir.starts or 0)


async def _find_topic(manager: LogManager, folder: UnknownTopic) -> tuple[FoundTopic, int]:
    """What a topic's folder holds, and the largest producer id in it."""
    context = manager.context
    name = os.path.basename(folder.path).rpartition(".")[0]
    logs: dict[int, FoundLog] = {}
    descriptions: list[bytes] = []
    begun_ms: list[int] = []
    producer_id = -1
    for number in sorted(await context.offload(context.disk.listdir, folder.path)):
        directory = os.path.join(folder.path, number)
        description = await context.offload(_read_description, context.disk, directory)
        descriptions += [] if description is None else [description]
        store = await manager.open_store(directory)
        begun_ms += [segment.created_at_ms for segment in store.files.segments if segment.created_at_ms]
        for key in sorted({*store.snapshots, *store.logs}):
            _, partition = split_key(key)
            log = await manager.open_log(folder.topic_id, name, partition, _LOOKED_AT)
            logs[partition] = FoundLog(log.log_start_offset, log.log_end_offset, tuple(log.epochs))
            producer_id = max([producer_id, *(producer.producer_id for producer in log.active_producers())])
    first_ms, last_ms = (min(begun_ms), max(begun_ms)) if begun_ms else (0, 0)
    return FoundTopic(folder.topic_id, name, logs, tuple(descriptions), first_ms, last_ms), producer_id


def _read_description(disk: Disk, directory: str) -> bytes | None:
    path = os.path.join(directory, TOPIC_FILE)
    return disk.read_file(path) if disk.exists(path) else None
