"""Micro-batches that are interrupted at every step, repeated, and written by two at once: each row is there once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ottla.client.connection import BrokerConnection
from ottla.pipeline.client import Cluster
from ottla.pipeline.client.transactions import ProducerIdentity, fence, is_open
from ottla.pipeline.errors import FencedError, TopicError
from ottla.pipeline.sink.decision import task_id
from ottla.pipeline.sink.task import Written
from tests.pipeline.sink.conftest import Query

NewQuery = Callable[..., Query]
NewTopic = Callable[..., str]
Committed = Callable[[str], list[str]]

FIRST = [["a0", "a1", "a2"], ["b0", "b1", "b2"]]
# As a shuffle may divide them when the batch is repeated.
FIRST_DIVIDED_ANEW = [["a0", "b1", "b2"], ["a1", "a2", "b0"]]
SECOND = [["c0"], ["d0", "d1"]]


def values(*batches: list[list[str]]) -> list[str]:
    return sorted(value for batch in batches for task in batch for value in task)


class Killed(BaseException):
    """The process is gone: nothing handles this."""


def kill_after(monkeypatch: pytest.MonkeyPatch, requests: int) -> Callable[[], int]:
    """The process dies when so many requests are sent, and takes no answer to the last; says how many were sent."""
    send = BrokerConnection.send
    sent = 0

    def die(connection: BrokerConnection, request: Any, **options: Any) -> None:
        nonlocal sent
        send(connection, request, **options)
        sent += 1
        if sent == requests:
            raise Killed

    monkeypatch.setattr(BrokerConnection, "send", die)
    return lambda: sent


def test_a_kill_at_every_step(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    steps = 0
    while True:
        steps += 1
        query = new_query(topic)
        with monkeypatch.context() as patch:
            sent = kill_after(patch, steps)
            try:
                query.run(0, marked(steps, FIRST))
            except Killed:
                pass
            else:
                break
        query.run(0, marked(steps, FIRST_DIVIDED_ANEW))
        query.run(1, marked(steps, SECOND))
    assert sent() == steps - 1 > 30
    query.run(1, marked(steps, SECOND))
    expected = [value for step in range(1, steps + 1) for value in values(marked(step, FIRST), marked(step, SECOND))]
    assert committed(topic) == sorted(expected)


def marked(step: int, tasks: list[list[str]]) -> list[list[str]]:
    """The rows of the run that was killed at that step."""
    return [[f"{step}: {value}" for value in rows] for rows in tasks]


def test_a_kill_of_the_run_that_repairs(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first run dies when its batch is decided and no task's transaction has ended yet."""
    step = 0
    is_over = False
    while not is_over:
        step += 1
        topic = new_topic(partitions=2)
        query = new_query(topic)
        die_when_decided(query, monkeypatch)
        with monkeypatch.context() as patch:
            kill_after(patch, step)
            try:
                query.run(0, FIRST)
                is_over = True
            except Killed:
                pass
        query.run(0, FIRST_DIVIDED_ANEW)
        assert committed(topic) == values(FIRST), f"killed after request {step}"
    assert step > 10


def die_when_decided(query: Query, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        ends = 0
        send = BrokerConnection.send

        def die(connection: BrokerConnection, request: Any, **options: Any) -> None:
            nonlocal ends
            ends += type(request).__name__ == "EndTxnRequest"
            if ends == 2:
                raise Killed
            send(connection, request, **options)

        patch.setattr(BrokerConnection, "send", die)
        with pytest.raises(Killed):
            query.run(0, FIRST)


def test_a_task_that_is_repeated_counts_once(new_query: NewQuery, new_topic: NewTopic, committed: Committed) -> None:
    topic = new_topic()
    query = new_query(topic)
    query.write(0, 0, ["a", "b"])  # the executor is lost
    query.commit(0, [query.write(0, 0, ["a", "b"])])
    assert committed(topic) == ["a", "b"]


def test_a_copy_of_a_task_that_lost_fails_the_batch_and_doubles_nothing(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed
) -> None:
    """As with spark.speculation: the second began later, and the first is the one that Spark took."""
    topic = new_topic()
    query = new_query(topic)
    first = query.write(0, 0, ["a", "b"])
    query.write(0, 0, ["a", "b"])
    with pytest.raises(FencedError, match="another attempt at the task has begun"):
        query.commit(0, [first])
    query.abort(0, [first])
    assert committed(topic) == []
    query.run(0, [["a", "b"]])
    assert committed(topic) == ["a", "b"]


def test_a_driver_that_was_taken_for_dead_decides_nothing(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed
) -> None:
    topic = new_topic()
    query = new_query(topic)
    old = [query.write(0, 0, ["a"]), query.write(0, 1, ["b"])]
    new = query.write(0, 0, ["a"])  # another driver has begun the batch; its task 1 has not started
    with pytest.raises(FencedError):
        query.commit(0, old)
    query.commit(0, [new, query.write(0, 1, ["b"])])
    with pytest.raises(FencedError):
        query.commit(0, old)
    assert committed(topic) == ["a", "b"]


def test_a_commit_that_failed_half_way_is_not_aborted(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark asks to abort the batch when its commit raises."""
    topic = new_topic()
    query = new_query(topic)
    written = [query.write(0, 0, ["a"]), query.write(0, 1, ["b"])]
    with monkeypatch.context() as patch:
        patch.setattr("ottla.pipeline.sink.commit.end_transaction", _fail)
        with pytest.raises(TopicError, match="halfway"):
            query.commit(0, written)
    query.abort(0, written)
    query.run(0, [["b"], ["a"]])
    assert committed(topic) == ["a", "b"]


def _fail(*_: object, **__: object) -> None:
    raise TopicError("halfway")


def test_what_a_failed_batch_wrote_is_aborted(new_query: NewQuery, new_topic: NewTopic, committed: Committed) -> None:
    topic = new_topic()
    query = new_query(topic)
    query.abort(0, [query.write(0, 0, ["a"]), None])
    assert committed(topic) == []
    query.run(0, [["a"], ["b"]])
    assert committed(topic) == ["a", "b"]


def test_batches_that_are_committed_are_passed_over(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed
) -> None:
    """A checkpoint that was set back repeats batches; a new one is another query."""
    topic = new_topic()
    query = new_query(topic)
    for batch in (0, 1, 0, 1):
        query.run(batch, [[f"{batch}"], []])
    query.run(2, [[], []])
    query.run(3, [])
    assert committed(topic) == ["0", "1"]
    new_query(topic).run(0, [["0"]])
    assert committed(topic) == ["0", "0", "1"]


def test_a_transaction_that_took_too_long_is_not_decided(
    new_query: NewQuery, new_topic: NewTopic, committed: Committed
) -> None:
    topic = new_topic()
    query = new_query(topic, kafka_transaction_timeout_ms="500")

    def write_slowly() -> None:
        written = query.write(0, 0, ["a"])
        await_abort(query, written)
        query.commit(0, [written])

    with pytest.raises(FencedError, match=r"took (too long|longer than)"):
        write_slowly()
    assert committed(topic) == []


@pytest.mark.parametrize("again", [["a", "b", "c"], ["a", "c", "b"], []])
def test_a_part_that_is_lost_after_the_decision_is_written_again_if_it_is_the_same(
    new_query: NewQuery,
    new_topic: NewTopic,
    committed: Committed,
    monkeypatch: pytest.MonkeyPatch,
    again: list[str],
) -> None:
    """The driver died between the decision and the commits, and was away for longer than transactions live."""
    topic = new_topic()
    query = new_query(topic)
    written = [query.write(0, 0, ["a", "b", "c"]), query.write(0, 1, ["d"])]
    with monkeypatch.context() as patch:
        patch.setattr("ottla.pipeline.sink.commit.end_transaction", _fail)
        with pytest.raises(TopicError, match="halfway"):
            query.commit(0, written)
    for one in written:
        abort_as_by_its_timeout(query, one)
    if again == ["a", "b", "c"]:
        query.run(0, [again, ["d"]])
        query.run(0, [again, ["d"]])
        assert committed(topic) == ["a", "b", "c", "d"]
    else:
        with pytest.raises(TopicError, match="Batch 0 is committed except for the part of task 0"):
            query.run(0, [again, ["d"]])
        assert committed(topic) == []


def abort_as_by_its_timeout(query: Query, written: Written) -> None:
    """The broker aborts the transaction, in an epoch of its own."""
    cluster = Cluster(query.options.client)
    fence(cluster, task_id(query.id, written.task), query.options.transaction_timeout_ms)
    cluster.close()


def await_abort(query: Query, written: Written) -> None:
    assert written.prepared is not None
    cluster = Cluster(query.options.client)
    identity = ProducerIdentity(written.prepared.producer_id, written.prepared.epoch, task_id(query.id, written.task))
    deadline = time.monotonic() + 60
    while is_open(cluster, identity):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    cluster.close()


def test_decisions_of_many_tasks(new_query: NewQuery, new_topic: NewTopic, committed: Committed) -> None:
    """More than one offset's metadata holds."""
    topic = new_topic()
    query = new_query(topic)
    written = [query.write(0, task, [f"{task:03}"]) for task in range(102)]
    query.commit(0, written)
    query.commit(0, [query.write(0, 101, ["101"])])
    assert committed(topic) == [f"{task:03}" for task in range(102)]
