"""Committed offsets of groups (Kafka's OffsetAndMetadata)."""

from typing import NamedTuple
from uuid import UUID


class CommittedOffset(NamedTuple):
    """One committed position. `record_offset` is where it lies in the log: the later one wins."""

    record_offset: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: UUID = UUID(int=0)


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class OffsetToCommit(NamedTuple):
    """A client's commit for one partition. `retention_ms` is -1 except where OffsetCommit v2-4 set it."""

    offset: int
    leader_epoch: int
    metadata: str
    retention_ms: int = -1
    topic_id: UUID = UUID(int=0)
