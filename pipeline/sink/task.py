"""What a task does with its rows on an executor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline.client import Cluster
from ottla.pipeline.client.producer import Producer
from ottla.pipeline.client.transactions import ProducerIdentity, Transaction, end_transaction, fence, new_identity
from ottla.pipeline.errors import FencedError, PipelineError, TopicError
from ottla.pipeline.sink.decision import Decision, Prepared, query_id, read_decision, task_id
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.rows import RowSender, Shape

__all__ = ["Attempt", "Written", "write_idempotent", "write_in_transaction", "write_micro_batch"]


@dataclass(frozen=True, slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver. `prepared` is None where no transaction of it waits to be committed.

    `leader` is the query's identity as of this task; `is_decided` says that the batch was committed before.
    """

    rows: int = 0
    query: str = ""
    task: int = 0
    topics: tuple[str, ...] = ()
    prepared: Prepared | None = None
    leader: ProducerIdentity | None = None
    is_decided: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """Which part of which batch of which query is written."""

    query: str
    batch: int
    task: int


def write_idempotent(options: SinkOptions, shape: Shape, task: int, batches: Iterator[Any]) -> Written:
    """Send rows without a transaction: a task that Spark repeats sends them again."""
    cluster = Cluster(options.client)
    try:
        producer: Producer | None = None
        sender: RowSender | None = None
        try:
            for batch in batches:
                if sender is None:
                    producer = _producer(cluster, options, new_identity(cluster), None)
                    sender = RowSender(producer, shape, task)
                sender.send(batch)
            if producer is not None:
                producer.flush()
        finally:
            if producer is not None:
                producer.close()
        return Written(rows=sender.rows if sender is not None else 0)
    finally:
        cluster.close()


def write_micro_batch(options: SinkOptions, shape: Shape, attempt: Attempt, batches: Iterator[Any]) -> Written:
    """Write a task's part of a micro-batch, or see that it is written.

    The query is taken over before its last decision is read: from then on no earlier driver can decide anything.
    """
    cluster = Cluster(options.client)
    try:
        leader = fence(cluster, query_id(attempt.query), options.transaction_timeout_ms)
        decision = read_decision(cluster, attempt.query)
        found = Written(query=attempt.query, task=attempt.task, leader=leader, is_decided=True)
        if decision is None or decision.batch < attempt.batch:
            return _prepare(cluster, options, shape, attempt, batches, leader)
        if decision.batch > attempt.batch or _is_committed(cluster, attempt, decision):
            return found
        return _write_again(cluster, options, shape, attempt, batches, leader, decision.tasks[attempt.task])
    finally:
        cluster.close()


def write_in_transaction(options: SinkOptions, shape: Shape, run: str, task: int, batches: Iterator[Any]) -> Written:
    """Write a task's part of a batch write, in a transaction that the driver ends."""
    cluster = Cluster(options.client)
    try:
        return _prepare(cluster, options, shape, Attempt(run, 0, task), batches, None)
    finally:
        cluster.close()


def _is_committed(cluster: Cluster, attempt: Attempt, decision: Decision) -> bool:
    """Complete the task's part of a batch that was decided; False if its transaction took too long."""
    prepared = decision.tasks.get(attempt.task)
    if prepared is None:
        return True
    try:
        identity = ProducerIdentity(prepared.producer_id, prepared.epoch, task_id(attempt.query, attempt.task))
        end_transaction(cluster, identity, commit=True)
    except FencedError:
        return False
    return True


def _write_again(
    cluster: Cluster,
    options: SinkOptions,
    shape: Shape,
    attempt: Attempt,
    batches: Iterator[Any],
    leader: ProducerIdentity,
    lost: Prepared,
) -> Written:
    """Replace a transaction of a decided batch that is gone, if the rows are the same."""
    written = _prepare(cluster, options, shape, attempt, batches, leader)
    again = written.prepared
    if again is None or again[2:] != lost[2:]:
        if again is not None:
            identity = ProducerIdentity(again.producer_id, again.epoch, task_id(attempt.query, attempt.task))
            end_transaction(cluster, identity, commit=False)
        raise TopicError(
            f"Batch {attempt.batch} is committed except for the part of task {attempt.task}, whose transaction took "
            "longer than kafka.transaction.timeout.ms; repeated, the part has other rows, so that some would be "
            "missing or doubled: start with a new checkpointLocation, from offsets after this batch."
        )
    return Written(written.rows, attempt.query, attempt.task, written.topics, again, leader, is_decided=True)


def _prepare(
    cluster: Cluster,
    options: SinkOptions,
    shape: Shape,
    attempt: Attempt,
    batches: Iterator[Any],
    leader: ProducerIdentity | None,
) -> Written:
    """Write rows in a transaction, and leave it open; without rows there is none."""
    transaction: Transaction | None = None
    producer: Producer | None = None
    sender: RowSender | None = None
    try:
        for batch in batches:
            if sender is None:
                if not batch.num_rows:
                    continue
                name = task_id(attempt.query, attempt.task)
                identity = fence(cluster, name, options.transaction_timeout_ms)
                transaction = Transaction(cluster, identity)
                producer = _producer(cluster, options, identity, transaction)
                sender = RowSender(producer, shape, attempt.task)
            sender.send(batch)
        if producer is not None:
            producer.flush()
    except Exception:
        if transaction is not None:
            # Readers need not wait for its timeout. If nobody answers now, the next attempt aborts it.
            with suppress(PipelineError):
                end_transaction(cluster, transaction.identity, commit=False)
        raise
    finally:
        if producer is not None:
            producer.close()
    if transaction is None or sender is None:
        return Written(query=attempt.query, task=attempt.task, leader=leader)
    prepared = Prepared(*transaction.identity[:2], sender.rows, sender.checksum)
    topics = tuple(sorted({part.topic for part in transaction.partitions}))
    return Written(sender.rows, attempt.query, attempt.task, topics, prepared, leader)


def _producer(
    cluster: Cluster, options: SinkOptions, identity: ProducerIdentity, transaction: Transaction | None
) -> Producer:
    return Producer(
        cluster,
        identity,
        options.compression,
        transaction=transaction,
        batch_bytes=options.batch_bytes,
        buffer_bytes=options.buffer_bytes,
    )
