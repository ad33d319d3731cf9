"""Every client reads a topic of which the disk has only the end; the rest is in an object store with S3's interface."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import NamedTuple

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.brokers.tiered import ONLY_THE_END, tiered_ottla
from compat_tests.clients.base import BEGINNING, Client, Record, Start, at_offset, at_timestamp
from compat_tests.clients.confluent import Confluent
from compat_tests.tiers.remote_topic import RemoteTopic
from compat_tests.wire.wire import Wire

FIRST_MS = 1_700_000_000_000
RECORDS = 600
VALUE = b"v" * 8_000
TRANSACTION = 50
PLAIN, COMMITTED = "plain", "committed"
#: Those that take longer.
OTHERS = (
    pytest.param("kafka-python", marks=pytest.mark.tiers),
    pytest.param("java", marks=[pytest.mark.java, pytest.mark.tiers]),
    pytest.param("kcat", marks=[pytest.mark.kcat, pytest.mark.tiers]),
)


class Filled(NamedTuple):
    """A broker, what is in its topic, and what of another one was committed."""

    broker: BrokerProcess
    plain: list[Record]
    committed: list[bytes | None]


def batches(records: list[Record]) -> list[list[Record]]:
    return [records[first : first + TRANSACTION] for first in range(0, len(records), TRANSACTION)]


def record(number: int) -> Record:
    return Record(b"%06d" % number + VALUE, key=b"%d" % number, timestamp_ms=FIRST_MS + number)


@pytest.fixture(scope="module")
def filled(new_url: Callable[[], str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """Of each 600 records only the last ones are on the disk; every second transaction was aborted."""
    records = [record(number) for number in range(RECORDS)]
    with tiered_ottla(tmp_path_factory.mktemp("tiered"), url=new_url()) as broker:
        client = Confluent(broker.bootstrap)
        for topic in (PLAIN, COMMITTED):
            client.create_topic(topic, configs={"retention.ms": "-1", **ONLY_THE_END})
        with closing(client.producer()) as producer:
            for some in batches(records):
                producer.send(PLAIN, some)
        committed: list[bytes | None] = []
        with closing(client.transactional("t")) as transactions:
            for number, some in enumerate(batches(records)):
                transactions.begin()
                transactions.send(COMMITTED, some)
                if number % 2:
                    transactions.abort()
                else:
                    transactions.commit()
                    committed += [each.value for each in some]
        with closing(Wire(broker.bootstrap)) as wire:
            RemoteTopic(wire, PLAIN).wait_until_remote(RECORDS // 2)
            RemoteTopic(wire, COMMITTED).wait_until_remote(RECORDS // 2)
        yield Filled(broker, records, committed)


@pytest.fixture(params=["aiokafka", "confluent-kafka", *OTHERS])
def reader(request: pytest.FixtureRequest, filled: Filled, connect: Callable[[BrokerProcess, str], Client]) -> Client:
    return connect(filled.broker, request.param)


def read(client: Client, topic: str, start: Start, count: int, **options: str) -> list[Record]:
    with closing(client.consumer(topic, start, **options)) as consumer:  # type: ignore[arg-type]
        return consumer.take(count)


def test_it_reads_all_of_it(reader: Client, filled: Filled) -> None:
    found = read(reader, PLAIN, BEGINNING, RECORDS)
    assert [(each.offset, each.key, each.value) for each in found] == [
        (offset, each.key, each.value) for offset, each in enumerate(filled.plain)
    ]


def test_it_begins_where_it_wants_to(reader: Client, filled: Filled) -> None:
    for start in (at_offset(123), at_timestamp(FIRST_MS + 123)):
        assert [each.key for each in read(reader, PLAIN, start, 30)] == [each.key for each in filled.plain[123:153]]


def test_it_sees_what_was_committed_and_nothing_else(reader: Client, filled: Filled) -> None:
    found = read(reader, COMMITTED, BEGINNING, len(filled.committed), isolation="read_committed")
    assert [each.value for each in found] == filled.committed
