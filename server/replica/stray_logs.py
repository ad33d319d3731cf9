"""Removes the logs of partitions that were moved away while this node was down (Kafka's stray replicas)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.server.event_loop.pace import Pace
from ottla.storage.config import LogConfig
from ottla.storage.errors import StorageError
from ottla.storage.stray_logs import LogId, find_logs

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.metadata.image import MetadataDelta, MetadataImage, PartitionState
    from ottla.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

_NAMED: Final = 5
# Nothing of a log that is looked at expires meanwhile.
_LOOKED_AT: Final = LogConfig(delete=False)


class StrayLogs:
    """Subscribed to the metadata after the replica manager, it compares the first image after a start with the folder.

    A log goes where the image names the topic by its id, and other nodes as its replicas. So nothing goes of a topic
    that is not known: that may have been deleted, but the metadata may also be lost, or old. Where a log has records of
    a later leader epoch than the image knows of, the metadata is older than the log, which stays.
    """

    def __init__(self, log_manager: LogManager, node_id: int) -> None:
        self._log_manager = log_manager
        self._node_id = node_id

    async def apply(self, delta: MetadataDelta) -> None:
        """Remove what is stray, after the first image; afterwards nothing is, as the replica manager follows it all."""
        if delta.before.revision:
            return
        image = delta.after
        topic_ids = await self._topics_elsewhere(image)
        if not topic_ids:
            return
        removed: list[str] = []
        async for logs in find_logs(self._log_manager, topic_ids):
            for log_id in logs:
                state = self._state_elsewhere(image, log_id)
                if state is not None:
                    name = f"{image.topics_by_id[log_id.topic_id].name}-{log_id.partition}"
                    if await self._remove(log_id, name, state):
                        removed.append(name)
        if removed:
            others = f" and {len(removed) - _NAMED} others" if len(removed) > _NAMED else ""
            text = "%s%s moved to other nodes while this one was down: their logs here are removed"
            logger.info(text, ", ".join(removed[:_NAMED]), others, extra={"partitions": len(removed)})

    async def _topics_elsewhere(self, image: MetadataImage) -> set[UUID]:
        """The topics with partitions that this node does not hold."""
        found = set()
        pace = Pace()
        for topic in image.topics.values():
            await pace.rest()
            if any(self._node_id not in state.replicas for state in topic.partitions):
                found.add(topic.topic_id)
        return found

    def _state_elsewhere(self, image: MetadataImage, log_id: LogId) -> PartitionState | None:
        """The partition's state if other nodes hold it, and this one does not."""
        topic = image.topics_by_id[log_id.topic_id]
        if log_id.partition >= len(topic.partitions):
            return None
        state = topic.partitions[log_id.partition]
        return None if self._node_id in state.replicas else state

    async def _remove(self, log_id: LogId, name: str, state: PartitionState) -> bool:
        topic_id, partition = log_id
        try:
            log = await self._log_manager.open_log(topic_id, name.rpartition("-")[0], partition, _LOOKED_AT)
            if log.latest_epoch > state.leader_epoch:
                text = "%s is elsewhere by the metadata, but that is of epoch %d, and the log here of %d: it stays"
                logger.error(text, name, state.leader_epoch, log.latest_epoch, extra={"partition": name})
                return False
            await self._log_manager.delete_logs(topic_id, [partition])
        except (StorageError, OSError) as error:
            logger.warning("the log of %s stays: %s", name, error, extra={"partition": name, "error": str(error)})
            return False
        return True
