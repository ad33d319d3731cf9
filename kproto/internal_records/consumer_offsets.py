"""Committed offsets and classic groups in `__consumer_offsets` (record types 0 to 2).

The topic's partition is the group id's Java hash modulo the number of partitions. An offset is one record a
group, topic and partition; a group is one record with all of its members, rewritten whenever a generation
is complete. Type 0 is how old brokers wrote offset keys and is read like type 1; new keys are always type
1.

OffsetCommitValue: version 1 alone carries an explicit expiry; 3 adds the leader epoch (KIP-320), and 4 is
flexible with the topic id as a tagged field. An offset that is committed in a transaction is written at
once, inside the transaction, and counts only when the transaction's marker says commit.

GroupMetadataValue: a null `protocol` or `leader` means that the generation has none (an empty group).
Version 1 adds the rebalance timeout, 2 the time of the last state change, from which offsets expire
(KIP-211), 3 static members (KIP-345), and 4 is flexible.
"""

from uuid import UUID

from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue
from ottla.kproto.schema import Struct, array, bytes_, int32, int64, string, uuid


class LegacyOffsetCommitKey(CoordinatorKey, record_type=0, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class LegacyOffsetCommitValue(CoordinatorValue, record_type=0, versions="0"):
    offset: int = int64("0")
    metadata: str = string("0")
    commit_timestamp: int = int64("0")


class OffsetCommitKey(CoordinatorKey, record_type=1, versions="0"):
    group: str = string("0")
    topic: str = string("0")
    partition: int = int32("0")


class OffsetCommitValue(CoordinatorValue, record_type=1, versions="0-4", flexible="4+"):
    offset: int = int64("0+")
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string("0+")
    commit_timestamp: int = int64("0+")
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: UUID = uuid("4+", tag=0, tagged="4+", ignorable=True)


class GroupMetadataKey(CoordinatorKey, record_type=2, versions="0"):
    group: str = string("0")


class MemberMetadata(Struct):
    member_id: str = string("0+")
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string("0+")
    client_host: str = string("0+")
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32("0+")
    subscription: bytes = bytes_("0+")
    assignment: bytes = bytes_("0+")


class GroupMetadataValue(CoordinatorValue, record_type=2, versions="0-4", flexible="4+"):
    protocol_type: str = string("0+")
    generation: int = int32("0+")
    protocol: str | None = string("0+", nullable="0+")
    leader: str | None = string("0+", nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array(MemberMetadata, "0+")
