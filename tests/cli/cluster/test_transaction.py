"""`ottla transaction`, over producers that speak the protocol themselves."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.cli import main
from ottla.cli.connection import bootstrap_servers
from ottla.client.client import Client
from ottla.client.connection import BrokerConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import Record, build_batch
from ottla.testing import Broker as FixtureBroker

PASSING = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class Producer:
    """Opens a transaction over partition 0 of a topic."""

    def __init__(self, connection: BrokerConnection, transactional_id: str) -> None:
        self._connection = connection
        self.transactional_id = transactional_id
        coordinator = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while connection.call(coordinator).coordinators[0].error_code:
            time.sleep(0.02)
        while (answer := connection.call(init)).error_code in PASSING:
            time.sleep(0.02)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def send(self, topic: str, sequence: int = 0) -> int:
        """Sends one record; the error code."""
        batch = build_batch(
            [Record(value=b"v", timestamp_ms=int(time.time() * 1000))],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=5_000, topic_data=[data])
        code: int = self._connection.call(request, at_most=12).responses[0].partition_responses[0].error_code
        return code


@pytest.fixture
def connection(broker: Any) -> Iterator[BrokerConnection]:
    with Client(bootstrap_servers(broker.address)) as client:
        yield client.any_broker()


@pytest.fixture
def producer(broker: Any, connection: BrokerConnection) -> Producer:
    """With a transaction open in topic t."""
    broker.run("topic", "create", "t")
    opened = Producer(connection, "payments")
    assert opened.send("t") == ErrorCode.NONE
    return opened


def listed(broker: Any, *arguments: str) -> dict[str, Any]:
    answer = json.loads(broker.run("transaction", "list", "--json", *arguments).stdout)
    return {state["transactional_id"]: state for state in answer}


def described(broker: Any) -> dict[str, Any]:
    (state,) = json.loads(broker.run("transaction", "describe", "payments", "--json").stdout)
    return dict(state)


def test_list_by_state_and_producer(broker: Any, connection: BrokerConnection, producer: Producer) -> None:
    idle = Producer(connection, "idle")
    assert {name: state["state"] for name, state in listed(broker).items()} == {"idle": "Empty", "payments": "Ongoing"}
    assert set(listed(broker, "--state", "Ongoing")) == {"payments"}
    assert set(listed(broker, "--producer-id", str(idle.producer_id))) == {"idle"}
    table = broker.run("transaction", "list").stdout.decode().splitlines()
    assert table[0].split() == ["TRANSACTIONAL", "ID", "STATE", "PRODUCER", "COORDINATOR"]
    assert table[2].split() == ["payments", "Ongoing", str(producer.producer_id), "1"]


def test_describe(broker: Any, producer: Producer) -> None:
    state = described(broker)
    assert (state["state"], state["partitions"]) == ("Ongoing", {"t": [0]})
    assert (state["producer_id"], state["producer_epoch"]) == (producer.producer_id, producer.epoch)
    assert state["timeout_ms"] == 60_000
    text = broker.run("transaction", "describe", "payments").stdout.decode().splitlines()
    assert text[0].startswith("payments  Ongoing  producer ")
    assert text[-1].split() == ["t", "0"]


def test_abort_ends_the_transaction_and_fences_its_producer(broker: Any, producer: Producer) -> None:
    broker.run("transaction", "abort", "payments")
    assert described(broker)["state"] == "Empty"
    assert producer.send("t", 1) == ErrorCode.INVALID_PRODUCER_EPOCH
    broker.run("transaction", "abort", "payments")  # nothing is open: it only fences


def test_abort_where_it_hangs(broker: Any, connection: BrokerConnection, producer: Producer) -> None:
    broker.run("transaction", "abort", "--partition", "t:0", "--start-offset", "0")
    again = broker.run("transaction", "abort", "--partition", "t:0", "--start-offset", "0", check=False)
    assert again.returncode == 1
    assert b"no open transaction begins at offset 0" in again.stderr


def test_failures_say_what_is_wrong(broker: Any, producer: Producer) -> None:
    for arguments, words in [
        (["describe", "unheard"], "TRANSACTIONAL_ID_NOT_FOUND"),
        (["abort", "unheard"], "TRANSACTIONAL_ID_NOT_FOUND"),
        (["abort", "--partition", "t:0"], "--start-offset"),
        (["abort", "--partition", "t:5", "--start-offset", "0"], "no partition 5"),
        (["list", "--state", "Wrong"], "there is no state Wrong"),
    ]:
        done = broker.run("transaction", *arguments, check=False)
        assert done.returncode == 1, arguments
        assert words in done.stderr.decode(), arguments


def test_a_coordinator_that_has_just_moved_is_asked_again(capsys: pytest.CaptureFixture[str]) -> None:
    """Kafka 3.9 answers so while it creates `__transaction_state` for the first who asks."""
    with FixtureBroker() as broker:
        broker.faults.fail("DescribeTransactions", "NOT_COORDINATOR", times=2)
        assert main(["transaction", "describe", "nobody", "-b", broker.bootstrap]) == 1
    assert "TRANSACTIONAL_ID_NOT_FOUND" in capsys.readouterr().err
