"""Committing, fetching, deleting and expiring offsets.

An offset is in the cache, and answered, only when its append is committed (seed on the ReplicaManager redesign: the
offset manager talks to the replica manager alone). Kafka's counterpart is OffsetMetadataManager.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla.server.coordinator.errors import (
    GroupSubscribedToTopicError,
    NonEmptyGroupError,
    OffsetMetadataTooLargeError,
    UnstableOffsetCommitError,
)
from ottla.server.coordinator.group import consumer_records, records
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.consumer_group import ConsumerGroup
from ottla.server.coordinator.group.consumer_protocol import PROTOCOL_TYPE, subscribed_topics
from ottla.server.coordinator.group.offsets import CommittedOffset, TopicPartition
from ottla.server.coordinator.group.shard import GroupShard
from ottla.server.coordinator.runtime import CoordinatorRecord, Write


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
    group_id: str, offsets: Mapping[TopicPartition, OffsetToCommit], *, metadata_max_size: int, now_ms: int
) -> tuple[list[CoordinatorRecord], Refusals]:
    """The records that commit these offsets, and the partitions that are refused.

    `metadata_max_size` is `offset.metadata.max.bytes`, which counts characters in Kafka too.
    """
    written: list[CoordinatorRecord] = []
    refused: Refusals = {}
    for partition, offset in offsets.items():
        if len(offset.metadata) > metadata_max_size:
            refused[partition] = OffsetMetadataTooLargeError(f"metadata of more than {metadata_max_size} characters")
            continue
        committed = CommittedOffset(
            record_offset=-1,
            offset=offset.offset,
            leader_epoch=offset.leader_epoch,
            metadata=offset.metadata,
            commit_timestamp_ms=now_ms,
            expire_timestamp_ms=-1 if offset.retention_ms < 0 else now_ms + offset.retention_ms,
            topic_id=offset.topic_id,
        )
        written.append(records.offset_commit(group_id, partition, committed))
    return written, refused


def fetch(
    shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition] | None, *, require_stable: bool
) -> dict[TopicPartition, CommittedOffset | UnstableOffsetCommitError | None]:
    """Committed offsets of the partitions asked for (all of the group's for None); None where there is none."""
    wanted = shard.offsets.partitions(group_id) if partitions is None else partitions
    found: dict[TopicPartition, CommittedOffset | UnstableOffsetCommitError | None] = {}
    for partition in wanted:
        if require_stable and shard.offsets.has_pending(group_id, partition):
            found[partition] = UnstableOffsetCommitError(f"a transaction is open over {partition}")
        else:
            found[partition] = shard.offsets.get(group_id, partition)
    return found


def undeletable_topics(group: ClassicGroup) -> frozenset[str]:
    """The topics whose offsets OffsetDelete must leave; NonEmptyGroupError if nobody can say which those are."""
    if group.is_in(ClassicState.EMPTY):
        return frozenset()
    if group.protocol_type != PROTOCOL_TYPE:
        raise NonEmptyGroupError(f"group {group.group_id} has members")
    return group_subscription(group) or frozenset()


def delete_records(
    shard: GroupShard, group_id: str, partitions: Iterable[TopicPartition], subscribed: frozenset[str]
) -> tuple[list[CoordinatorRecord], Refusals]:
    """Tombstones for offsets (OffsetDelete); those of topics that the group reads are refused."""
    written: list[CoordinatorRecord] = []
    refused: Refusals = {}
    for partition in partitions:
        if partition.topic in subscribed:
            refused[partition] = GroupSubscribedToTopicError(f"group {group_id} reads {partition.topic}")
        elif shard.offsets.get(group_id, partition) is not None:
            written.append(records.offset_tombstone(group_id, partition))
    return written, refused


def group_subscription(group: ClassicGroup) -> frozenset[str] | None:
    """The topics that a consumer group reads; None if it is not known."""
    topics: set[str] = set()
    for member in group.members.values():
        for name, metadata in member.protocols:
            if group.protocol_name in (None, name):
                subscription = subscribed_topics(metadata)
                if subscription is None:
                    return None
                topics |= subscription
    return frozenset(topics)


def expired_records(
    shard: GroupShard, group: ClassicGroup, *, now_ms: int, retention_ms: int
) -> list[CoordinatorRecord]:
    """Tombstones for what retention removes of one group (KIP-211), the group itself if nothing is left."""
    since_ms: int | None = None
    subscribed: frozenset[str] = frozenset()
    if group.protocol_type is not None:
        if group.is_in(ClassicState.EMPTY):
            since_ms = group.current_state_since_ms
        elif group.is_in(ClassicState.STABLE) and group.protocol_type == PROTOCOL_TYPE:
            subscription = group_subscription(group)
            if subscription is None:
                return []
            subscribed = subscription
        else:
            return []
    expired = shard.offsets.expired(
        group.group_id, now_ms=now_ms, retention_ms=retention_ms, since_ms=since_ms, subscribed=subscribed
    )
    written = [records.offset_tombstone(group.group_id, partition) for partition in expired]
    remains = shard.offsets.count(group.group_id) > len(expired) or shard.offsets.has_pending_group(group.group_id)
    if group.is_in(ClassicState.EMPTY) and not group.pending_members and not remains:
        written.append(records.group_tombstone(group.group_id))
    return written


def expired_of_consumer_group(
    shard: GroupShard, group: ConsumerGroup, *, now_ms: int, retention_ms: int
) -> list[CoordinatorRecord]:
    """The same for a group of the consumer protocol: topics that it reads never expire."""
    group_id = group.group_id
    expired = shard.offsets.expired(
        group_id,
        now_ms=now_ms,
        retention_ms=retention_ms,
        since_ms=None,
        subscribed=group.all_subscribed_topics(),
    )
    written = [records.offset_tombstone(group_id, partition) for partition in expired]
    remains = shard.offsets.count(group_id) > len(expired) or shard.offsets.has_pending_group(group_id)
    if not group.members and not remains:
        written += consumer_records.group_tombstones(group)
    return written
