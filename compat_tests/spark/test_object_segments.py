"""Tiered topics that Spark reads out of the object store, while no broker runs."""

from __future__ import annotations

import time
from pathlib import Path

from pyspark.sql import SparkSession

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from ottla.tiers.manifest import Manifest
from ottla.tiers.names import TopicNames

TOPIC = "archive"
PARTITIONS = 2
QUICK = {
    "remote.log.manager.task.interval.ms": "50",
    "ottla.checkpoint.bytes": "1048576",
}
TIERED = {
    "remote.storage.enable": "true",
    "segment.bytes": "1048576",
    "local.retention.bytes": "1",
    "retention.ms": "-1",
}
DEADLINE_S = 120.0
# In the future, so that the markers of transactions, which count where a time is looked for, are before all records.
T0_MS = time.time_ns() // 1_000_000 + 600_000

Found = list[tuple[int, int, bytes | None, bytes | None]]


def fill(client: Confluent) -> None:
    """Transactions of two producers that overlap, of which each aborts some."""
    first, second = client.transactional("first"), client.transactional("second")
    for number in range(40):
        first.begin()
        second.begin()
        for place in range(6):
            time_ms = T0_MS + 1000 * number
            partition = place % PARTITIONS
            first.send(TOPIC, [Record(b"%d" % number + b"a" * 20_000, b"k", partition=partition, timestamp_ms=time_ms)])
            second.send(
                TOPIC, [Record(b"%d" % number + b"b" * 20_000, None, partition=partition, timestamp_ms=time_ms)]
            )
        (first.abort if number % 3 == 0 else first.commit)()
        (second.abort if number % 4 == 0 else second.commit)()


def copied(remote: Path) -> dict[int, int]:
    """Where each partition ends in the object store, once nothing more is copied."""
    deadline = time.monotonic() + DEADLINE_S
    before: dict[int, int] = {}
    while True:
        assert time.monotonic() < deadline
        ends = {}
        for path in remote.glob("*/topics/*/manifests/*"):
            names = TopicNames.of_folder(path.parts[-5], path.parts[-3])
            assert names is not None
            manifest = Manifest.from_bytes(path.read_bytes(), names.topic_id, int(path.name))
            ends[int(path.name)] = manifest.end_offset
        if len(ends) == PARTITIONS and min(ends.values()) > 60 and ends == before:
            return ends
        before = ends
        time.sleep(1)


def test_rows_are_those_of_a_consumer(spark: SparkSession, tmp_path: Path) -> None:
    remote = tmp_path / "remote"
    remote.mkdir()
    with OttlaBroker(tmp_path / "broker", overrides=QUICK | {"ottla.remote.url": f"file://{remote}"}) as broker:
        client = Confluent(broker.bootstrap)
        client.create_topic(TOPIC, partitions=PARTITIONS, configs=TIERED)
        fill(client)
        committed = sum(3 * ((number % 3 > 0) + (number % 4 > 0)) for number in range(40))
        consumed: Found = []
        for partition in range(PARTITIONS):
            consumer = client.consumer(TOPIC, BEGINNING, partition=partition, isolation="read_committed")
            consumed += [(it.partition, it.offset, it.key, it.value) for it in consumer.take(committed)]
            consumer.close()
        ends = copied(remote)
    archive = spark.read.format("ottla-segments").option("subscribe", TOPIC).option("maxPartitionBytes", "700000")

    rows = archive.load(f"file://{remote}").orderBy("partition", "offset").collect()
    found: Found = [(it.partition, it.offset, it.key and bytes(it.key), bytes(it.value)) for it in rows]

    assert found == [it for it in consumed if it[1] < ends[it[0]]]
    assert len(found) > 150

    since = (
        spark.read.format("ottla-segments")
        .option("subscribe", TOPIC)
        .option("startingTimestamp", T0_MS + 20_000)
        .option("columns", "partition,offset,timestamp")
    )
    late = [it for it in found if int((it[3] or b"").rstrip(b"ab")) >= 20]
    rows = since.load(f"file://{remote}").collect()
    assert sorted((it.partition, it.offset) for it in rows) == [it[:2] for it in late]

    if spark.version >= "4.1":
        all_tasks = archive.load(f"file://{remote}").rdd.getNumPartitions()
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
        try:
            kept = archive.option("pushFilters", "true").load(f"file://{remote}")
            part = kept.where(f"partition = 1 AND offset >= 30 AND timestamp >= timestamp_millis({T0_MS + 10_000})")
            rows = part.select("partition", "offset").collect()
            tasks = part.rdd.getNumPartitions()
        finally:
            spark.conf.unset("spark.sql.python.filterPushdown.enabled")
        wanted = [it[:2] for it in found if it[0] == 1 and it[1] >= 30 and int((it[3] or b"").rstrip(b"ab")) >= 10]
        assert sorted((it.partition, it.offset) for it in rows) == wanted
        assert tasks < all_tasks
