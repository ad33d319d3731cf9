"""Setting a broker's clock forward: retention, sessions and transactions end as if the time had passed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Consumer, Producer

from ottla.testing import Broker


def test_retention_removes_what_is_too_old(broker: Broker) -> None:
    broker.create_topic("t", configs={"retention.ms": 3_600_000})
    broker.produce("t", "old")
    broker.clock.advance(3000)
    broker.produce("t", "new")
    assert [record.text for record in broker.records("t")] == ["old", "new"]

    broker.clock.advance(3601)

    assert broker.records("t") == []


def test_a_member_that_is_silent_for_its_session_is_expelled(broker: Broker) -> None:
    broker.create_topic("t")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "session.timeout.ms": 45_000})
    try:
        consumer.subscribe(["t"])
        deadline = time.monotonic() + 120
        while not consumer.assignment():
            assert time.monotonic() < deadline
            consumer.poll(0.05)
        assert len(broker.groups()["g"].members) == 1

        broker.clock.advance(46)

        while broker.groups()["g"].members:
            assert time.monotonic() < deadline
    finally:
        consumer.close()


def test_a_transaction_that_takes_too_long_is_aborted(broker: Broker) -> None:
    broker.create_topic("t")
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "transaction.timeout.ms": 60_000}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"never")
    assert producer.flush(30) == 0
    broker.produce("t", "after it")
    assert broker.records("t") == []

    broker.clock.advance(61)

    assert [record.text for record in broker.wait_for("t", 1, timeout_s=30)] == ["after it"]
    assert [record.text for record in broker.records("t", read_committed=False)] == ["never", "after it"]


def test_time_does_not_go_back(broker: Broker) -> None:
    before_ms = broker.clock.time_ms()
    broker.clock.advance(10)
    assert broker.clock.time_ms() >= before_ms + 10_000
    with pytest.raises(ValueError, match="back"):
        broker.clock.advance(-1)


def test_a_reset_shows_the_right_date_again(broker: Broker) -> None:
    broker.clock.advance(1_000_000)
    broker.reset()
    assert abs(broker.clock.time_ms() - time.time() * 1000) < 500_000
    broker.clock.advance(1000)
    assert broker.clock.time_ms() > time.time() * 1000 + 500_000
