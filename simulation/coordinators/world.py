"""One seed's world: topics that come and go, a log that outlives brokers, and the broker that lives now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from random import Random
from uuid import UUID

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.configs import GroupConfigs
from ottla.coordinator.group.coordinator import GroupCoordinator
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, TopicPartition
from ottla.coordinator.group.streams.heartbeat import StreamsGroupConfig
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.partitioning import coordinator_partition
from ottla.kproto.records import EndTxnMarker
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.runtime.purgatory import Purgatory
from ottla.simulation.coordinators.history import History, Key
from ottla.simulation.coordinators.log import SimulatedLog

HERE, ELSEWHERE = 1, 2
GROUPS = ("g0", "g1", "g2")
TOPICS = ("t0", "t1")
TOPIC_PARTITIONS = 2
OFFSETS_PARTITIONS = 2
SESSION_TIMEOUT_MS = 2_000
REBALANCE_TIMEOUT_MS = 1_500
RETENTION_MS = 3_600_000
CHECK_INTERVAL_MS = 200

STREAMS_CONFIG = StreamsGroupConfig(
    session_timeout_ms=SESSION_TIMEOUT_MS, assignment_interval_ms=0, initial_rebalance_delay_ms=300
)
CONFIG = GroupConfig(
    min_session_timeout_ms=1,
    initial_rebalance_delay_ms=50,
    offsets_retention_ms=RETENTION_MS,
    offsets_retention_check_interval_ms=CHECK_INTERVAL_MS,
    offsets_topic_partitions=OFFSETS_PARTITIONS,
    consumer_session_timeout_ms=SESSION_TIMEOUT_MS,
    consumer_heartbeat_interval_ms=300,
)


class SimulatedClock:
    """The wall clock: Trio's, and whatever it was set forward by."""

    def __init__(self) -> None:
        self._ahead_ms = 1_700_000_000_000

    def time_ms(self) -> int:
        return self._ahead_ms + int(trio.current_time() * 1000)

    def set_forward(self, duration_ms: int) -> None:
        self._ahead_ms += duration_ms


class Configs(GroupConfigs):
    """Streams groups wait for nothing."""

    def of_streams_group(self, group_id: str) -> StreamsGroupConfig:
        return STREAMS_CONFIG


class World:
    """What there is besides clients. `violations` says what went wrong first, of each kind."""

    def __init__(self, seed: int, only: Collection[int] | None = None) -> None:
        self.seed = seed
        self._only = only
        self._steps = 0
        #: The steps of clients that were done, by number.
        self.parts: dict[int, str] = {}
        self.rng = Random(seed)
        self.clock = SimulatedClock()
        self.log = SimulatedLog(self.rng)
        self.log.slowness = self.rng.choice((0.0, 0.01, 0.2))
        self.image = MetadataImage(revision=1)
        self.history = History(is_living=self.is_living, now_ms=self.clock.time_ms, retention_ms=RETENTION_MS)
        #: Transactions that nobody has ended yet: a producer id, and the partitions with offsets of it.
        self.open_transactions: dict[int, set[int]] = {}
        self.coordinator: GroupCoordinator
        self.purgatory: Purgatory
        self.violations: dict[str, str] = {}
        self.trace: list[str] = []
        self.done: Counter[str] = Counter()
        self._leads = [False] * OFFSETS_PARTITIONS
        self._topics_made = 0
        self._transactions_begun = 0
        for name in TOPICS:
            self._add_topic(name)

    def note(self, text: str) -> None:
        """One line of the seed's story."""
        self.trace.append(f"{trio.current_time():9.4f} {text}")

    def takes(self, client: str) -> bool:
        """Whether a client's next step is done: all are, or those whose numbers were asked for."""
        number = self._steps
        self._steps += 1
        is_taken = self._only is None or number in self._only
        if is_taken:
            self.parts[number] = f"{trio.current_time():9.4f} {client}"
        return is_taken

    def violate(self, text: str) -> None:
        """Something that must never be has happened: a kind, a colon, and the particulars."""
        kind = text.split(":")[0]
        if kind not in self.violations:
            self.violations[kind] = text
            self.trace.append(f"VIOLATION {text}")

    # Topics

    def is_living(self, topic_id: UUID) -> bool:
        return self.image.topic_by_id(topic_id) is not None

    def _add_topic(self, name: str) -> TopicImage:
        self._topics_made += 1
        state = PartitionState.initial((HERE,))
        topic = TopicImage(name, UUID(int=0xABC00 + self._topics_made, version=4), (state,) * TOPIC_PARTITIONS)
        self.image = MetadataImage(
            revision=self.image.revision + 1,
            topics=self.image.topics.set(name, topic),
            topics_by_id=self.image.topics_by_id.set(topic.topic_id, topic),
        )
        return topic

    def create_topic(self, name: str) -> None:
        before = self.image
        topic = self._add_topic(name)
        self.note(f"create topic {name} {topic.topic_id}")
        self.coordinator.apply(MetadataDelta(before, self.image, created_topics=[topic]))

    def delete_topic(self, name: str) -> None:
        before, topic = self.image, self.image.topics[name]
        self.note(f"delete topic {name} {topic.topic_id}")
        self.image = MetadataImage(
            revision=before.revision + 1,
            topics=before.topics.remove(name),
            topics_by_id=before.topics_by_id.remove(topic.topic_id),
        )
        self.coordinator.apply(MetadataDelta(before, self.image, deleted_topics=[topic]))

    # The broker

    def start(self, nursery: trio.Nursery) -> None:
        """A broker starts, on the log that the last one left."""
        self.note("start")
        self.purgatory = Purgatory("group")
        self.coordinator = GroupCoordinator(
            node_id=HERE,
            config=CONFIG,
            clock=self.clock,
            log=self.log,
            topics=GroupTopics(self),
            purgatory=self.purgatory,
            nursery=nursery,
            configs=Configs(CONFIG),
        )
        self._leads = [False] * OFFSETS_PARTITIONS
        for partition in range(OFFSETS_PARTITIONS):
            self.lead(partition, here=True)

    def die(self) -> None:
        """The broker shuts down, or is killed: its starter cancels all its tasks.

        Its requests are refused or never answered; an append may have been stored.
        """
        is_stopped = self.rng.random() < 0.5
        self.note("stop" if is_stopped else "die")
        if is_stopped:
            self.coordinator.runtime.close()

    def lead(self, partition: int, *, here: bool) -> None:
        """The partition of `__consumer_offsets` moves to this broker, or away."""
        if self._leads[partition] == here:
            return
        self._leads[partition] = here
        self.note(f"partition {partition} is led {'here' if here else 'elsewhere'}")
        state = PartitionState.initial((HERE if here else ELSEWHERE,))
        topic = TopicImage(OFFSETS_TOPIC, UUID(int=1), (state,) * OFFSETS_PARTITIONS)
        change = PartitionChange(topic, partition, None, state)
        self.coordinator.apply(MetadataDelta(self.image, self.image, changed_partitions=[change]))

    @staticmethod
    def partition_of(group: str) -> int:
        return coordinator_partition(group, OFFSETS_PARTITIONS)

    def begin_transaction(self) -> int:
        """The producer id of a new transaction."""
        self._transactions_begun += 1
        self.open_transactions[self._transactions_begun] = set()
        return self._transactions_begun

    async def end_transaction(self, producer_id: int, *, commit: bool) -> bool:
        """Write the markers that are missing; False if a partition refused its."""
        for partition in sorted(self.open_transactions[producer_id]):
            try:
                await self.coordinator.offsets.complete_transaction(partition, EndTxnMarker(producer_id, 0, 0, commit))
            except CoordinatorError:
                return False
            self.open_transactions[producer_id].discard(partition)
        del self.open_transactions[producer_id]
        return True

    # What clients see

    def audit(self, group: str | None = None) -> None:
        """Fetch what was ever committed, by one group or by all, and judge it. What is not available now is left
        out.
        """
        for key in self.history.keys:
            if group not in (None, key.group):
                continue
            partition = TopicPartition(key.topic, key.partition)
            try:
                found = self.coordinator.offsets.fetch(key.group, [partition], require_stable=False)[partition]
            except CoordinatorError:
                continue
            assert found is None or isinstance(found, CommittedOffset)
            wrong = self.history.judge(key, None if found is None else found.offset)
            if wrong is not None:
                self.violate(wrong)

    def all_keys(self, group: str) -> list[Key]:
        return [Key(group, topic, index) for topic in TOPICS for index in range(TOPIC_PARTITIONS)]
