"""A few scenarios through the proxy. `--broker=ottla-proxy` and `--broker=kafka-proxy` run all of them so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.brokers.proxied import ProxiedOttla
from compat_tests.clients.base import BEGINNING, Client, Record, contents
from compat_tests.clients.confluent import Confluent
from compat_tests.conftest import CLIENTS


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with ProxiedOttla(tmp_path_factory.mktemp("proxied")) as process:
        yield process


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_writes_and_reads_through_it(
    proxied: BrokerProcess, name: str, connect: Callable[[BrokerProcess, str], Client]
) -> None:
    topic = f"through-{name}"
    Confluent(proxied.bootstrap).create_topic(topic, partitions=1)
    client = connect(proxied, name)
    sent = [Record(f"value {number} ".encode() * 20) for number in range(500)]
    with closing(client.producer()) as producer:
        producer.send(topic, sent)
    with closing(client.consumer(topic, BEGINNING)) as consumer:
        assert contents(consumer.take(len(sent))) == contents(sent)


def test_a_group_goes_on_when_the_broker_behind_it_was_killed(proxied: BrokerProcess) -> None:
    client = Confluent(proxied.bootstrap)
    client.create_topic("survivors", partitions=1)
    with closing(client.producer()) as producer:
        producer.send("survivors", [Record(b"before")])
        proxied.kill()
        proxied.start()
        producer.send("survivors", [Record(b"after")])
    with closing(client.consumer("survivors", BEGINNING)) as consumer:
        assert [record.value for record in consumer.take(2)] == [b"before", b"after"]
