"""The record that a micro-batch is committed: the point from which on all its transactions must commit.

Each task of a batch leaves a transaction open. Which they are is stored, all at once, as the metadata of offsets of a
group that belongs to the query, by a transaction of the query's own. Before this, a batch is undone by aborting them;
afterwards it is completed by committing them, by any run of the query, as often as it takes.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Any, Final, NamedTuple

from ottla.client.offsets import TopicPartition
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.pipeline.client import Cluster
from ottla.pipeline.client.answers import check
from ottla.pipeline.client.cluster import CoordinatorType
from ottla.pipeline.client.transactions import ProducerIdentity, Transaction, end_transaction
from ottla.pipeline.errors import PipelineError

__all__ = ["Decision", "Prepared", "decide", "query_id", "read_decision", "task_id"]

_PREFIX: Final = "ottla-sink-"
_FETCH_BY_NAME: Final = 7
_FORMAT: Final = "1"
# task, producer id, epoch, rows, checksum
_ENTRY: Final = struct.Struct(">iqhqI")
# This many take 3,500 characters; Kafka's offset.metadata.max.bytes is 4,096.
_ENTRIES: Final = 100


class Prepared(NamedTuple):
    """What a task has written: its transaction, and by what to know the rows again."""

    producer_id: int
    epoch: int
    rows: int
    checksum: int


class Decision(NamedTuple):
    """The last batch of a query that is committed, and the transactions of its tasks that had rows, by their number.

    The offsets that say it are of the partition 0 of `topic`, one of those that the batch went to.
    """

    batch: int
    topic: str
    tasks: dict[int, Prepared]


def query_id(query: str) -> str:
    """The transactional id of a query, which is the name of its group too."""
    return f"{_PREFIX}{query}"


def task_id(query: str, task: int) -> str:
    """The transactional id of a task: the same in every batch, so that a new one fences an old one."""
    return f"{_PREFIX}{query}-{task}"


def decide(cluster: Cluster, leader: ProducerIdentity, query: str, decision: Decision) -> None:
    """Store the decision; FencedError if somebody has taken the query over since `leader` was made."""
    entries = [_ENTRY.pack(task, *prepared) for task, prepared in sorted(decision.tasks.items())]
    chunks = [entries[start : start + _ENTRIES] for start in range(0, len(entries), _ENTRIES)] or [[]]
    transaction = Transaction(cluster, leader)
    for number, chunk in enumerate(chunks):
        text = f"{_FORMAT} {len(chunks)} {base64.b64encode(b''.join(chunk)).decode()}"
        transaction.commit_offset(_group(query, number), TopicPartition(decision.topic, 0), decision.batch, text)
    end_transaction(cluster, leader, commit=True)


def read_decision(cluster: Cluster, query: str) -> Decision | None:
    """The last decision; None if there is none yet. What is being decided is waited for."""
    head = _read(cluster, _group(query, 0))
    if head is None:
        return None
    batch, topic, chunks, tasks = head
    for number in range(1, chunks):
        more = _read(cluster, _group(query, number))
        if more is None or more[:3] != head[:3]:
            raise _unreadable(_group(query, number))
        tasks |= more[3]
    return Decision(batch, topic, tasks)


def _group(query: str, number: int) -> str:
    return query_id(query) if number == 0 else f"{query_id(query)}.{number}"


def _read(cluster: Cluster, group: str) -> tuple[int, str, int, dict[int, Prepared]] | None:
    """The latest batch that the group's offsets name, of which topic, in how many chunks, and this one's entries."""
    request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)

    def ask() -> dict[str, Any]:
        answer = cluster.call_coordinator(CoordinatorType.GROUP, group, request, _FETCH_BY_NAME)
        check(answer.error_code, f"group {group}")
        found = {topic.name: part for topic in answer.topics for part in topic.partitions}
        for part in found.values():
            check(part.error_code, f"group {group}")
        return {topic: part for topic, part in found.items() if part.committed_offset >= 0}

    found = cluster.retry(ask)
    if not found:
        return None
    # The query may have written to other topics before.
    topic, last = max(found.items(), key=lambda item: item[1].committed_offset)
    try:
        chunks, text = (last.metadata or "").removeprefix(f"{_FORMAT} ").split(" ")
        tasks = {task: Prepared(*rest) for task, *rest in _ENTRY.iter_unpack(base64.b64decode(text, validate=True))}
        return last.committed_offset, topic, int(chunks), tasks
    except (ValueError, binascii.Error, struct.error):
        raise _unreadable(group) from None


def _unreadable(group: str) -> PipelineError:
    return PipelineError(
        f"The offsets of group {group} are not what the sink has stored there: use a new checkpointLocation."
    )
