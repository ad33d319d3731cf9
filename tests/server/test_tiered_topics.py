"""Whole brokers with tiered topics: clients read across the border, through kills, failures and lost disks."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka import admin as confluent_admin
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker, BrokerError

_ADMIN: Any = confluent_admin

QUICK = {
    "remote.log.manager.task.interval.ms": "50",
    "log.segment.bytes": "1048576",
    "ottla.checkpoint.bytes": "1048576",
}
TIERED = {
    "remote.storage.enable": "true",
    "local.retention.bytes": "1",
    "local.retention.ms": "1",
    "segment.bytes": "1048576",
}
DEADLINE_S = 90.0
RECORDS = 6000
FEW = 3000
PARTITION = TopicPartition("trips", 0)
EARLIEST, LATEST = _ADMIN.OffsetSpec.earliest(), _ADMIN.OffsetSpec.latest()


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def values(first: int, count: int) -> list[bytes]:
    return [b"%08d" % number + b"x" * 500 for number in range(first, first + count)]


class Cluster:
    """A broker whose object store is a folder."""

    def __init__(self, folder: Path, *, process: bool = False) -> None:
        self.remote = folder / "remote"
        self.remote.mkdir()
        self.data = folder / "data"
        config = QUICK | {"ottla.remote.url": f"file://{self.remote}"}
        self.broker = Broker(config=config, data_dir=self.data, process=process)

    @cached_property
    def admin(self) -> AdminClient:
        """One for all: the port stays the same."""
        return AdminClient({"bootstrap.servers": self.broker.bootstrap})

    def create(self, **configs: str) -> None:
        topic = _ADMIN.NewTopic(
            "trips", 1, 1, config=TIERED | {name.replace("_", "."): it for name, it in configs.items()}
        )
        self.admin.create_topics([topic])["trips"].result(30)

    def produce(self, wanted: list[bytes]) -> list[bytes]:
        """Those that are acknowledged, in the order of their offsets."""
        taken: list[tuple[int, bytes]] = []
        producer = Producer({"bootstrap.servers": self.broker.bootstrap, "linger.ms": 5, "batch.size": 50_000})

        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                taken.append((message.offset() or 0, message.value() or b""))

        for value in wanted:
            producer.produce("trips", value, on_delivery=delivered)
            producer.poll(0)
        producer.flush(60)
        return [value for _, value in sorted(taken)]

    def consume(self, count: int, offset: int = 0) -> list[bytes]:
        config = {"bootstrap.servers": self.broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"}
        found: list[bytes] = []
        with closing(Consumer(config)) as consumer:
            consumer.assign([TopicPartition("trips", 0, offset)])
            deadline = time.monotonic() + DEADLINE_S
            while len(found) < count:
                assert time.monotonic() < deadline, len(found)
                for message in consumer.consume(1000, timeout=0.2):
                    error = message.error()
                    assert error is None or error.code() == KafkaError.UNKNOWN, error
                    if error is None:
                        found.append(message.value() or b"")
        return found

    def offset(self, spec: Any) -> int:
        deadline = time.monotonic() + DEADLINE_S
        while True:
            # A new one each time: librdkafka's keeps the leader epoch from before a restart.
            admin = AdminClient({"bootstrap.servers": self.broker.bootstrap})
            try:
                return int(admin.list_offsets({PARTITION: spec})[PARTITION].result(30).offset)
            except KafkaException:
                # Soon after a start nobody leads.
                assert time.monotonic() < deadline
                time.sleep(0.05)

    def objects(self) -> int:
        return sum(path.is_file() for path in self.remote.rglob("segments/*"))

    def local_start(self) -> int:
        """Where the log begins on the disk, as the broker itself knows."""
        node = self.broker._thread
        assert node is not None
        broker = node.ready.broker
        topic = broker.metadata.topics["trips"]
        return int(broker.replica_manager.get_partition(topic.topic_id, 0).log.log_start_offset)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path)
    with found.broker:
        yield found


def test_everything_is_read_though_the_disk_has_only_the_end(cluster: Cluster) -> None:
    cluster.create()
    produced = cluster.produce(values(0, RECORDS))
    assert len(produced) == RECORDS
    until(lambda: cluster.local_start() > RECORDS // 2)
    assert cluster.offset(EARLIEST) == 0
    assert cluster.offset(LATEST) == RECORDS
    assert cluster.consume(RECORDS) == produced
    assert cluster.consume(RECORDS - 1234, 1234) == produced[1234:]


def test_a_store_that_is_gone_stops_neither_producers_nor_readers_of_the_end(cluster: Cluster) -> None:
    cluster.create()
    produced = cluster.produce(values(0, RECORDS))
    until(lambda: cluster.local_start() > RECORDS // 2)
    cluster.broker.restart()  # nothing is in memory any more
    aside = cluster.remote.rename(cluster.remote.with_name("aside"))
    cluster.remote.write_bytes(b"no folder")
    produced += cluster.produce(values(RECORDS, 3000))
    assert len(produced) == RECORDS + 3000
    start = cluster.local_start()
    assert cluster.consume(len(produced) - start, start) == produced[start:]
    with closing(
        Consumer({"bootstrap.servers": cluster.broker.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    ) as consumer:
        consumer.assign([TopicPartition("trips", 0, 0)])
        refused: list[Message] = []

        def is_refused() -> bool:
            refused.extend(consumer.consume(1, timeout=0.1))
            return bool(refused)

        until(is_refused)
        error = refused[0].error()
        assert error is not None
        assert error.code() == KafkaError.UNKNOWN
    cluster.remote.unlink()
    aside.rename(cluster.remote)
    assert cluster.consume(len(produced)) == produced
    until(lambda: cluster.local_start() > RECORDS)


def test_a_folder_that_is_not_mounted_is_no_empty_object_store(cluster: Cluster) -> None:
    cluster.create()
    produced = cluster.produce(values(0, RECORDS))
    until(lambda: cluster.local_start() > RECORDS // 2)
    start = cluster.local_start()
    cluster.broker.stop()
    mounted = cluster.remote.rename(cluster.remote.with_name("mounted"))
    cluster.remote.mkdir()
    cluster.broker.start()
    produced += cluster.produce(values(RECORDS, RECORDS))
    assert cluster.consume(len(produced) - start, start) == produced[start:]
    refused = cluster.admin.list_offsets({PARTITION: EARLIEST}, request_timeout=1)[PARTITION]
    with pytest.raises(KafkaException):
        refused.result(30)
    assert cluster.local_start() == start
    assert list(cluster.remote.iterdir()) == []
    cluster.remote.rmdir()
    mounted.rename(cluster.remote)
    assert cluster.consume(len(produced)) == produced
    assert cluster.offset(EARLIEST) == 0
    until(lambda: cluster.local_start() > RECORDS)
    assert cluster.consume(len(produced)) == produced


def test_an_empty_disk_serves_old_records_at_once(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker:
        cluster.create()
        produced = cluster.produce(values(0, RECORDS))
        until(lambda: cluster.local_start() > RECORDS // 2)
        copied = cluster.local_start()
        cluster.broker.stop()
        for folder in cluster.data.glob("node-*/trips.*"):
            shutil.rmtree(folder)
        cluster.broker.start()
        until(lambda: cluster.offset(LATEST) >= copied)
        assert cluster.offset(EARLIEST) == 0
        kept = cluster.offset(LATEST)
        assert cluster.consume(kept) == produced[:kept]
        more = cluster.produce(values(RECORDS, RECORDS))
        assert cluster.consume(kept + RECORDS) == produced[:kept] + more
        until(lambda: cluster.local_start() > kept)
        assert cluster.consume(kept + RECORDS) == produced[:kept] + more


@pytest.mark.parametrize("seen", ["segments/*.index", "manifests/*"])
def test_a_kill_loses_nothing(tmp_path: Path, seen: str) -> None:
    """As soon as an object of this kind is there, and then once more. Everything that lasts is done by requests to the
    object store, and tests/tiers kills a node at each of them.
    """
    cluster = Cluster(tmp_path, process=True)
    with cluster.broker:
        cluster.create()
        produced: list[bytes] = []
        for number in range(2):
            produced += cluster.produce(values(number * FEW, FEW))
            until(lambda: any(cluster.remote.rglob(seen)))
            cluster.broker.kill()
            cluster.broker.start()
        assert len(produced) == 2 * FEW
        assert cluster.consume(len(produced)) == produced
        until(lambda: len(list(cluster.remote.rglob("manifests/*"))) == 1)
        assert cluster.offset(EARLIEST) == 0
        assert cluster.consume(len(produced)) == produced


def test_deleted_records_and_a_deleted_topic_leave_the_object_store(cluster: Cluster) -> None:
    cluster.create()
    produced = cluster.produce(values(0, RECORDS))
    until(lambda: cluster.local_start() > RECORDS // 2)
    at = TopicPartition("trips", 0, 1000)
    cluster.admin.delete_records([at])[at].result(30)
    assert cluster.offset(EARLIEST) == 1000
    assert cluster.consume(RECORDS - 1000, 1000) == produced[1000:]
    cluster.broker.restart()
    until(lambda: cluster.offset(EARLIEST) == 1000)
    assert cluster.objects() > 0
    cluster.admin.delete_topics(["trips"])["trips"].result(30)
    until(lambda: cluster.objects() == 0)


REFUSALS = {
    "Remote log storage only supports topics with cleanup.policy=delete or cleanup.policy being an empty list.": {
        "cleanup.policy": "compact"
    },
    "Invalid value 11 for configuration local.retention.ms: Value must not be more than retention.ms property value: "
    "10": {"retention.ms": "10", "local.retention.ms": "11"},
    "Invalid value -1 for configuration local.retention.bytes: Value must not be -1 as retention.bytes value is set as "
    "10.": {"retention.bytes": "10", "local.retention.bytes": "-1"},
    "When `remote.log.copy.disable` is set to true, the `local.retention.bytes` and `retention.bytes` must be set to "
    "the identical value because there will be no more logs copied to the remote storage.": {
        "remote.log.copy.disable": "true",
        "retention.bytes": "20",
        "local.retention.bytes": "10",
    },
    "Invalid value 9 for configuration remote.copy.lag.ms: Value must not exceed local.retention.ms (effective value: "
    "8)": {"local.retention.ms": "8", "remote.copy.lag.ms": "9"},
}


def test_settings_that_make_no_sense_are_refused_in_kafkas_words() -> None:
    with Broker(config={"ottla.remote.url": "file:///nobody/writes/here"}) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for sentence, configs in REFUSALS.items():
            topic = _ADMIN.NewTopic("t", 1, 1, config={"remote.storage.enable": "true", **configs})
            with pytest.raises(KafkaException) as refused:
                admin.create_topics([topic])["t"].result(30)
            assert refused.value.args[0].str() == sentence
        admin.create_topics([_ADMIN.NewTopic("t", 1, 1, config={"remote.storage.enable": "true"})])["t"].result(30)
        change = {"incremental_operation": _ADMIN.AlterConfigOpType.SET}
        entry = _ADMIN.ConfigEntry("remote.storage.enable", "false", **change)
        resource = _ADMIN.ConfigResource("topic", "t", incremental_configs=[entry])
        with pytest.raises(KafkaException, match="It is invalid to disable remote storage without deleting"):
            admin.incremental_alter_configs([resource])[resource].result(30)
        entry = _ADMIN.ConfigEntry("remote.log.delete.on.disable", "true", **change)
        resource.add_incremental_config(entry)
        admin.incremental_alter_configs([resource])[resource].result(30)


def test_a_broker_without_the_object_store_of_its_topics_does_not_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with cluster.broker:
        cluster.create()
    with pytest.raises(BrokerError, match="before disabling tiered storage cluster-wide"):
        Broker(data_dir=cluster.data).start()
