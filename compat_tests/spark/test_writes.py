"""Tables and streams written into topics by Spark's own connector, and read back by librdkafka."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from compat_tests.clients.base import BEGINNING, Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.test_batch import send_numbers
from compat_tests.spark.topics import Topics, finish


def everything(client: Confluent, topic: str, count: int, partition: int = 0) -> list[Record]:
    consumer = client.consumer(topic, BEGINNING, partition=partition)
    taken = consumer.take(count)
    consumer.close()
    return taken


@pytest.mark.quick
def test_a_batch_with_keys_headers_and_partitions(
    connector: Topics, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(partitions=2)
    rows = connector.spark.range(100).selectExpr(
        "concat('key-', id) as key",
        "if(id = 99, null, string(id)) as value",
        "int(id % 2) as partition",
        "array(struct('source' as key, binary('spark') as value)) as headers",
    )
    connector.write(rows, topic)
    even, odd = (everything(reference, topic, 50, partition) for partition in (0, 1))
    assert sorted(int(record.value) for record in even if record.value) == list(range(0, 100, 2))
    assert {record.headers for record in even + odd} == {(("source", b"spark"),)}
    (tombstone,) = [record for record in odd if record.value is None]
    assert tombstone.key == b"key-99"


def test_the_topic_may_stand_in_a_column(
    connector: Topics, reference: Confluent, new_topic: Callable[..., str]
) -> None:
    topics = [new_topic(), new_topic()]
    rows = connector.spark.range(10).selectExpr(
        f"if(id < 5, '{topics[0]}', '{topics[1]}') as topic", "string(id) as value"
    )
    connector.write(rows)
    assert sorted(int(record.value or b"") for record in everything(reference, topics[1], 5)) == [5, 6, 7, 8, 9]


def test_a_stream_from_topic_to_topic_goes_on_from_its_checkpoint(
    connector: Topics, reference: Confluent, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic()

    def copy() -> None:
        finish(
            connector.stream(source)
            .selectExpr("key", "string(int(string(value)) * 10) as value")
            .writeStream.format("kafka")
            .option("kafka.bootstrap.servers", connector.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    send_numbers(reference, source, 10)
    copy()
    send_numbers(reference, source, 10, start=10)
    copy()
    copied = everything(reference, target, 20)
    assert [int(record.value or b"") for record in copied] == list(range(0, 200, 10))
    assert connector.batch(target).count() == 20
