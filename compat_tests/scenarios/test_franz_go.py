"""franz-go with the newest versions of its requests: records, groups, transactions, another cluster at its address."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from compat_tests.brokers.apache_kafka import ApacheKafka
from compat_tests.brokers.links import Link
from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.brokers.process import HOST, BrokerProcess, free_port
from compat_tests.clients.confluent import Confluent
from compat_tests.clients.franz_flow import FranzGoFlow
from compat_tests.java import QUICK
from compat_tests.wire.wire import Wire
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest

pytestmark = pytest.mark.franz_go

VALUES = [f"value {number}" for number in range(20)]
GROUP_APIS = {"ConsumerGroupHeartbeat": ApiKey.CONSUMER_GROUP_HEARTBEAT, "OffsetCommit": ApiKey.OFFSET_COMMIT}
TRANSACTION_APIS = {
    "InitProducerID": ApiKey.INIT_PRODUCER_ID,
    "TxnOffsetCommit": ApiKey.TXN_OFFSET_COMMIT,
    "EndTxn": ApiKey.END_TXN,
}


@pytest.fixture
def flow(broker: BrokerProcess) -> Iterator[FranzGoFlow]:
    with FranzGoFlow(broker.bootstrap) as started:
        yield started


def require_newest(flow: FranzGoFlow, wire: Wire, apis: dict[str, ApiKey]) -> None:
    """Each of these was sent, and in the newest version that the broker serves only."""
    served = {each.api_key: each.max_version for each in wire.call(ApiVersionsRequest(), 0).api_keys}
    sent = flow.sent
    assert {api: list(sent.get(api, ())) for api in apis} == {api: [served[key]] for api, key in apis.items()}


def test_a_connection_takes_one_round_trip_to_agree_on_versions(flow: FranzGoFlow, topic: str) -> None:
    flow.produce(topic, VALUES)
    assert flow.consume(topic, len(VALUES)) == VALUES
    assert flow.sent["ApiVersions"] == {5: flow.connections}


def test_records_are_produced_and_consumed_in_a_group(flow: FranzGoFlow, wire: Wire, topic: str) -> None:
    group = f"flow-{uuid.uuid4()}"
    assert flow.produce(topic, VALUES) == list(range(len(VALUES)))
    assert flow.consume(topic, len(VALUES), group=group) == VALUES
    flow.produce(topic, ["one more"])
    assert flow.consume(topic, 1, group=group) == ["one more"]
    require_newest(flow, wire, {"Produce": ApiKey.PRODUCE, "Fetch": ApiKey.FETCH, **GROUP_APIS})


def test_transactions_move_each_record_once(flow: FranzGoFlow, wire: Wire, new_topic: Callable[..., str]) -> None:
    source, target, group = new_topic(), new_topic(), f"flow-{uuid.uuid4()}"
    flow.produce(source, VALUES)
    flow.move(source, target, len(VALUES), group=group)
    flow.produce(source, ["one more"])
    flow.move(source, target, 1, group=group)
    assert flow.consume(target, len(VALUES) + 1) == [*VALUES, "one more"]
    require_newest(flow, wire, TRANSACTION_APIS)


@pytest.mark.parametrize(
    "another",
    [
        pytest.param(OttlaBroker, id="ottla"),
        pytest.param(partial(ApacheKafka, jvm_options=QUICK), marks=pytest.mark.java, id="kafka"),
    ],
)
def test_another_cluster_at_the_address_makes_it_start_again(
    another: Callable[[Path, int], BrokerProcess], tmp_path: Path
) -> None:
    """What it knew of the former cluster is wrong: it forgets that, and asks its bootstrap servers (KIP-1242)."""
    with (
        OttlaBroker(tmp_path / "former") as former,
        closing(Link(former.port)) as bootstrap,
        FranzGoFlow(f"{HOST}:{bootstrap.port}") as flow,
    ):
        Confluent(former.bootstrap).create_topic("former")
        assert flow.produce("former", ["before"]) == [0]
        former.stop()
        # Now it only has the address that it was told.
        bootstrap.target_port = free_port()
        bootstrap.reset()
        with another(tmp_path / "latter", former.port) as latter:
            deadline = time.monotonic() + 60
            while not any("REBOOTSTRAP_REQUIRED" in each for each in flow.warnings):
                assert time.monotonic() < deadline, flow.warnings
                time.sleep(0.1)
            Confluent(latter.bootstrap).create_topic("latter")
            bootstrap.target_port = latter.port
            assert flow.produce("latter", ["after"]) == [0]
            assert flow.consume("latter", 1) == ["after"]
