"""Waiting for a group."""

from __future__ import annotations

import pytest
import trio
from confluent_kafka import Consumer

from ottla.testing import Broker, WaitTimeoutError


def test_a_group_is_waited_for_until_it_has_read_all(broker: Broker) -> None:
    broker.create_topic("t")
    broker.produce("t", 1, 2, 3)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    assert len(consumer.consume(3, 30)) == 3
    assert broker.wait_for_group("g", state="Stable", members=1).protocol == "classic"
    with pytest.raises(WaitTimeoutError, match="group g is Stable, has 1 members and is no offsets"):
        broker.wait_for_group("g", lag=0, timeout_s=0)
    consumer.commit(asynchronous=False)
    assert broker.wait_for_group("g", lag=0).offsets == {("t", 0): 3}
    consumer.close()

    async def main() -> None:
        assert (await broker.wait_for_group_async("g", state="Empty")).members == {}

    trio.run(main)


def test_a_group_that_is_not_there(broker: Broker) -> None:
    with pytest.raises(WaitTimeoutError, match="there is no group g after 0 s"):
        broker.wait_for_group("g", timeout_s=0)
