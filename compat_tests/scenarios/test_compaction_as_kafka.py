"""Compaction's rules against Apache Kafka's cleaner: the same segment files in, the same batches out.

Apache Kafka gets a random history of plain, idempotent and transactional batches and cleans it in four passes, with
more written in between. Each pass starts from the files that Kafka had; what Ottla's `CleaningPass` makes of them must
be what Kafka made of them: every batch, every record, every header field but the time of the delete horizon.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.java import QUICK
from ottla.kproto.records import BatchHeader, iter_batches, iter_records, parse_batch_header, parse_end_txn_marker
from ottla.storage.state.aborted_transactions import AbortedTransactions
from ottla.storage.state.producer_state import ProducerStateManager
from ottla.storage.upkeep.compaction.batch_filter import last_records
from ottla.storage.upkeep.compaction.cleaning import CleaningPass
from ottla.storage.upkeep.compaction.policy import CleanableRange

pytestmark = [pytest.mark.kafka, pytest.mark.java, pytest.mark.slow]

DAY_MS = 86_400_000
SEGMENT_MS = 3_600_000
OVERRIDES = {"log.cleaner.backoff.ms": "200", "log.cleaner.dedupe.buffer.size": "4194304"}


class Traffic:
    """Random batches into a topic. Segments roll by the records' own time, which runs ahead of the clock's."""

    def __init__(self, bootstrap: str, topic: str, rng: Random) -> None:
        settings: dict[str, str | int | bool] = {"bootstrap.servers": bootstrap, "linger.ms": 0}
        self.topic = topic
        self.rng = rng
        self.now_ms = int(time.time() * 1000) + SEGMENT_MS
        self.producers = [
            Producer(settings | {"compression.type": "lz4"}),
            Producer(settings | {"enable.idempotence": True}),
        ]
        self.transactional = [Producer(settings | {"transactional.id": f"copy-{number}"}) for number in range(3)]
        for producer in self.transactional:
            producer.init_transactions()

    def run(self, rounds: int) -> None:
        """Write, then begin a segment, so that all that was written is cleanable."""
        for _ in range(rounds):
            if self.rng.random() < 0.5:
                self.send(self.rng.choice(self.producers))
            else:
                producer = self.rng.choice(self.transactional)
                producer.begin_transaction()
                for _ in range(self.rng.randint(1, 3)):
                    self.send(producer)
                if self.rng.random() < 0.6:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
            if self.rng.random() < 0.1:
                self.roll()
        self.roll()
        self.send(self.producers[0])

    def roll(self) -> None:
        """Let the next record begin a segment."""
        self.now_ms += 2 * SEGMENT_MS

    def send(self, producer: Producer) -> None:
        """One to six records, some of them tombstones."""
        for _ in range(self.rng.randint(1, 6)):
            value = None if self.rng.random() < 0.2 else self.rng.randbytes(4)
            producer.produce(self.topic, key=self.rng.choice(list("abcdefghijkl")), value=value, timestamp=self.now_ms)
        assert producer.flush(30) == 0


class KafkaLog:
    """The topic's segment files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def base_offsets(self) -> list[int]:
        return sorted(int(path.stem) for path in self.folder.glob("*.log"))

    def batches(self) -> list[bytes]:
        found = []
        for base_offset in self.base_offsets():
            content = (self.folder / f"{base_offset:020}.log").read_bytes()
            found += [content[pos : pos + header.size_bytes] for pos, header in iter_batches(content)]
        return found

    def decided_batches(self) -> list[bytes]:
        """All batches, with every transaction's marker: a producer is answered before that is written."""
        deadline = time.monotonic() + 60
        while open_transactions(batches := self.batches()):
            assert time.monotonic() < deadline, "a transaction has no marker"
            time.sleep(0.1)
        return batches

    def wait_until(self, expected: list[int]) -> None:
        """Wait until the cleaner has made these segments of all."""
        deadline = time.monotonic() + 60
        while self.base_offsets() != expected:
            assert time.monotonic() < deadline, f"the segments are still {self.base_offsets()}"
            time.sleep(0.1)


def open_transactions(batches: Sequence[bytes]) -> set[int]:
    """The producers whose last transaction has no marker."""
    found = set()
    for header in map(parse_batch_header, batches):
        if header.is_control:
            found.discard(header.producer_id)
        elif header.is_transactional:
            found.add(header.producer_id)
    return found


class OttlaCleaner:
    """Cleans batches as the engine does, with the index that it keeps from pass to pass."""

    def __init__(self) -> None:
        self.state = ProducerStateManager()
        self.aborted = AbortedTransactions()
        self.first_dirty_offset = 0

    def clean(
        self, batches: Sequence[bytes], end_offset: int, high_watermark: int, delete_retention_ms: int
    ) -> list[bytes]:
        for batch in batches:
            self.follow(batch, parse_batch_header(batch))
        cleaning = CleaningPass(
            CleanableRange(self.first_dirty_offset, end_offset, 0, 0, is_due=True),
            aborted=[transaction for transaction in self.aborted if transaction.first_offset < end_offset],
            producers=last_records(self.state),
            high_watermark=high_watermark,
            now_ms=int(time.time() * 1000),
            delete_retention_ms=delete_retention_ms,
            memory_bytes=1 << 20,
        )
        within = [(batch, parse_batch_header(batch)) for batch in batches]
        within = [(batch, header) for batch, header in within if header.next_offset <= end_offset]
        for batch, header in within:
            if header.last_offset >= self.first_dirty_offset:
                assert cleaning.index(batch, 0, header)
        cleaning.begin_rewrite()
        cleaned = [cleaning.clean(batch, 0, header) for batch, header in within]
        self.aborted = self.aborted.replaced_before(end_offset, cleaning.retained_aborted)
        self.first_dirty_offset = cleaning.first_dirty_offset
        return [bytes(batch) for batch in cleaned if batch is not None]

    def follow(self, batch: bytes, header: BatchHeader) -> None:
        """Take over what is new of producers and transactions."""
        if header.base_offset < self.state.end_offset:
            return
        completed = self.state.replay(header, parse_end_txn_marker(batch) if header.is_control else None)
        if completed is not None and completed.is_aborted:
            self.aborted.append(
                completed.producer_id, completed.first_offset, completed.last_offset, completed.last_stable_offset
            )


def described(batch: bytes) -> tuple[object, ...]:
    """All that a reader can tell, save when tombstones and markers may go."""
    header = parse_batch_header(batch)
    meant = header._replace(
        batch_length=0,
        crc=0,
        base_timestamp_ms=0,
        max_timestamp_ms=header.max_timestamp_ms if header.record_count else 0,
    )
    return (meant, *iter_records(batch))


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    with ApacheKafka(tmp_path_factory.mktemp("kafka"), overrides=OVERRIDES, jvm_options=QUICK) as process:
        yield process


@pytest.mark.parametrize("seed", [1, 2])
def test_four_passes_end_alike(seed: int, kafka: ApacheKafka) -> None:
    topic = f"compacted-{seed}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    config = {"cleanup.policy": "delete", "retention.ms": "-1", "segment.ms": f"{SEGMENT_MS}"}
    config |= {"min.cleanable.dirty.ratio": "0.0", "message.timestamp.after.max.ms": f"{30 * DAY_MS}"}
    for created in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        created.result(30)
    log = KafkaLog(kafka.folder / "logs" / f"{topic}-0")
    traffic = Traffic(kafka.bootstrap, topic, Random(seed))
    ottla = OttlaCleaner()
    seen_horizons = seen_empty = 0
    for rounds, delete_retention_ms in ((60, DAY_MS), (20, 0), (10, 0), (10, 0)):
        traffic.run(rounds)
        before = log.decided_batches()
        segments = log.base_offsets()
        assert len(segments) > 2
        high_watermark = parse_batch_header(log.batches()[-1]).next_offset
        expected = ottla.clean(before, segments[-1], high_watermark, delete_retention_ms)
        alter(admin, topic, {"delete.retention.ms": f"{delete_retention_ms}", "cleanup.policy": "compact"})
        log.wait_until([0, segments[-1]])
        alter(admin, topic, {"cleanup.policy": "delete"})
        after = [batch for batch in log.batches() if parse_batch_header(batch).base_offset < segments[-1]]
        assert [described(batch) for batch in after] == [described(batch) for batch in expected]
        seen_horizons += sum(parse_batch_header(batch).delete_horizon_ms is not None for batch in after)
        seen_empty += sum(parse_batch_header(batch).record_count == 0 for batch in after)
    assert seen_horizons
    assert seen_empty


def alter(admin: AdminClient, topic: str, config: dict[str, str]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in config.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)
