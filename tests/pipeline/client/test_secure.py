"""The client of the Spark source at a broker that encrypts and asks who is there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography")

from ottla.kproto.records import iter_batches, iter_records
from ottla.pipeline.client import (
    EARLIEST,
    LATEST,
    ClientSettings,
    Cluster,
    PartitionFetcher,
    TopicPartition,
)
from ottla.pipeline.errors import BrokerUnavailableError, OptionError
from ottla.pipeline.source.options import parse_options
from ottla.testing import Broker

PART = TopicPartition("t", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(users={"alice": "wonder"}, tls=True) as broker:
        broker.produce("t", "a", "b")
        yield broker


def settings(broker: Broker, changes: dict[str, str]) -> ClientSettings:
    """As an executor has them, which they reach by pickle."""
    properties = {f"kafka.{name}": value for name, value in (broker.java_config() | changes).items()}
    parsed = parse_options({**properties, "subscribe": "t"}, is_stream=False).client
    copied: ClientSettings = pickle.loads(pickle.dumps(parsed))
    return copied


def test_records_are_read(broker: Broker) -> None:
    cluster = Cluster(settings(broker, {}))
    try:
        assert cluster.offsets({PART: EARLIEST}) == {PART: 0}
        assert cluster.offsets({PART: LATEST}) == {PART: 2}
        values = [
            bytes(record.value or b"")
            for fetched in PartitionFetcher(cluster, PART).fetch(0, 2)
            for at, header in iter_batches(fetched.records)
            for record in iter_records(fetched.records, at, header)
        ]
    finally:
        cluster.close()
    assert values == [b"a", b"b"]


def test_who_is_not_let_in_is_told_at_once(broker: Broker) -> None:
    wrong = broker.java_config()["sasl.jaas.config"].replace("wonder", "hidden-word")
    with pytest.raises(BrokerUnavailableError, match=r"refuses to let us in.*kafka\.sasl") as refused:
        Cluster(settings(broker, {"sasl.jaas.config": wrong})).topic_names()
    assert "hidden-word" not in str(refused.value)
    with pytest.raises(BrokerUnavailableError, match="not trusted"):
        Cluster(settings(broker, {"ssl.truststore.certificates": ""})).topic_names()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"sasl.mechanism": "GSSAPI"}, "kafka.sasl.mechanism is GSSAPI"),
        ({"sasl.jaas.config": "nonsense"}, "kafka.sasl.jaas.config cannot be read"),
        ({"ssl.truststore.location": "/nowhere", "ssl.truststore.certificates": ""}, "kafka.ssl.truststore.location"),
        ({"sasl.kerberos.service.name": "kafka"}, "kafka.sasl.kerberos.service.name is not known"),
    ],
)
def test_what_is_wrong_is_a_sentence(broker: Broker, changes: dict[str, str], sentence: str) -> None:
    with pytest.raises(OptionError, match=sentence):
        settings(broker, changes)
