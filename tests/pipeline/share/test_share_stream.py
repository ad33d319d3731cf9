"""Streams of a share group, driven as Spark drives them."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from compat_tests.brokers.ottla_broker import OttlaBroker
from compat_tests.clients.confluent import Confluent
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.share.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla.pipeline.errors import OptionError, PipelineError, TopicError
from ottla.pipeline.share.stream import ShareStreamReader
from tests.pipeline.share.conftest import ALL, Stream, next_batch, rows, values

NewTopic = Callable[..., str]
Produce = Callable[..., None]


def test_batch_after_batch(stream: Stream, new_topic: NewTopic, client: Confluent, produce_values: Produce) -> None:
    topic = new_topic(partitions=2, records=5)
    reader = stream(subscribe=topic)
    start = reader.initialOffset()

    first = next_batch(reader, start)
    found = rows(reader, start, first)
    produce_values(client, topic, b"5", b"6", partitions=2)
    second = next_batch(reader, first)

    assert values(found) == sorted([0, 1, 2, 3, 4] * 2)
    assert {(row["deliveryCount"], row["deliveryLimit"], row["deadLetterTopic"]) for row in found} == {(1, 5, None)}
    assert values(rows(reader, first, second)) == [5, 5, 6, 6]
    assert reader.latestOffset(second, ALL) == second
    assert reader.partitions(second, second) == []


def test_a_restarted_query_repeats_its_batch_and_nothing_else(stream: Stream, new_topic: NewTopic) -> None:
    topic = new_topic(partitions=2, records=20)
    before = stream(subscribe=topic)
    start = before.initialOffset()
    end = next_batch(before, start, ReadMaxRows(10))
    first = rows(before, start, end)
    before.stop()

    after = stream(subscribe=topic)
    again = rows(after, start, end)
    rest = next_batch(after, end)

    assert again == first
    assert values(first + rows(after, end, rest)) == sorted([*range(20)] * 2)
    assert after.latestOffset(rest, ALL) == rest


def test_a_batch_that_was_committed_and_not_acknowledged_is_acknowledged_by_the_next_run(
    stream: Stream, new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """The driver dies between the commit and the acknowledgement; the checkpoint says that it had committed."""
    topic = new_topic(records=10)
    before = stream(subscribe=topic)
    start = before.initialOffset()
    end = next_batch(before, start)
    before.stop()

    after = stream(subscribe=topic)
    assert after.latestOffset(end, ALL) == end
    produce_values(client, topic, b"10")
    more = next_batch(after, end)
    assert values(rows(after, end, more)) == [10]
    after.latestOffset(more, ALL)
    after.stop()
    last = stream(subscribe=topic)
    assert last.latestOffset(more, ALL) == more


def test_locks_are_renewed_while_a_batch_runs(stream: Stream, new_topic: NewTopic, lock_of_a_second: None) -> None:
    """Another member gets nothing, although the batch takes longer than the lock."""
    topic = new_topic(records=10)
    reader, other = stream(subscribe=topic), stream(subscribe=topic)
    start = reader.initialOffset()
    end = next_batch(reader, start)

    for _ in range(40):  # of 100 ms each
        assert other.latestOffset(start, ALL) == start

    assert reader.latestOffset(end, ALL) == end
    reader.stop()
    assert other.latestOffset(start, ALL) == start


def test_more_tasks_than_partitions(stream: Stream, new_topic: NewTopic) -> None:
    topic = new_topic(records=20)
    reader = stream(subscribe=topic, minPartitions=5)
    start = reader.initialOffset()
    end = next_batch(reader, start)

    tasks = reader.partitions(start, end)

    assert len(tasks) == 5
    assert values(rows(reader, start, end)) == list(range(20))
    assert len(stream(subscribe=topic, maxRecordsPerPartition=2).partitions(start, end)) == 10


def test_what_is_available_now(stream: Stream, new_topic: NewTopic, client: Confluent, produce_values: Produce) -> None:
    topic = new_topic(partitions=3, records=4)
    reader = stream(subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    found = rows(reader, start, first)
    produce_values(client, topic, b"late", partitions=3)

    assert values(found) == sorted([0, 1, 2, 3] * 3)
    assert reader.latestOffset(first, ALL) == first


def test_a_topic_created_anew_is_another_one(
    stream: Stream, new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    topic = new_topic(records=5)
    before = stream(subscribe=topic)
    start = before.initialOffset()
    end = next_batch(before, start)
    before.stop()
    client.delete_topic(topic)
    client.create_topic(topic)
    produce_values(client, topic, *(b"%d" % n for n in range(100, 105)))

    after = stream(subscribe=topic)

    assert rows(after, start, end) == []
    assert values(rows(after, end, next_batch(after, end))) == [100, 101, 102, 103, 104]


def test_it_is_shipped_before_it_is_used(stream: Stream, new_topic: NewTopic) -> None:
    reader = stream(subscribe=new_topic())
    assert isinstance(pickle.loads(pickle.dumps(reader)), ShareStreamReader)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"subscribe": ""}, OptionError, "Option subscribe is missing or empty"),
        ({"subscribe": "t", "startingOffsets": "earliest"}, OptionError, "share.auto.offset.reset"),
        ({"subscribe": "t", "kafka_group_id": ""}, OptionError, "Option kafka.group.id is missing"),
        ({"subscribe": "t", "subscribed": "u"}, OptionError, "There is no option subscribed"),
        ({"subscribe": "no-such-topic"}, TopicError, "There is no topic 'no-such-topic'"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    stream: Stream, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        stream(**options).latestOffset({"batch": 0}, ALL)


def test_a_checkpoint_of_another_source_is_a_sentence(stream: Stream, new_topic: NewTopic) -> None:
    reader = stream(subscribe=new_topic())
    with pytest.raises(PipelineError, match="belongs to another source"):
        reader.latestOffset({"orders": {"0": 5}}, ALL)


def test_a_query_that_is_killed_at_any_step(
    stream: Stream, new_topic: NewTopic, group: str, broker: OttlaBroker
) -> None:
    """Its connections break without a word; the next run finds the batch as it was."""
    topic = new_topic(records=30)
    start: Any = {"batch": 0}
    found: list[int] = []
    for step in range(3):
        reader = stream(subscribe=topic)
        end = next_batch(reader, start, ReadMaxRows(10))
        kill(reader)
        after = stream(subscribe=topic)
        found += values(rows(after, start, end))
        start = end
        if step == 1:
            kill(after)
    assert sorted(found) == list(range(30))
    last = stream(subscribe=topic)
    assert last.latestOffset(start, ALL) == start


def kill(reader: ShareStreamReader) -> None:
    """End a reader as kill -9 does: its connections break, and it gives nothing back."""
    keeper, reader._keeper = reader._keeper, None
    assert keeper is not None
    keeper.stop()
    with keeper as member:
        for session in member._sessions.values():
            session.close()
        member.cluster.close()
    reader._outcomes.close()


def test_locks_that_were_lost_make_no_second_batch(
    stream: Stream, new_topic: NewTopic, client: Confluent, produce_values: Produce
) -> None:
    """The connection to the leader breaks while Spark works on a batch: its records are delivered again, and known."""
    topic = new_topic(records=10)
    reader = stream(subscribe=topic)
    start = reader.initialOffset()
    end = next_batch(reader, start)
    assert reader._keeper is not None
    with reader._keeper as member:
        for session in member._sessions.values():
            session.close()
    produce_values(client, topic, b"10")

    more = next_batch(reader, end)
    assert values(rows(reader, end, more)) == [10]
    assert reader.latestOffset(more, ALL) == more
    other = stream(subscribe=topic)
    assert other.latestOffset(start, ALL) == start


def test_a_group_that_was_reset_delivers_again(
    stream: Stream, new_topic: NewTopic, broker: OttlaBroker, group: str
) -> None:
    """After a reset the group's records are wanted again, also those of the last batch before."""
    topic = new_topic(records=10)
    before = stream(subscribe=topic)
    start = before.initialOffset()
    end = next_batch(before, start)
    assert before.latestOffset(end, ALL) == end
    before.stop()
    seek_to_begin(broker.bootstrap, group, topic)

    after = stream(subscribe=topic)

    assert values(rows(after, end, next_batch(after, end))) == list(range(10))


def seek_to_begin(bootstrap: str, group: str, topic: str) -> None:
    request = AlterShareGroupOffsetsRequest(
        group_id=group,
        topics=[
            AlterShareGroupOffsetsRequestTopic(
                topic_name=topic,
                partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)],
            )
        ],
    )
    wire = Wire(bootstrap)
    answer = wire.call(request, 0)
    wire.close()
    assert answer.error_code == 0, answer.error_message
    assert [part.error_code for found in answer.responses for part in found.partitions] == [0]
