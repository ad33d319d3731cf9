"""Common parts of the streams group APIs: topologies of messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from ottla.coordinator.errors import StreamsInvalidTopologyError
from ottla.coordinator.group.streams.topology import Topology
from ottla.kproto.internal_records import streams_group as record

if TYPE_CHECKING:
    from ottla.kproto.messages.groups import streams_group_heartbeat as message


#: Topics, settings, tasks and nodes that one request may name. Kafka has no limit but that of a record, which is 1 MiB.
MAX_ELEMENTS: Final = 10_000


def topology_of(given: message.Topology) -> Topology:
    """A member's topology as the group keeps it. Raises StreamsInvalidTopologyError."""
    if given.epoch < 0:
        raise StreamsInvalidTopologyError("The epoch of a topology must not be negative.")
    return Topology(given.epoch, [_subtopology(each) for each in given.subtopologies])


def topics_of(subtopology: message.Subtopology | record.Subtopology) -> Iterator[str]:
    """Every topic that a subtopology names, in Kafka's order; some may come twice."""
    yield from subtopology.source_topics
    yield from subtopology.repartition_sink_topics
    for topic in (*subtopology.repartition_source_topics, *subtopology.state_changelog_topics):
        yield topic.name


def _subtopology(given: message.Subtopology) -> record.Subtopology:
    return record.Subtopology(
        subtopology_id=given.subtopology_id,
        source_topics=given.source_topics,
        source_topic_regex=given.source_topic_regex,
        state_changelog_topics=[_topic(topic) for topic in given.state_changelog_topics],
        repartition_sink_topics=given.repartition_sink_topics,
        repartition_source_topics=[_topic(topic) for topic in given.repartition_source_topics],
        copartition_groups=[
            record.CopartitionGroup(
                source_topics=group.source_topics,
                source_topic_regex=group.source_topic_regex,
                repartition_source_topics=group.repartition_source_topics,
            )
            for group in given.copartition_groups
        ],
    )


def _topic(given: message.TopicInfo) -> record.TopicInfo:
    return record.TopicInfo(
        name=given.name,
        partitions=given.partitions,
        replication_factor=given.replication_factor,
        topic_configs=[record.TopicConfig(key=config.key, value=config.value) for config in given.topic_configs],
    )
