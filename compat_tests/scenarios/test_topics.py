"""Topics: made, listed, grown, deleted, made by the first use; their limits and refusals."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import closing, suppress

import pytest

from compat_tests.clients.base import (
    BEGINNING,
    AdminClient,
    BrokerError,
    Client,
    Record,
    contents,
)
from compat_tests.clients.confluent import Confluent

UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_CONFIG = 40


@pytest.fixture
def name() -> str:
    return f"topic-{uuid.uuid4()}"


def refusal_of(call: Callable[..., None], *arguments: object, **options: object) -> int:
    with pytest.raises(BrokerError) as refusal:
        call(*arguments, **options)
    return refusal.value.code


def test_a_topic_is_listed_with_its_partitions(client: Client, new_topic: Callable[..., str]) -> None:
    small, large = new_topic(), new_topic(partitions=64)

    topics = client.topics()
    assert topics[small] == 1
    assert topics[large] == 64


def test_a_topic_is_created_used_grown_and_deleted(admin: AdminClient, name: str) -> None:
    admin.create_topic(name, partitions=2)
    with closing(admin.producer()) as producer:
        assert producer.send(name, [Record(b"a", partition=1)]) == [0]
    admin.add_partitions(name, 5)
    with closing(admin.producer()) as producer:
        assert producer.send(name, [Record(b"b", partition=4), Record(b"c", partition=1)]) == [0, 1]
    assert admin.topics()[name] == 5

    admin.delete_topic(name)
    assert name not in admin.topics()


def test_refusals_have_kafkas_codes(admin: AdminClient, name: str) -> None:
    admin.create_topic(name, partitions=2)

    assert refusal_of(admin.create_topic, name) == TOPIC_ALREADY_EXISTS
    assert refusal_of(admin.create_topic, f"{name}/x") == INVALID_TOPIC_EXCEPTION
    assert refusal_of(admin.create_topic, "x" * 250) == INVALID_TOPIC_EXCEPTION
    assert refusal_of(admin.create_topic, f"{name}-0", partitions=0) == INVALID_PARTITIONS
    assert refusal_of(admin.create_topic, f"{name}-1", configs={"retention.ms": "soon"}) == INVALID_CONFIG
    assert refusal_of(admin.create_topic, f"{name}-2", configs={"no.such.key": "1"}) == INVALID_CONFIG
    assert refusal_of(admin.add_partitions, name, 2) == INVALID_PARTITIONS
    assert refusal_of(admin.add_partitions, name, 1) == INVALID_PARTITIONS
    assert refusal_of(admin.delete_topic, f"{name}-none") == UNKNOWN_TOPIC_OR_PARTITION


def test_the_first_record_makes_its_topic(client: Client, name: str) -> None:
    with closing(client.producer()) as producer:
        producer.send(name, [Record(b"first")])

    with closing(client.consumer(name, BEGINNING)) as consumer:
        assert contents(consumer.take(1)) == contents([Record(b"first")])


def test_a_topic_deleted_under_its_consumer_and_made_again(
    client: Client, topic: str, new_topic: Callable[..., str], reference: Confluent
) -> None:
    other = new_topic()
    old = [Record(f"old {n}".encode()) for n in range(10)]
    new = [Record(f"new {n}".encode()) for n in range(3)]
    with closing(reference.producer()) as producer:
        producer.send(topic, old)
        with (
            closing(client.consumer(topic, BEGINNING)) as bereft,
            closing(client.consumer(other, BEGINNING)) as bystander,
        ):
            assert contents(bereft.take(10)) == contents(old)
            reference.delete_topic(topic)
            # The client may say that the topic is gone, or go on asking; it reads nothing either way.
            with suppress(BrokerError):
                assert bereft.take(1, timeout_s=1.0) == []
            producer.send(other, new)
            assert contents(bystander.take(3)) == contents(new)

    # The bereft consumer's own questions may have made it again, as auto.create.topics.enable has it.
    with suppress(BrokerError):
        reference.create_topic(topic)
    assert reference.topics()[topic] == 1
    with closing(client.producer()) as producer:
        producer.send(topic, new)
    with closing(client.consumer(topic, BEGINNING)) as consumer:
        back = consumer.take(3)
    assert contents(back) == contents(new)
    assert [record.offset for record in back] == [0, 1, 2]
