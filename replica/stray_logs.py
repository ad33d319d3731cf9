"""Keeps the logs of partitions that, by the metadata, other nodes have (Kafka's stray replicas), and all logs if the
metadata is older than the node's folder.

The partition was moved away while this node was down, or the metadata is older than the log, which may then be the only
one with some of its records. The two cannot always be told apart here, so nothing is removed: `ottla fsck
--delete-stray` does that when an administrator asks for it.

Old metadata may count on replicas that have been moved away, or have missed records, and lets them lead. What is known
to be committed is set aside before it is cut, but after a kill a replica does not know how much that is. So where the
metadata is known to be older, all that a log has counts as committed (`KeptLog.until_committed`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.runtime.time_slice import TimeSlice
from ottla.storage.errors import StorageError
from ottla.storage.kept_logs import KEPT_CONFIG, KeptLog
from ottla.storage.stray_logs import LogId, find_logs

if TYPE_CHECKING:
    from collections.abc import Iterable
    from uuid import UUID

    from ottla.metadata.image import MetadataDelta, MetadataImage, TopicImage
    from ottla.replica.high_watermarks import HighWatermarks
    from ottla.replica.kept_logs import KeptLogs
    from ottla.storage.log.partition_log import PartitionLog
    from ottla.storage.log_manager import LogManager

logger = logging.getLogger(__name__)

_NAMED: Final = 5


class StrayLogs:
    """Subscribed to the metadata after the replica manager, it compares the first image after a start with the folder.

    A stray log stays in its store: it is not served, and neither retention nor compaction changes it. When the metadata
    names this node as a replica again, the log is the partition's. It counts at once if the metadata counts on this
    node (it is in sync, or eligible). Otherwise it follows, and nothing is cut from it that was not set aside before.
    """

    def __init__(
        self,
        log_manager: LogManager,
        kept_logs: KeptLogs,
        high_watermarks: HighWatermarks,
        node_id: int,
    ) -> None:
        self._log_manager = log_manager
        self._kept_logs = kept_logs
        self._high_watermarks = high_watermarks
        self._node_id = node_id

    async def apply(self, delta: MetadataDelta) -> None:
        """Set aside what is stray, after the first image; later, follow what becomes of the logs that are kept."""
        if not delta.before.revision:
            topics = await self._topics_with_others(delta.after)
            await self._set_strays_aside(delta.after, topics)
            await self._keep_former_sole_replicas(topics)
            await self._keep_if_older(topics)
        if len(self._kept_logs):
            await self._follow(delta)

    async def _topics_with_others(self, image: MetadataImage) -> list[TopicImage]:
        """The topics that are not this node's alone, as all are on a node by itself."""
        alone, found = (self._node_id,), []
        time_slice = TimeSlice()
        for topic in image.topics.values():
            await time_slice.maybe_yield()
            if not all(state.replicas == alone == state.isr for state in topic.partitions):
                found.append(topic)
        return found

    async def _set_strays_aside(self, image: MetadataImage, topics: list[TopicImage]) -> None:
        topic_ids = await self._topics_elsewhere(topics)
        if not topic_ids:
            return
        strays = []
        async for logs in find_logs(self._log_manager, topic_ids):
            for log_id in logs:
                if self._is_elsewhere(image, log_id):
                    stray = await self._note(log_id, image.topics_by_id[log_id.topic_id].name)
                    if stray is not None:
                        strays.append(stray)
        await self._kept_logs.change(strays)
        if strays:
            text = (
                "%s: by the cluster's metadata, other nodes have %s. The logs here are stray: they are kept and not "
                "served. If the metadata is right, `ottla fsck --delete-stray` removes them"
            )
            which = "this partition" if len(strays) == 1 else "these partitions"
            logger.warning(text, _names(strays), which, extra={"partitions": len(strays)})

    async def _keep_former_sole_replicas(self, topics: list[TopicImage]) -> None:
        """Keep the logs of partitions that this node was the only one to have, if the metadata does not count on it.

        Of those no high watermark is known by which it could be told what is committed.
        """
        former = []
        time_slice = TimeSlice()
        for topic in topics:
            await time_slice.maybe_yield()
            for index, state in enumerate(topic.partitions):
                if self._node_id not in state.replicas or self._node_id in (*state.isr, *state.elr):
                    continue
                log = self._log_manager.get_log(topic.topic_id, index)
                is_kept = self._kept_logs.get(topic.topic_id, index) is not None
                if log is None or is_kept or not self._high_watermarks.was_alone(topic.topic_id, index):
                    continue
                if log.log_end_offset > log.log_start_offset:
                    former.append(self._noted(log, is_stray=False))
        await self._kept_logs.change(former)

    async def _keep_if_older(self, topics: list[TopicImage]) -> None:
        """Keep all logs if the metadata is older than the folder.

        It counts fewer starts of this node than there were, or knows earlier leader epochs than a log here has, or than
        this node knew when it ran last.
        """
        is_ahead = self._log_manager.node_dir.is_ahead
        kept = []
        time_slice = TimeSlice()
        for topic in topics:
            await time_slice.maybe_yield()
            for index, state in enumerate(topic.partitions):
                if len(state.replicas) == 1 or self._node_id not in state.replicas:
                    continue
                log = self._log_manager.get_log(topic.topic_id, index)
                if log is None:
                    continue
                known = max(log.latest_epoch, self._high_watermarks.epoch_of(topic.topic_id, index))
                is_ahead = is_ahead or known > state.leader_epoch
                if log.log_end_offset > log.log_start_offset:
                    kept.append(self._noted(log, is_stray=False)._replace(until_committed=True))
        if not is_ahead or not kept:
            return
        await self._kept_logs.change(kept)
        text = (
            "the cluster's metadata is older than this node's folder. It may let nodes lead that lack records of %s: "
            "whatever is cut here is set aside first, until all has been committed again"
        )
        logger.warning(text, _names(kept), extra={"partitions": len(kept)})

    async def _topics_elsewhere(self, topics: list[TopicImage]) -> set[UUID]:
        """The topics with partitions that this node does not hold."""
        found = set()
        time_slice = TimeSlice()
        for topic in topics:
            await time_slice.maybe_yield()
            if any(self._node_id not in state.replicas for state in topic.partitions):
                found.add(topic.topic_id)
        return found

    def _is_elsewhere(self, image: MetadataImage, log_id: LogId) -> bool:
        """Whether the metadata knows the topic, and not that this node has the partition."""
        partitions = image.topics_by_id[log_id.topic_id].partitions
        return log_id.partition >= len(partitions) or self._node_id not in partitions[log_id.partition].replicas

    async def _note(self, log_id: LogId, topic: str) -> KeptLog | None:
        """Open the log, so that nothing of it expires. None if it cannot be opened; it stays all the same."""
        topic_id, partition = log_id
        try:
            log = await self._log_manager.open_log(topic_id, topic, partition, KEPT_CONFIG)
        except (StorageError, OSError) as error:
            keys = {"topic": topic, "partition": partition, "error": str(error)}
            logger.warning("the stray log of %s-%d cannot be opened: %s", topic, partition, error, extra=keys)
            return None
        return self._noted(log, is_stray=True)

    def _noted(self, log: PartitionLog, *, is_stray: bool) -> KeptLog:
        known = self._kept_logs.get(log.topic_id, log.partition)
        since_ms = known.since_ms if known is not None else self._log_manager.context.clock.time_ms()
        offsets = log.log_start_offset, log.log_end_offset
        return KeptLog(log.topic_id, log.partition, log.topic, *offsets, since_ms, is_stray)

    async def _follow(self, delta: MetadataDelta) -> None:
        changed: list[KeptLog] = []
        released: list[KeptLog] = []
        for topic in delta.deleted_topics:
            # What this node had of it went with it. A stray log is now one of a topic that the cluster does not know.
            released += [log for log in self._kept_logs.of_topic(topic.topic_id) if not log.is_stray]
        for change in delta.changed_partitions:
            kept = self._kept_logs.get(change.topic.topic_id, change.partition)
            if kept is None:
                continue
            state = change.after
            if self._node_id in (*state.isr, *state.elr) and not kept.until_committed:
                released.append(kept)
            elif kept.is_stray is (self._node_id in state.replicas):
                changed.append(kept._replace(is_stray=not kept.is_stray))
        await self._kept_logs.change(changed, released)
        await self._kept_logs.change(released=[log for log in self._kept_logs if self._is_committed_again(log)])
        back = [log for log in released if log.is_stray]
        if back:
            text = "%s: the cluster's metadata counts on this node again: the logs that were stray are served"
            logger.info(text, _names(back), extra={"partitions": len(back)})

    def _is_committed_again(self, kept: KeptLog) -> bool:
        """From then on what is cut is set aside as for any follower that knows what is committed."""
        log = self._log_manager.get_log(kept.topic_id, kept.partition)
        if log is None or kept.is_stray or not kept.until_committed:
            return False
        return log.high_watermark >= min(kept.end_offset, log.log_end_offset)


def _names(logs: Iterable[KeptLog]) -> str:
    names = list(map(str, logs))
    others = f" and {len(names) - _NAMED} others" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + others
