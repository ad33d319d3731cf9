"""Topics and partitions as the pages show them: those that this node holds, and those that others lead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

from ottla.console.messages.readable import MAX_ASKED, RemotePartition, led_elsewhere, refresh
from ottla.replica.errors import ReplicaError
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import TopicImage
    from ottla.replica.partition import Partition
    from ottla.server.broker import Broker


class TopicSummary(NamedTuple):
    """One topic in a list. Records are offsets from the start to the high watermark; a size is that of one replica.

    `unknown` partitions are not counted: nobody leads them, or their leader did not answer.
    """

    topic: TopicImage
    partitions: int
    records: int
    size_bytes: int
    unknown: int
    is_compacted: bool
    rate: float


class PartitionFigures(NamedTuple):
    """The offsets and the size of a partition."""

    log_start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int

    @property
    def records(self) -> int:
        return max(0, self.high_watermark - self.log_start_offset)


class Figures(NamedTuple):
    """The figures of several partitions, and a sentence about each node that could not be asked for its own."""

    of: Mapping[tuple[UUID, int], PartitionFigures]
    problems: list[str]


def held_partition(broker: Broker, topic: TopicImage, index: int) -> Partition | None:
    """The partition as this node has it; None where another node does, or its log could not be opened."""
    try:
        return broker.replica_manager.get_partition(topic.topic_id, index)
    except (ReplicaError, StorageError):
        return None


async def figures(broker: Broker, wanted: Iterable[tuple[TopicImage, Iterable[int]]]) -> Figures:
    """Of each partition that is held here as it is here, of others as their leaders say, in slices of the loop's time.

    Of more than `MAX_ASKED` partitions that are elsewhere the last are left out.
    """
    found: dict[tuple[UUID, int], PartitionFigures] = {}
    elsewhere: list[RemotePartition] = []
    slices = TimeSlice()
    for topic, indexes in wanted:
        for index in indexes:
            held = held_partition(broker, topic, index)
            if held is not None:
                log = held.log
                found[topic.topic_id, index] = PartitionFigures(
                    held.log_start_offset, log.high_watermark, log.last_stable_offset, log.size_bytes
                )
            elif len(elsewhere) < MAX_ASKED and (leader := led_elsewhere(broker, topic, index)) is not None:
                elsewhere.append(RemotePartition(broker, leader, topic, index))
            if slices.is_over:
                await slices.maybe_yield()
    known, problems = await refresh(broker, elsewhere)
    for each in known:
        found[each.topic_id, each.index] = PartitionFigures(
            each.log_start_offset, each.high_watermark, each.last_stable_offset, each.size_bytes
        )
    return Figures(found, problems)


async def summarize(broker: Broker, topic: TopicImage, known: Figures, rate: float) -> TopicSummary:
    """Sum up a topic, in slices of the loop's time."""
    records = size_bytes = unknown = 0
    slices = TimeSlice()
    for index in range(len(topic.partitions)):
        own = known.of.get((topic.topic_id, index))
        if own is None:
            unknown += 1
        else:
            records += own.records
            size_bytes += own.size_bytes
        if slices.is_over:
            await slices.maybe_yield()
    policy = broker.config.topic_config(topic.configs).cleanup_policy
    return TopicSummary(topic, len(topic.partitions), records, size_bytes, unknown, "compact" in policy, rate)
