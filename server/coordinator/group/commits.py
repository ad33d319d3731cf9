"""Committing, fetching, deleting and expiring offsets.

An offset is in the cache, and returned, only when its append is committed. Kafka's counterpart is
OffsetMetadataManager.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.server.coordinator.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    TopicDeletedError,
    UnstableOffsetCommitError,
)
from ottla.server.coordinator.group import consumer_records, records, share_records, streams_records
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from ottla.server.coordinator.group.offsets import CommittedOffset, TopicPartition
from ottla.server.coordinator.group.shard import Group, GroupShard
from ottla.server.coordinator.group.share_group import ShareGroup
from ottla.server.coordinator.group.streams_group import StreamsGroup
from ottla.server.coordinator.partition import Write
from ottla.server.coordinator.replay import CoordinatorRecord
from ottla.server.settings.types import INT64_MAX


class OffsetToCommit(NamedTuple):
    """What a client commits for one partition. `retention_ms` is -1 except where OffsetCommit v2-4 set it."""

    offset: int
    leader_epoch: int
    metadata: str
    retention_ms: int = -1
    topic_id: UUID = UUID(int=0)


Refusals = dict[TopicPartition, Exception]


class Commit(NamedTuple):
    """Offsets on their way to the log, and the partitions that were refused before."""

    write: Write
    refused: Refusals


def commit_records(
    group_id: str,
    offsets: Mapping[TopicPartition, OffsetToCommit],
    *,
    metadata_max_size: int,
    now_ms: int,
    is_living: Callable[[UUID], bool],
) -> tuple[list[CoordinatorRecord], Refusals]:
    """The records that commit these offsets, and the partitions that are refused.

    `metadata_max_size` is `offset.metadata.max.bytes`, which counts characters in Kafka too. The topic may have been
    deleted since the request named it.
    """
    written: list[CoordinatorRecord] = []
    refused: Refusals = {}
    for partition, offset in offsets.items():
        if len(offset.metadata) > metadata_max_size:
            refused[partition] = OffsetMetadataTooLargeError(f"metadata of more than {metadata_max_size} characters")
            continue
        if not is_living(offset.topic_id):
            refused[partition] = TopicDeletedError(f"topic {partition.topic} was deleted")
            continue
        committed = CommittedOffset(
            record_offset=-1,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=-1 if offset.retention_ms < 0 else min(now_ms + offset.retention_ms, INT64_MAX),
            topic_id=offset.topic_id,
        )
        written.append(records.offset_commit(group_id, partition, committed))
    return written, refused


def fetch(
    shard: GroupShard,
    group_id: str,
    partitions: Iterable[TopicPartition] | None,
    *,
    require_stable: bool,
    is_living: Callable[[UUID], bool],
) -> dict[TopicPartition, CommittedOffset | UnstableOffsetCommitError | None]:
    """Committed offsets of the partitions asked for (all of the group's for None); None where there is none."""
    wanted = shard.offsets.partitions(group_id) if partitions is None else partitions
    found: dict[TopicPartition, CommittedOffset | UnstableOffsetCommitError | None] = {}
    for partition in wanted:
        if require_stable and shard.offsets.has_pending(group_id, partition):
            found[partition] = UnstableOffsetCommitError(f"an open transaction has an offset of {partition}")
            continue
        committed = shard.offsets.get(group_id, partition)
        if committed is not None and not is_living(committed.topic_id):
            committed = None
        if committed is not None or partitions is not None:
            found[partition] = committed
    return found


def undeletable_topics(shard: GroupShard, group_id: str) -> frozenset[str] | None:
    """The topics whose offsets OffsetDelete must leave; None for all topics.

    Raises GroupIdNotFoundError, or NonEmptyGroupError for a group of other members than consumers.
    """
    group = shard.groups.get(group_id)
    if isinstance(group, ConsumerGroup):
        return group.all_subscribed_topics()
    if isinstance(group, StreamsGroup):
        return group.subscribed_topics()
    if isinstance(group, ShareGroup):
        raise GroupIdNotFoundError(f"Group {group_id} is not a consumer group.")
    if group is None or group.is_in(ClassicState.DEAD):
        raise GroupIdNotFoundError(f"Group {group_id} not found.")
    if group.is_in(ClassicState.EMPTY):
        return frozenset()
    if group.protocol_type != PROTOCOL_TYPE:
        raise NonEmptyGroupError(f"group {group_id} has members")
    return group_subscription(group)


def delete_records(
    shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition]
) -> tuple[list[CoordinatorRecord], Refusals]:
    """OffsetDelete: tombstones for offsets, also for those in open transactions. Topics that the group reads are
    refused. Raises as `undeletable_topics` does.
    """
    subscribed = undeletable_topics(shard, group_id)
    written: list[CoordinatorRecord] = []
    refused: Refusals = {}
    for partition in partitions:
        if subscribed is None or partition.topic in subscribed:
            refused[partition] = GroupSubscribedToTopicError(f"group {group_id} reads {partition.topic}")
        elif shard.offsets.values(group_id, records.offset_key(group_id, partition)):
            written.append(records.offset_tombstone(group_id, partition))
    return written, refused


def deletion_records(shard: GroupShard, group_id: str, keys: Iterable[bytes] | None = None) -> list[CoordinatorRecord]:
    """Tombstones for a group and all its offsets, also those in open transactions (DeleteGroups), or for the offsets
    under some keys alone.

    Raises GroupIdNotFoundError or NonEmptyGroupError.
    """
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupIdNotFoundError(f"Group {group_id} not found.")
    if not is_empty(group):
        raise NonEmptyGroupError(f"group {group_id} has members")
    if keys is not None:
        return [CoordinatorRecord(key, None) for key in keys]
    return [
        *(CoordinatorRecord(key, None) for key in shard.offsets.keys(group_id)),
        *group_tombstones(group),
    ]


def is_empty(group: Group) -> bool:
    """Whether the group has no members, and nobody joins it."""
    return group.is_in(ClassicState.EMPTY) if isinstance(group, ClassicGroup) else not group.members


def group_tombstones(group: Group) -> list[CoordinatorRecord]:
    """What removes a group, its offsets aside."""
    if isinstance(group, ConsumerGroup):
        return consumer_records.group_tombstones(group)
    if isinstance(group, ShareGroup):
        return share_records.group_tombstones(group)
    if isinstance(group, StreamsGroup):
        return streams_records.group_tombstones(group)
    return [records.group_tombstone(group.group_id)]


def group_subscription(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that a consumer group reads in its generation; None if it is not known: it may be any."""
    if group.generation_metadata is None:
        return None
    topics: set[str] = set()
    for metadata in group.generation_metadata:
        subscription = subscribed_topics(metadata)
        if subscription is None:
            return None
        topics |= subscription
    return frozenset(topics)


def expired_records(
    shard: GroupShard, group_id: str, keys: Iterable[bytes], *, now_ms: int, retention_ms: int
) -> list[CoordinatorRecord]:
    """Tombstones for what retention removes of these offsets of a group (KIP-211), the group itself if none is left.

    What is part of an open transaction does not expire, and keeps its group.
    """
    group = shard.groups.get(group_id)
    terms = None if group is None else expiry_terms(group)
    if group is None or terms is None:
        return []
    since_ms, subscribed = terms
    expired = shard.offsets.expired(
        group_id, keys, now_ms=now_ms, retention_ms=retention_ms, since_ms=since_ms, subscribed=subscribed
    )
    written = [CoordinatorRecord(key, None) for key in expired]
    remains = shard.offsets.count(group_id) > len(expired) or shard.offsets.has_pending_group(group_id)
    is_awaited = isinstance(group, ClassicGroup) and group.pending_members
    if is_empty(group) and not is_awaited and not remains:
        written += group_tombstones(group)
    return written


def expiry_terms(group: Group) -> tuple[int | None, frozenset[str]] | None:
    """Since when the group has been empty (None: count from each commit), and the topics whose offsets do not expire
    because the group reads them. None if nothing of the group expires now.
    """
    if isinstance(group, ConsumerGroup):
        return None, group.all_subscribed_topics()
    if isinstance(group, StreamsGroup):
        return None, group.subscribed_topics()
    if isinstance(group, ShareGroup):
        return None
    if group.protocol_type is None:
        return None, frozenset()
    if group.is_in(ClassicState.EMPTY):
        return group.current_state_since_ms, frozenset()
    if group.is_in(ClassicState.STABLE) and group.protocol_type == PROTOCOL_TYPE:
        subscription = group_subscription(group)
        return None if subscription is None else (None, subscription)
    return None
