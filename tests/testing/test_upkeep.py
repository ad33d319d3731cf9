"""Compaction and retention when a test wants them, instead of in their own time."""

from __future__ import annotations

from ottla.testing import Broker


def test_compaction_takes_the_newest_records_too(broker: Broker) -> None:
    broker.create_topic("t", configs={"cleanup.policy": "compact"})
    for number in range(9):
        broker.produce("t", number, key=f"k{number % 3}")
    broker.compact()
    assert [record.json() for record in broker.records("t")] == [6, 7, 8]

    broker.produce("t", "late", key="k0")
    broker.compact()
    assert [record.text for record in broker.records("t")] == ["7", "8", "late"]
    broker.restart()
    assert [record.offset for record in broker.records("t")] == [7, 8, 9]


def test_compaction_leaves_what_is_too_young_for_it_and_what_is_not_compacted(broker: Broker) -> None:
    broker.create_topic("young", configs={"cleanup.policy": "compact", "min.compaction.lag.ms": 3_600_000})
    broker.create_topic("plain")
    for topic in ("young", "plain"):
        broker.produce(topic, 1, 2, key="k")
    broker.compact()
    assert {topic: len(broker.records(topic)) for topic in ("young", "plain")} == {"young": 2, "plain": 2}


def test_compaction_of_nothing(broker: Broker) -> None:
    broker.create_topic("t", configs={"cleanup.policy": "compact"})
    broker.compact()
    broker.produce("t", 1, key="k")
    broker.compact()
    broker.compact()
    assert len(broker.records("t")) == 1


def test_retention_deletes_what_is_too_old(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": 60_000})
    broker.produce("t", "old", timestamp_ms=1)
    broker.apply_retention()
    assert broker.records("t") == []
