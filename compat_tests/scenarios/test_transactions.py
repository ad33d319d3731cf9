"""Transactions through real clients: who sees what, who is fenced, and what a crash of the broker leaves behind.

Every reading ends at a record that was sent outside of any transaction (END): whatever came before it and was not
expected would stand in its place.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager

import pytest

from compat_tests.brokers.process import BrokerProcess
from compat_tests.clients.base import BEGINNING, AdminClient, BrokerError, Record, TransactionalProducer
from compat_tests.clients.confluent import Confluent

Connect = Callable[[BrokerProcess, str], AdminClient]

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
END = "end"
QUIET_S = 1.0


@pytest.fixture
def transactional_id() -> str:
    return f"transactional-{uuid.uuid4()}"


@contextmanager
def transactional(
    client: AdminClient, transactional_id: str, timeout_ms: int = 60_000
) -> Iterator[TransactionalProducer]:
    with closing(client.transactional(transactional_id, timeout_ms=timeout_ms)) as producer:
        yield producer


def records(*values: str, partition: int = 0) -> list[Record]:
    return [Record(value.encode(), partition=partition) for value in values]


def send_and_commit(producer: TransactionalProducer, topic: str, value: str) -> None:
    producer.send(topic, records(value))
    producer.commit()


def numbered(name: str, count: int) -> list[str]:
    return [f"{name}-{number}" for number in range(count)]


def mark_end(reference: Confluent, topic: str, partition: int = 0) -> None:
    with closing(reference.producer(idempotent=True)) as producer:
        producer.send(topic, records(END, partition=partition))


def read(
    client: AdminClient, topic: str, isolation: str, expected: list[str], *, partition: int = 0, last: str = END
) -> list[str]:
    """As many values as are expected, and the last one after them."""
    with closing(client.consumer(topic, BEGINNING, partition=partition, isolation=isolation)) as consumer:
        values = [(record.value or b"").decode() for record in consumer.take(len(expected) + 1)]
    assert values[-1:] == [last], values
    return values[:-1]


def test_a_reader_of_what_is_committed_sees_no_aborted_record(
    admin: AdminClient, reference: Confluent, topic: str, transactional_id: str
) -> None:
    with transactional(admin, transactional_id) as producer:
        for name, end in [("a", producer.commit), ("b", producer.abort), ("c", producer.abort), ("d", producer.commit)]:
            producer.begin()
            producer.send(topic, records(*numbered(name, 20)))
            producer.send(topic, records(*numbered(name + name, 5)))
            end()
    mark_end(reference, topic)

    committed = [value for name in "ad" for value in numbered(name, 20) + numbered(name + name, 5)]
    everything = [value for name in "abcd" for value in numbered(name, 20) + numbered(name + name, 5)]
    assert read(admin, topic, COMMITTED, committed) == committed
    assert read(admin, topic, UNCOMMITTED, everything) == everything


def test_an_open_transaction_holds_readers_of_what_is_committed_back(
    admin: AdminClient, reference: Confluent, topic: str, transactional_id: str
) -> None:
    with transactional(admin, transactional_id) as producer:
        producer.begin()
        producer.send(topic, records("open"))
        mark_end(reference, topic)
        with closing(admin.consumer(topic, BEGINNING, isolation=COMMITTED)) as careful:
            assert careful.take(1, QUIET_S) == []
            assert read(admin, topic, UNCOMMITTED, ["open"]) == ["open"]
            producer.commit()
            assert [record.value for record in careful.take(2)] == [b"open", END.encode()]


@pytest.mark.nodes(client="confluent-kafka")
def test_a_transaction_over_several_partitions_and_topics(
    admin: AdminClient, reference: Confluent, new_topic: Callable[..., str], transactional_id: str
) -> None:
    topics = [new_topic(partitions=3), new_topic(partitions=3)]
    places = [(topic, partition) for topic in topics for partition in range(3)]
    with transactional(admin, transactional_id) as producer:
        for name, end in [("lost", producer.abort), ("kept", producer.commit)]:
            producer.begin()
            for topic, partition in places:
                producer.send(topic, records(*numbered(name, 3), partition=partition))
            end()
    for topic, partition in places:
        mark_end(reference, topic, partition)
        assert read(admin, topic, COMMITTED, numbered("kept", 3), partition=partition) == numbered("kept", 3)


def test_empty_transactions(admin: AdminClient, reference: Confluent, topic: str, transactional_id: str) -> None:
    with transactional(admin, transactional_id) as producer:
        for end in (producer.commit, producer.abort, producer.abort, producer.commit):
            producer.begin()
            end()
        producer.begin()
        producer.send(topic, records("one"))
        producer.commit()
    mark_end(reference, topic)
    assert read(admin, topic, COMMITTED, ["one"]) == ["one"]


@pytest.mark.nodes(client="confluent-kafka")
def test_offsets_are_committed_with_the_transaction(
    admin: AdminClient, reference: Confluent, new_topic: Callable[..., str], transactional_id: str
) -> None:
    source, target, group = new_topic(partitions=2), new_topic(), f"group-{uuid.uuid4()}"
    with transactional(admin, transactional_id) as producer:
        for name, end, offset in [("a", producer.commit, 5), ("b", producer.abort, 9)]:
            producer.begin()
            producer.send(target, records(name))
            producer.send_offsets(group, source, {0: offset, 1: offset + 1})
            end()
            assert [reference.committed(group, source, partition) for partition in (0, 1)] == [5, 6]
        producer.begin()
        producer.send_offsets(group, source, {0: 11})
        producer.commit()
    # Asked first by a client that waits for the transaction's markers: the others are told what was committed before.
    assert reference.committed(group, source, 0) == 11
    assert [admin.committed(group, source, partition) for partition in (0, 1)] == [11, 6]
    mark_end(reference, target)
    assert read(admin, target, COMMITTED, ["a"]) == ["a"]


def test_a_zombie_is_fenced(admin: AdminClient, reference: Confluent, topic: str, transactional_id: str) -> None:
    with ExitStack() as stack:
        with transactional(admin, transactional_id) as zombie:
            zombie.begin()
            zombie.send(topic, records("zombie"))
            successor = stack.enter_context(transactional(admin, transactional_id))
            with pytest.raises(BrokerError):
                send_and_commit(zombie, topic, "zombie again")
        # It has ended: kafka-python's asks for a new epoch, which aborts whatever is open, in Kafka as well.
        successor.begin()
        send_and_commit(successor, topic, "successor")
    mark_end(reference, topic)
    assert read(admin, topic, COMMITTED, ["successor"]) == ["successor"]


def test_a_transaction_that_takes_too_long_is_aborted(
    admin: AdminClient, reference: Confluent, topic: str, transactional_id: str
) -> None:
    # Long enough for a record to be sent on a busy machine.
    with transactional(admin, transactional_id, timeout_ms=3_000) as slow:
        slow.begin()
        slow.send(topic, records("slow"))
        mark_end(reference, topic)
        assert read(admin, topic, COMMITTED, []) == []  # as soon as the broker has aborted it

        with pytest.raises(BrokerError):
            send_and_commit(slow, topic, "too late")
    with transactional(admin, transactional_id) as producer:
        producer.begin()
        send_and_commit(producer, topic, "in time")
    mark_end(reference, topic)
    assert read(admin, topic, COMMITTED, [END, "in time"]) == [END, "in time"]


@pytest.mark.slow
def test_transactions_outlive_a_broker_that_is_killed(
    own_broker: BrokerProcess, admin_name: str, connect: Connect, transactional_id: str
) -> None:
    client, reference = connect(own_broker, admin_name), Confluent(own_broker.bootstrap)
    reference.create_topic("t")
    expected: list[str] = []
    with transactional(client, transactional_id) as producer:
        for name, end, commits in [
            ("a", producer.commit, True), ("b", producer.abort, False), ("c", producer.commit, True),
        ]:  # fmt: skip
            producer.begin()
            producer.send("t", records(f"{name}-before"))
            producer.send_offsets("g", "t", {0: len(expected) + 1})
            own_broker.kill()
            own_broker.start()
            producer.send("t", records(f"{name}-after"))
            end()
            expected += [f"{name}-before", f"{name}-after"] if commits else []
        own_broker.kill()
        own_broker.start()
    mark_end(reference, "t")
    assert read(client, "t", COMMITTED, expected) == expected
    assert reference.committed("g", "t", 0) == 3
