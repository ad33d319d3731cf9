"""What a committed offset is."""

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
