"""What a page says of topics and partitions: sums over what this node holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.console.rendering import Slices
from ottla.server.replica.errors import ReplicaError
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.server.broker import Broker
    from ottla.server.metadata.image import TopicImage
    from ottla.server.replica.partition import Partition


class TopicSummary(NamedTuple):
    """One topic in a list. Records are offsets from the start to the high watermark, as far as they are held here."""

    topic: TopicImage
    partitions: int
    records: int
    size_bytes: int
    is_compacted: bool
    rate: float


def held_partition(broker: Broker, topic: TopicImage, index: int) -> Partition | None:
    """The partition as this node has it; None where another node does, or its log could not be opened."""
    try:
        return broker.replica_manager.get_partition(topic.topic_id, index)
    except (ReplicaError, StorageError):
        return None


async def summarize(broker: Broker, topic: TopicImage, rate: float) -> TopicSummary:
    """Sum up a topic, in slices of the loop's time."""
    records = size_bytes = 0
    slices = Slices()
    for index in range(len(topic.partitions)):
        partition = held_partition(broker, topic, index)
        if partition is not None:
            log = partition.log
            records += max(0, log.high_watermark - log.log_start_offset)
            size_bytes += log.size_bytes
        if slices.over:
            await slices.rest()
    policy = broker.config.topic_config(topic.configs).cleanup_policy
    return TopicSummary(topic, len(topic.partitions), records, size_bytes, "compact" in policy, rate)
