"""Rows written into topics by `format("ottla")`, beside what Spark's own connector makes of the same rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from compat_tests.clients.confluent import Confluent
from compat_tests.spark.test_batch import send_numbers
from compat_tests.spark.test_writes import everything
from compat_tests.spark.topics import Topics, finish

NewTopic = Callable[..., str]


@pytest.fixture
def topics(connector: Topics) -> Topics:
    """Written, and read, without a jar."""
    return Topics(connector.spark, connector.bootstrap, "ottla")


def append(topics: Topics, rows: DataFrame, topic: str | None, **options: str) -> None:
    writer = rows.write.format("ottla").mode("append").option("kafka.bootstrap.servers", topics.bootstrap)
    (writer.options(**options) if topic is None else writer.options(topic=topic, **options)).save()


def test_a_batch_is_what_the_connector_makes_of_it(
    topics: Topics, connector: Topics, reference: Confluent, new_topic: NewTopic
) -> None:
    ours, theirs = new_topic(partitions=3), new_topic(partitions=3)
    rows = topics.spark.range(3_000).selectExpr(
        "if(id % 5 = 0, null, concat('key-', id % 70)) as key",
        "if(id % 7 = 0, null, binary(string(id))) as value",
        "if(id % 3 = 0, array(struct('a' as key, binary('b') as value), struct('' as key, null as value)), null) "
        "as headers",
        "if(id % 5 = 0, int(id % 3), if(id % 11 = 0, 1, null)) as partition",
        "id as more",
    )
    append(topics, rows.coalesce(1), ours, **{"kafka.compression.type": "lz4"})
    connector.write(rows.coalesce(1), theirs)
    for partition in range(3):
        count = connector.batch(theirs).where(f"partition = {partition}").count()
        ours_there, theirs_there = (everything(reference, topic, count, partition) for topic in (ours, theirs))
        assert [(r.key, r.value, r.headers) for r in ours_there] == [(r.key, r.value, r.headers) for r in theirs_there]
    assert topics.batch(ours).count() == 3_000


def test_each_row_may_name_its_topic(topics: Topics, reference: Confluent, new_topic: NewTopic) -> None:
    names = [new_topic(), new_topic()]
    rows = topics.spark.range(10).selectExpr(f"if(id < 5, '{names[0]}', '{names[1]}') as topic", "string(id) as value")
    append(topics, rows, None, transactional="true")
    assert sorted(int(record.value or b"") for record in everything(reference, names[1], 5)) == [5, 6, 7, 8, 9]


def test_what_is_wrong_reaches_the_job_as_a_sentence(topics: Topics, topic: str) -> None:
    rows = topics.spark.range(1)
    for selected, given, says in (
        ("string(id) as value", None, "topic option required when no 'topic' attribute is present"),
        ("string(id) as key", topic, "Required attribute 'value' not found"),
        ("id as value", topic, r"value attribute unsupported type bigint. value must be a\(n\) string or binary"),
        ("string(id) as value", "no-such-topic", "There is no topic 'no-such-topic' at"),
    ):
        with pytest.raises(PySparkException, match=says):
            append(topics, rows.selectExpr(selected), given)


def test_a_stream_from_topic_to_topic_goes_on_from_its_checkpoint(
    topics: Topics, reference: Confluent, new_topic: NewTopic, tmp_path: Path
) -> None:
    source, target = new_topic(), new_topic(partitions=2)

    def copy() -> None:
        finish(
            topics.stream(source, maxOffsetsPerTrigger=8)
            .selectExpr("key", "string(int(string(value)) * 10) as value")
            .repartition(2)
            .writeStream.format("ottla")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    send_numbers(reference, source, 10)
    copy()
    forget_the_last_commit(tmp_path / "checkpoint")
    send_numbers(reference, source, 10, start=10)
    copy()
    copied = topics.batch(target, **{"kafka.isolation.level": "read_committed"}).selectExpr("int(string(value)) as n")
    assert sorted(row.n for row in copied.collect()) == list(range(0, 200, 10))


def forget_the_last_commit(checkpoint: Path) -> None:
    """As if the driver had died after it committed a batch, and before Spark noted that: the batch is repeated."""
    last = max((path for path in (checkpoint / "commits").iterdir() if path.name.isdigit()), key=lambda p: int(p.name))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink(missing_ok=True)
