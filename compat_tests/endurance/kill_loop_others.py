"""What else goes on in the kill loop: topics come and go, one is compacted, a group commits its offsets.

Each runs in a thread of its own, tries again what a kill has interrupted, and says in the end what is wrong.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections import Counter

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

__all__ = ["Committer", "Compacted", "Other", "Passing", "Transactions", "consume_all"]

SMALL_SEGMENTS = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.01"}
REQUEST_TIMEOUT_S = 5.0
_FAST_AGAIN = {"reconnect.backoff.max.ms": 100, "log_level": 0}


class Other(ABC):
    """Something that is done again and again until `stop`. `done` counts how often it succeeded."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.done = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @abstractmethod
    def turn(self) -> None:
        """Do it once; KafkaException if a kill came between."""

    @abstractmethod
    def wrong(self) -> list[str]:
        """What is wrong in the end, in sentences."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.turn()
                self.done += 1
            except KafkaException:
                time.sleep(0.05)

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **_FAST_AGAIN})

    def producer(self, **settings: object) -> Producer:
        config = {"bootstrap.servers": self.bootstrap, "message.timeout.ms": 300_000, **_FAST_AGAIN}
        return Producer(config | settings)


class Passing(Other):
    """Topics of one name that are made, written and deleted; what a topic holds names which of them it is."""

    NAME, PARTITIONS = "passing", 6

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._admin = self.admin()
        self._number = 0
        self._is_there = False

    def turn(self) -> None:
        if self._is_there:
            try:
                self._admin.delete_topics([self.NAME], request_timeout=REQUEST_TIMEOUT_S)[self.NAME].result()
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
            self._is_there = False
        self._number += 1
        topic = NewTopic(self.NAME, self.PARTITIONS, 1, config=SMALL_SEGMENTS)
        self._is_there = True  # perhaps, if a kill comes now
        self._admin.create_topics([topic], request_timeout=REQUEST_TIMEOUT_S)[self.NAME].result()
        # One that gives up: what is left of it must not be in its successor.
        producer = self.producer(**{"message.timeout.ms": 2000})
        for number in range(300):
            producer.produce(self.NAME, b"%d" % self._number * 20, partition=number % self.PARTITIONS)
        producer.flush(3)
        producer.purge()

    def wrong(self) -> list[str]:
        self._admin.list_topics(timeout=30)
        self._is_there = self.NAME in self._admin.list_topics(timeout=30).topics
        for _ in range(3):
            self.turn()
        found = consume_all(self.bootstrap, self.NAME, self.PARTITIONS)
        strange = {value for *_, value in found if value != b"%d" % self._number * 20}
        missing = 300 - len(found)
        return [f"the topic that was made last holds {strange}"] * bool(strange) + (
            [f"the topic that was made last lacks {missing} of 300 records"] if missing > 0 else []
        )


class Compacted(Other):
    """A compacted topic whose values rise: the last one of each key is the last that was sent."""

    NAME, PARTITIONS, KEYS = "latest", 3, 40

    def __init__(self, bootstrap: str, replicas: int = 1) -> None:
        super().__init__(bootstrap)
        config = {"cleanup.policy": "compact", **SMALL_SEGMENTS}
        admin = self.admin()
        admin.create_topics([NewTopic(self.NAME, self.PARTITIONS, replicas, config=config)])[self.NAME].result()
        self._producer = self.producer(**{"enable.idempotence": True})
        self._sent: dict[bytes, int] = {}
        self._number = 0

    def turn(self) -> None:
        self._number += 1
        key = self._number % self.KEYS
        self._sent[b"%d" % key] = self._number
        self._producer.produce(self.NAME, b"%d" % self._number, b"%d" % key, partition=key % self.PARTITIONS)
        self._producer.poll(0.001)

    def wrong(self) -> list[str]:
        if left := self._producer.flush(60):
            return [f"{left} records of the compacted topic were never answered"]
        latest: dict[bytes, int] = {}
        last_offsets: dict[int, int] = {}
        found = consume_all(self.bootstrap, self.NAME, self.PARTITIONS)
        if len(found) == self._number:
            return ["the compacted topic was never compacted"]
        for partition, offset, key, value in found:
            if offset <= last_offsets.get(partition, -1) or int(value) <= latest.get(key, -1):
                return [f"compacted partition {partition} goes back at offset {offset}"]
            last_offsets[partition], latest[key] = offset, int(value)
        return [] if latest == self._sent else [f"the compacted topic holds {latest}, not {self._sent}"]


class Committer(Other):
    """A group's offsets, which two consumers without a membership commit in turn.

    Not by `alter_consumer_group_offsets`: librdkafka's admin client aborts the process when a kill meets it there
    (`rd_kafka_enq_once_del_source_return`).
    """

    GROUP = "progress"

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(bootstrap)
        self._topic = topic
        config = {"bootstrap.servers": bootstrap, "group.id": self.GROUP, **_FAST_AGAIN}
        self._consumers = [Consumer(config), Consumer(config)]
        self._last = 0
        self._acknowledged = -1

    def turn(self) -> None:
        self._last += 1
        offset = TopicPartition(self._topic, 0, self._last)
        self._consumers[self._last % 2].commit(offsets=[offset], asynchronous=False)
        self._acknowledged = self._last

    def wrong(self) -> list[str]:
        partition = TopicPartition(self._topic, 0)
        found = self._consumers[0].committed([partition], timeout=30)[0].offset
        for consumer in self._consumers:
            consumer.close()
        # What was not acknowledged may be there nevertheless.
        is_right = self._acknowledged <= found <= self._last
        return [] if is_right else [f"the group is at {found}, and {self._acknowledged} was acknowledged"]


class Transactions(Other):
    """Transactions over all partitions of a topic, every third aborted: each is there whole, once, or not at all."""

    NAME, PARTITIONS = "transactional", 3

    def __init__(self, bootstrap: str, replicas: int = 1) -> None:
        super().__init__(bootstrap)
        admin = self.admin()
        admin.create_topics([NewTopic(self.NAME, self.PARTITIONS, replicas)])[self.NAME].result()
        self._number = 0
        self._committed: set[int] = set()
        self._unknown: set[int] = set()
        self._producer: Producer | None = None

    def turn(self) -> None:
        if self._producer is None:
            producer = self.producer(
                **{"transactional.id": "numbers", "transaction.timeout.ms": 30_000, "message.timeout.ms": 25_000}
            )
            producer.init_transactions(30)
            self._producer = producer
        self._number += 1
        try:
            self._producer.begin_transaction()
            for partition in range(self.PARTITIONS):
                self._producer.produce(self.NAME, b"%d" % self._number, partition=partition)
            if self._number % 3:
                self._unknown.add(self._number)
                self._producer.commit_transaction(30)
                self._unknown.discard(self._number)
                self._committed.add(self._number)
            else:
                self._producer.abort_transaction(30)
        except KafkaException:
            # The next producer with this id ends the open transaction, one way or the other.
            self._producer = None
            raise

    def wrong(self) -> list[str]:
        deadline = time.monotonic() + 120
        while True:
            try:
                self.turn()  # ends what the last one has left open
                break
            except KafkaException as error:
                if time.monotonic() > deadline:
                    return [f"no transaction ends any more: {error}"]
        found = Counter(int(value) for *_, value in consume_all(self.bootstrap, self.NAME, self.PARTITIONS))
        partly = {number: count for number, count in found.items() if count != self.PARTITIONS}
        missing = self._committed - found.keys()
        strange = found.keys() - self._committed - self._unknown
        return (
            [f"transactions are there in part or twice: {partly}"] * bool(partly)
            + [f"transactions that were committed are missing: {sorted(missing)[:20]}"] * bool(missing)
            + [f"transactions that were aborted are there: {sorted(strange)[:20]}"] * bool(strange)
        )


def consume_all(bootstrap: str, topic: str, partitions: int) -> list[tuple[int, int, bytes, bytes]]:
    """(partition, offset, key, value) of all committed records of a topic that nobody writes to."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "enable.auto.commit": False})
    ends = {}
    for partition in range(partitions):
        _, ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[tuple[int, int, bytes, bytes]] = []
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        for message in consumer.consume(10_000, 1.0):
            if message.error() is None:
                place = message.partition() or 0, message.offset() or 0
                found.append((*place, message.key() or b"", message.value() or b""))
        positions = consumer.position([TopicPartition(topic, partition) for partition in range(partitions)])
        if all(each.offset >= ends[each.partition] or not ends[each.partition] for each in positions):
            break
    consumer.close()
    return found
