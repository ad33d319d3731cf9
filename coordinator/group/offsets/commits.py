"""Committing, fetching, deleting and expiring offsets.

An offset is in the cache, and returned, only when its append is committed. Kafka's counterpart is
OffsetMetadataManager.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from ottla.coordinator.errors import (
    GroupIdNotFoundError,
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    TopicDeletedError,
    UnstableOffsetCommitError,
)
from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.partition import Write
from ottla.coordinator.replay import CoordinatorRecord
from ottla.settings.types import INT64_MAX

Refusals = dict[TopicPartition, Exception]

# What the class itself does in Python.
_new_tuple: Final = tuple.__new__


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
        expire_ms = -1 if offset.retention_ms < 0 else min(now_ms + offset.retention_ms, INT64_MAX)
        committed: CommittedOffset = _new_tuple(
            CommittedOffset,
            (-1, offset.offset, offset.leader_epoch, offset.metadata, now_ms, expire_ms, offset.topic_id),
        )
        written.append(offset_records.offset_commit(group_id, partition, committed))
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


def delete_records(
    shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition]
) -> tuple[list[CoordinatorRecord], Refusals]:
    """OffsetDelete: tombstones for offsets, also for those in open transactions. Topics that the group reads are
    refused. Raises as `Group.undeletable_topics` does.
    """
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupIdNotFoundError(f"Group {group_id} not found.")
    subscribed = group.undeletable_topics()
    written: list[CoordinatorRecord] = []
    refused: Refusals = {}
    for partition in partitions:
        if subscribed is None or partition.topic in subscribed:
            refused[partition] = GroupSubscribedToTopicError(f"group {group_id} reads {partition.topic}")
        elif shard.offsets.values(group_id, offset_records.offset_key(group_id, partition)):
            written.append(offset_records.offset_tombstone(group_id, partition))
    return written, refused


def deletion_records(shard: GroupShard, group_id: str, keys: Iterable[bytes] | None = None) -> list[CoordinatorRecord]:
    """Tombstones for a group and all its offsets, also those in open transactions (DeleteGroups), or for the offsets
    under some keys alone.

    Raises GroupIdNotFoundError or NonEmptyGroupError.
    """
    group = shard.groups.get(group_id)
    if group is None:
        raise GroupIdNotFoundError(f"Group {group_id} not found.")
    if not group.is_empty():
        raise NonEmptyGroupError(f"group {group_id} has members")
    if keys is not None:
        return [CoordinatorRecord(key, None) for key in keys]
    return [
        *(CoordinatorRecord(key, None) for key in shard.offsets.keys(group_id)),
        *group.tombstones(),
    ]


def expired_records(
    shard: GroupShard, group_id: str, keys: Iterable[bytes], *, now_ms: int, retention_ms: int
) -> list[CoordinatorRecord]:
    """Tombstones for what retention removes of these offsets of a group (KIP-211), the group itself if none is left.

    What is part of an open transaction does not expire, and keeps its group.
    """
    group = shard.groups.get(group_id)
    expiry = None if group is None else group.offset_expiry()
    if group is None or expiry is None:
        return []
    since_ms, subscribed = expiry
    expired = shard.offsets.expired(
        group_id, keys, now_ms=now_ms, retention_ms=retention_ms, since_ms=since_ms, subscribed=subscribed
    )
    written = [CoordinatorRecord(key, None) for key in expired]
    remains = shard.offsets.count(group_id) > len(expired) or shard.offsets.has_pending_group(group_id)
    if group.is_empty() and not group.is_awaited() and not remains:
        written += group.tombstones()
    return written
