"""The source is only a client: it shares the oracle's topics as it does Ottla's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from compat_tests import java
from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.clients.base import Record
from compat_tests.clients.confluent import Confluent
from compat_tests.spark.endurance.share_driver import configure
from ottla.pipeline.share.options import parse_share_options
from ottla.pipeline.share.stream import ShareStreamReader
from tests.pipeline.share.conftest import ALL, next_batch, rows, values

pytestmark = [pytest.mark.java, pytest.mark.kafka]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[ApacheKafka]:
    if reason := java.missing():
        pytest.skip(reason)
    with ApacheKafka(tmp_path, jvm_options=java.QUICK) as process:
        yield process


def test_shares_topics_of_apache_kafka(kafka: ApacheKafka) -> None:
    """A batch, longer than its locks, which the next run repeats; then what is available."""
    client = Confluent(kafka.bootstrap)
    client.create_topic("topic", partitions=2)
    configure(kafka.bootstrap, "group", share_auto_offset_reset="earliest", share_record_lock_duration_ms="1000")
    producer = client.producer()
    producer.send("topic", [Record(b"%d" % number, partition=number % 2) for number in range(20)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "kafka.group.id": "group", "subscribe": "topic"}
    first, other, second, third = (ShareStreamReader(parse_share_options(options)) for _ in range(4))

    start = first.initialOffset()
    end = next_batch(first, start)
    found = rows(first, start, end)
    for _ in range(5):  # each waits for half a second
        assert other.latestOffset(start, ALL) == start
    first.stop()
    other.stop()
    again = rows(second, start, end)
    second.prepareForTriggerAvailableNow()

    assert values(found) == list(range(20))
    assert again == found
    assert second.latestOffset(end, ALL) == end
    second.stop()
    producer.send("topic", [Record(b"20", partition=0)])
    producer.close()
    assert values(rows(third, end, next_batch(third, end))) == [20]
    third.stop()
