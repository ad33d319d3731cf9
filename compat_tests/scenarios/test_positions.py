"""Where a consumer starts: beginning, end, an offset, a timestamp, out of range, a committed offset."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

from compat_tests.clients.base import (
    BEGINNING,
    END,
    AdminClient,
    Client,
    Consumer,
    Record,
    Start,
    at_offset,
    at_timestamp,
)
from compat_tests.clients.confluent import Confluent

FIRST_MS = 1_700_000_000_000
STEP_MS = 1_000


@pytest.fixture
def filled(topic: str, reference: Confluent) -> str:
    """A topic of 100 records in four batches, one second from each to the next."""
    with closing(reference.producer()) as producer:
        for batch in range(4):
            numbers = range(batch * 25, batch * 25 + 25)
            producer.send(topic, [Record(f"{n}".encode(), timestamp_ms=FIRST_MS + n * STEP_MS) for n in numbers])
    return topic


@contextmanager
def consuming(client: Client, topic: str, start: Start, reset: str = "earliest") -> Iterator[Consumer]:
    with closing(client.consumer(topic, start, reset=reset)) as consumer:
        yield consumer


def values(records: list[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def test_from_the_beginning(client: Client, filled: str) -> None:
    with consuming(client, filled, BEGINNING) as consumer:
        assert values(consumer.take(100)) == list(range(100))


def test_from_the_end_only_what_comes_after(client: Client, filled: str, reference: Confluent) -> None:
    with consuming(client, filled, END) as consumer:
        with closing(reference.producer()) as producer:
            producer.send(filled, [Record(b"100"), Record(b"101")])
        assert values(consumer.take(2)) == [100, 101]


@pytest.mark.parametrize("offset", [0, 1, 24, 25, 37, 99])
def test_from_an_offset_also_inside_a_batch(client: Client, filled: str, offset: int) -> None:
    with consuming(client, filled, at_offset(offset)) as consumer:
        back = consumer.take(100 - offset)
        assert [record.offset for record in back] == list(range(offset, 100))
        assert values(back) == list(range(offset, 100))


@pytest.mark.parametrize(
    ("timestamp_ms", "first"),
    [
        (0, 0),
        (FIRST_MS, 0),
        (FIRST_MS + 37 * STEP_MS, 37),
        (FIRST_MS + 37 * STEP_MS + 1, 38),
        (FIRST_MS + 99 * STEP_MS, 99),
    ],
)
def test_from_a_timestamp(client: Client, filled: str, timestamp_ms: int, first: int) -> None:
    with consuming(client, filled, at_timestamp(timestamp_ms)) as consumer:
        assert values(consumer.take(100 - first)) == list(range(first, 100))


def test_from_a_timestamp_after_the_last_is_from_the_end(client: Client, filled: str, reference: Confluent) -> None:
    # kcat and confluent-kafka look it up when they start to read, so the record must come with a later time than asked.
    after = FIRST_MS + 1_000_000
    with consuming(client, filled, at_timestamp(after)) as consumer:
        with closing(reference.producer()) as producer:
            producer.send(filled, [Record(b"100", timestamp_ms=after + 1)])
        assert values(consumer.take(1)) == [100]


@pytest.mark.parametrize(("reset", "expected"), [("earliest", 0), ("latest", 100)])
def test_an_offset_out_of_range_is_reset_as_the_consumer_says(
    client: Client, filled: str, reference: Confluent, reset: str, expected: int
) -> None:
    with consuming(client, filled, at_offset(1000), reset) as consumer:
        if reset == "latest":
            consumer.await_end()  # Only an answered fetch tells the client that it is out of range; it resets then.
        with closing(reference.producer()) as producer:
            producer.send(filled, [Record(b"100")])
        assert values(consumer.take(1)) == [expected]


def test_a_consumer_at_the_end_waits_for_more(client: Client, topic: str, reference: Confluent) -> None:
    with consuming(client, topic, BEGINNING) as consumer, closing(reference.producer()) as producer:
        for number in range(5):
            producer.send(topic, [Record(f"{number}".encode())])
            assert values(consumer.take(1)) == [number]


def test_an_offset_committed_without_membership_is_kept(
    admin: AdminClient, filled: str, new_topic: Callable[..., str]
) -> None:
    group = f"group-{uuid.uuid4()}"
    other = new_topic(partitions=3)

    assert admin.committed(group, filled, 0) is None
    admin.commit(group, filled, 0, 42)
    admin.commit(group, other, 2, 0)
    assert admin.committed(group, filled, 0) == 42
    assert admin.committed(group, other, 2) == 0
    assert admin.committed(group, other, 1) is None
    admin.commit(group, filled, 0, 7)
    assert admin.committed(group, filled, 0) == 7
