"""Topics, partitions and brokers, by the names that kafka_exporter has made known.

What lists partitions one by one is bounded by `ottla.metrics.max.partitions`: topics come in order of name, those that
no longer fit are left out, and `ottla_metrics_omitted_partitions` says how many partitions that are.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.metadata.image import NO_LEADER
from ottla.metrics.metric import Family, Metric, Sample, counter, gauge, single
from ottla.replica.errors import ReplicaError
from ottla.replica.partition import Role
from ottla.runtime.time_slice import TimeSlice
from ottla.server.telemetry.first_by_name import FirstByName
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataImage, PartitionState, TopicImage
    from ottla.replica.partition import Partition
    from ottla.replica.traffic import TopicTraffic
    from ottla.server.broker import Broker

BROKERS: Final = gauge("kafka_brokers", "Brokers in the cluster.")
BROKER_INFO: Final = gauge("kafka_broker_info", "1 for each broker.", "id", "address")
TOPIC_PARTITIONS: Final = gauge("kafka_topic_partitions", "Partitions of the topic.", "topic")
CURRENT_OFFSET: Final = gauge(
    "kafka_topic_partition_current_offset", "High watermark of the partition.", "topic", "partition"
)
OLDEST_OFFSET: Final = gauge(
    "kafka_topic_partition_oldest_offset", "First offset of the partition.", "topic", "partition"
)
LEADER: Final = gauge(
    "kafka_topic_partition_leader", "Id of the partition's leader, -1 for none.", "topic", "partition"
)
REPLICAS: Final = gauge("kafka_topic_partition_replicas", "Replicas of the partition.", "topic", "partition")
IN_SYNC: Final = gauge(
    "kafka_topic_partition_in_sync_replica", "In-sync replicas of the partition.", "topic", "partition"
)
PREFERRED: Final = gauge(
    "kafka_topic_partition_leader_is_preferred", "1 if the first replica leads the partition.", "topic", "partition"
)
UNDER_REPLICATED: Final = gauge(
    "kafka_topic_partition_under_replicated_partition", "1 if not all replicas are in sync.", "topic", "partition"
)
OMITTED: Final = gauge(
    "ottla_metrics_omitted_partitions", "Partitions that are not listed, because of ottla.metrics.max.partitions."
)

TOPICS: Final = gauge("ottla_topics", "Topics in the cluster, internal ones included.")
LOCAL_PARTITIONS: Final = gauge("ottla_partitions", "Partitions on this broker.")
LOCAL_LEADERS: Final = gauge("ottla_leader_partitions", "Partitions that this broker leads.")
LOCAL_OFFLINE: Final = gauge("ottla_offline_partitions", "Partitions on this broker whose store or log has failed.")
LOCAL_UNDER_REPLICATED: Final = gauge(
    "ottla_under_replicated_partitions", "Partitions led here with fewer in-sync replicas than replicas."
)
LOCAL_UNDER_MIN_ISR: Final = gauge(
    "ottla_under_min_isr_partitions", "Partitions led here with fewer in-sync replicas than min.insync.replicas."
)
ISR_EXPANDS: Final = counter(
    "ottla_isr_expands_total", "Times that replicas joined the in-sync set of a partition led here."
)
ISR_SHRINKS: Final = counter(
    "ottla_isr_shrinks_total", "Times that replicas left the in-sync set of a partition led here."
)
REPLICATED: Final = counter("ottla_replicated_bytes_total", "Bytes of record batches taken over from other brokers.")
REPLICATED_THROTTLED: Final = counter(
    "ottla_throttled_replication_bytes_total",
    "Bytes of record batches of throttled replicas that were sent as leader, and fetched as follower.",
    "role",
)
MAX_LAG: Final = gauge(
    "ottla_replica_max_lag", "Committed offsets that the follower here that is furthest behind still lacks."
)
LEADERLESS: Final = gauge("ottla_leaderless_partitions", "Partitions in the cluster that nobody leads.")

TOPIC_BYTES_IN: Final = counter("ottla_topic_bytes_in_total", "Bytes of record batches appended to the topic.", "topic")
TOPIC_BYTES_OUT: Final = counter("ottla_topic_bytes_out_total", "Bytes of record batches fetched by clients.", "topic")
TOPIC_MESSAGES_IN: Final = counter("ottla_topic_messages_in_total", "Records appended to the topic.", "topic")
TOPIC_FAILED_APPENDS: Final = counter(
    "ottla_topic_failed_appends_total", "Batches for the topic that were refused or not written.", "topic"
)
TOPIC_DEAD_LETTERS: Final = counter(
    "ottla_topic_dead_letters_total",
    "Records for the topic that went to its dead-letter topic, as they did not fit their schemas.",
    "topic",
)
TOPIC_SIZE: Final = gauge("ottla_topic_size_bytes", "Size of the topic's partitions on this broker.", "topic")

METRICS: Final = (
    *(BROKERS, BROKER_INFO, TOPIC_PARTITIONS, CURRENT_OFFSET, OLDEST_OFFSET, LEADER, REPLICAS, IN_SYNC, PREFERRED),
    *(UNDER_REPLICATED, OMITTED, TOPICS, LOCAL_PARTITIONS, LOCAL_LEADERS, LOCAL_OFFLINE, LOCAL_UNDER_REPLICATED),
    *(LOCAL_UNDER_MIN_ISR, LEADERLESS, ISR_EXPANDS, ISR_SHRINKS, MAX_LAG, REPLICATED, REPLICATED_THROTTLED),
    *(TOPIC_BYTES_IN, TOPIC_BYTES_OUT, TOPIC_MESSAGES_IN, TOPIC_FAILED_APPENDS, TOPIC_DEAD_LETTERS),
    TOPIC_SIZE,
)

_STATE: Final[tuple[tuple[Metric, Callable[[PartitionState], float]], ...]] = (
    (LEADER, lambda state: state.leader),
    (REPLICAS, lambda state: len(state.replicas)),
    (IN_SYNC, lambda state: len(state.isr)),
    (PREFERRED, lambda state: int(state.leader == state.replicas[0])),
    (UNDER_REPLICATED, lambda state: int(len(state.isr) < len(state.replicas))),
)
_OFFSETS: Final[tuple[tuple[Metric, Callable[[Partition], float]], ...]] = (
    (CURRENT_OFFSET, lambda partition: partition.log.high_watermark),
    (OLDEST_OFFSET, lambda partition: partition.log_start_offset),
)
_TRAFFIC: Final[tuple[tuple[Metric, Callable[[TopicTraffic], float]], ...]] = (
    (TOPIC_BYTES_IN, lambda traffic: traffic.bytes_in),
    (TOPIC_BYTES_OUT, lambda traffic: traffic.bytes_out),
    (TOPIC_MESSAGES_IN, lambda traffic: traffic.messages_in),
    (TOPIC_FAILED_APPENDS, lambda traffic: traffic.failed_appends),
    (TOPIC_DEAD_LETTERS, lambda traffic: traffic.dead_letters),
)


class _Totals(NamedTuple):
    """Totals over this broker's partitions."""

    partitions: int
    leaders: int
    offline: int
    under_replicated: int
    under_min_isr: int
    max_lag: int
    size_bytes: dict[str, int]


async def collect(broker: Broker) -> AsyncGenerator[Family, None]:
    """The families of this module."""
    image = broker.metadata
    yield single(BROKERS, len(image.brokers))
    yield Family(BROKER_INFO, list(_broker_info(image)))
    yield single(TOPICS, len(image.topics))
    time_slice = TimeSlice()
    listed, omitted = await listed_topics(broker, time_slice)
    yield Family(TOPIC_PARTITIONS, [((topic.name,), len(topic.partitions)) for topic in listed])
    for metric, read_state in _STATE:
        yield Family(metric, _states(listed, read_state))
    for metric, read_partition in _OFFSETS:
        yield Family(metric, _offsets(broker, listed, read_partition))
    yield single(OMITTED, omitted)
    totals = await _totals(broker, time_slice)
    yield single(LOCAL_PARTITIONS, totals.partitions)
    yield single(LOCAL_LEADERS, totals.leaders)
    yield single(LOCAL_OFFLINE, totals.offline + broker.replica_manager.offline_partitions)
    yield single(LOCAL_UNDER_REPLICATED, totals.under_replicated)
    yield single(LOCAL_UNDER_MIN_ISR, totals.under_min_isr)
    in_sync_sets = broker.replica_manager.in_sync_sets
    yield single(ISR_EXPANDS, in_sync_sets.expands)
    yield single(ISR_SHRINKS, in_sync_sets.shrinks)
    manager = broker.replica_manager
    yield single(LEADERLESS, await _leaderless(image, time_slice))
    yield single(MAX_LAG, totals.max_lag)
    yield single(REPLICATED, manager.counters.replicated_bytes)
    roles = {"leader": manager.leader_quota, "follower": manager.follower_quota}
    yield Family(REPLICATED_THROTTLED, [((role,), quota.total_bytes) for role, quota in roles.items()])
    traffic = broker.replica_manager.traffic
    held = [(topic.name, traffic[topic.topic_id]) for topic in listed if topic.topic_id in traffic]
    for metric, read_traffic in _TRAFFIC:
        yield Family(metric, [((name,), read_traffic(of_topic)) for name, of_topic in held])
    yield Family(TOPIC_SIZE, [((name,), totals.size_bytes.get(name, 0)) for name, _ in held])


async def listed_topics(broker: Broker, time_slice: TimeSlice) -> tuple[list[TopicImage], int]:
    """The topics that are listed one by one, in order of name, and how many partitions all others have."""
    room = broker.config.ottla_metrics_max_partitions
    every = 0
    # Each has a partition at least.
    first: FirstByName[TopicImage] = FirstByName(room)
    for topic in broker.metadata.topics.values():
        every += len(topic.partitions)
        first.add(topic.name, topic)
        await time_slice.maybe_yield()
    listed = []
    for _, topic in first.items():
        if len(topic.partitions) <= room:
            room -= len(topic.partitions)
            listed.append(topic)
    return listed, every - sum(len(topic.partitions) for topic in listed)


def local_partition(broker: Broker, topic: TopicImage, index: int) -> Partition | None:
    """The partition if it is on this broker."""
    try:
        return broker.replica_manager.get_partition(topic.topic_id, index)
    except (ReplicaError, StorageError):
        return None


def _broker_info(image: MetadataImage) -> Iterator[Sample]:
    for node_id, broker in sorted(image.brokers.items()):
        for endpoint in broker.endpoints[:1]:
            yield (str(node_id), f"{endpoint.host}:{endpoint.port}"), 1


def _states(topics: list[TopicImage], read: Callable[[PartitionState], float]) -> Iterator[Sample]:
    for topic in topics:
        for index, state in enumerate(topic.partitions):
            yield (topic.name, str(index)), read(state)


def _offsets(broker: Broker, topics: list[TopicImage], read: Callable[[Partition], float]) -> Iterator[Sample]:
    for topic in topics:
        for index in range(len(topic.partitions)):
            partition = local_partition(broker, topic, index)
            if partition is not None and partition.is_leader:
                yield (topic.name, str(index)), read(partition)


async def _leaderless(image: MetadataImage, time_slice: TimeSlice) -> int:
    found = 0
    for topic in image.topics.values():
        found += sum(state.leader == NO_LEADER for state in topic.partitions)
        await time_slice.maybe_yield()
    return found


async def _totals(broker: Broker, time_slice: TimeSlice) -> _Totals:
    partitions = leaders = offline = under_replicated = under_min_isr = max_lag = 0
    size_bytes: dict[str, int] = {}
    for topic_id in list(broker.replica_manager.traffic):
        topic = broker.metadata.topic_by_id(topic_id)
        if topic is None:
            continue
        for index in range(len(topic.partitions)):
            await time_slice.maybe_yield()
            partition = local_partition(broker, topic, index)
            if partition is None:
                continue
            partitions += 1
            size_bytes[topic.name] = size_bytes.get(topic.name, 0) + partition.log.size_bytes
            if partition.is_leader:
                leaders += 1
                under_replicated += len(partition.isr) < len(partition.replicas)
                under_min_isr += partition.is_under_min_isr
            offline += partition.role is Role.OFFLINE
            max_lag = max(max_lag, partition.lag or 0)
    return _Totals(partitions, leaders, offline, under_replicated, under_min_isr, max_lag, size_bytes)
