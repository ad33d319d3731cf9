"""What the driver does when all tasks of a write are done, or when one failed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from pyspark.sql.datasource import WriterCommitMessage

from ottla.pipeline.client import Cluster
from ottla.pipeline.client.transactions import ProducerIdentity, end_transaction, fence, is_open
from ottla.pipeline.errors import FencedError, PipelineError
from ottla.pipeline.sink.decision import Decision, Prepared, decide, query_id, read_decision, task_id
from ottla.pipeline.sink.options import SinkOptions
from ottla.pipeline.sink.task import Written

__all__ = ["abort_batch", "abort_micro_batch", "commit_batch", "commit_micro_batch"]

Messages = Sequence[WriterCommitMessage | None]


def commit_micro_batch(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Decide that the batch is committed, then commit the transactions of its tasks.

    If the driver dies in between, the next run does the rest: its tasks find the decision. FencedError if another run
    of the query has begun since the tasks did, or a transaction took too long: then nothing is decided.
    """
    written = [message for message in messages if isinstance(message, Written)]
    decided = [message for message in written if message.is_decided]
    fresh = {message.task: message.prepared for message in written if message.prepared is not None}
    if not decided and not fresh:
        return
    query = written[0].query
    leader = max(message.leader for message in written if message.leader is not None)
    cluster = Cluster(options.client)
    try:
        if decided:
            decision = _completed(cluster, leader, query, batch, fresh, is_whole=len(decided) == len(written))
        else:
            _require_open(cluster, query, fresh)
            topic = min(topic for message in written for topic in message.topics)
            decision = Decision(batch, topic, fresh)
            decide(cluster, leader, query, decision)
        for task, prepared in decision.tasks.items():
            end_transaction(cluster, _identity(query, task, prepared), commit=True)
    finally:
        cluster.close()


def abort_micro_batch(options: SinkOptions, messages: Messages, batch: int) -> None:
    """Abort what the tasks wrote, unless the batch is decided: Spark asks also when a commit failed half-way."""
    written = [message for message in messages if isinstance(message, Written) and message.prepared is not None]
    if not written:
        return
    query = written[0].query
    cluster = Cluster(options.client)
    try:
        fence(cluster, query_id(query), options.transaction_timeout_ms)  # so that nobody decides it from now on
        decision = read_decision(cluster, query)
        if decision is None or decision.batch < batch:
            _abort(cluster, written)
    finally:
        cluster.close()


def commit_batch(options: SinkOptions, messages: Messages) -> None:
    """Commit the transactions of a batch write, one after the other."""
    cluster = Cluster(options.client)
    try:
        for message in messages:
            if isinstance(message, Written) and message.prepared is not None:
                end_transaction(cluster, _identity(message.query, message.task, message.prepared), commit=True)
    finally:
        cluster.close()


def abort_batch(options: SinkOptions, messages: Messages) -> None:
    """Abort the transactions of a batch write that failed."""
    cluster = Cluster(options.client)
    try:
        _abort(cluster, [message for message in messages if isinstance(message, Written)])
    finally:
        cluster.close()


def _completed(
    cluster: Cluster,
    leader: ProducerIdentity,
    query: str,
    batch: int,
    fresh: dict[int, Prepared],
    *,
    is_whole: bool,
) -> Decision:
    """The decision that the tasks have found, with the transactions that replace some of its."""
    decision = read_decision(cluster, query)
    if decision is None or not is_whole:
        raise FencedError(f"Another run of query {query} has taken batch {batch} over: start the query once.")
    if decision.batch > batch:
        return decision._replace(tasks={})
    if fresh:
        decision = decision._replace(tasks=decision.tasks | fresh)
        decide(cluster, leader, query, decision)
    return decision


def _require_open(cluster: Cluster, query: str, prepared: dict[int, Prepared]) -> None:
    for task, held in prepared.items():
        if not is_open(cluster, _identity(query, task, held)):
            raise FencedError(
                f"The transaction of task {task} is over before the batch was: it took longer than "
                "kafka.transaction.timeout.ms, or another attempt at the task has begun. Raise that option, or make "
                "batches smaller; leave spark.speculation off."
            )


def _abort(cluster: Cluster, written: Sequence[Written]) -> None:
    for message in written:
        if message.prepared is not None:
            # What cannot be reached is aborted by its timeout, or by the next attempt at its task.
            with suppress(PipelineError):
                end_transaction(cluster, _identity(message.query, message.task, message.prepared), commit=False)


def _identity(query: str, task: int, prepared: Prepared) -> ProducerIdentity:
    return ProducerIdentity(prepared.producer_id, prepared.epoch, task_id(query, task))
