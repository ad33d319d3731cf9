"""OffsetCommit (API key 8): store how far a group has read.

Promises: an offset that was acknowledged is what OffsetFetch answers until the next commit, with its leader
epoch and its metadata string unchanged. A commit with generation -1 and no member id needs no membership
and is taken when the group has no members. Else member id and generation (or, for the consumer protocol,
the member epoch) must be current: UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS,
STALE_MEMBER_EPOCH.

Versions: 2-4 carry a retention time, which 5 removes (KIP-211); 3 adds throttling; 6 the leader epoch
(KIP-320); 7 static members (KIP-345); 8 is flexible; 9 serves groups of the consumer protocol (KIP-848) and
permits GROUP_ID_NOT_FOUND; 10 names topics by id and ignores names.

What brokers get wrong: an offset must not be answered before its append is committed. Metadata beyond
offset.metadata.max.bytes is OFFSET_METADATA_TOO_LARGE for that partition only.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, string, uuid


class OffsetCommitRequestPartition(Struct):
    partition_index: int = int32("0+")
    committed_offset: int = int64("0+")
    committed_leader_epoch: int = int32("6+", default=-1, ignorable=True)
    committed_metadata: str | None = string("0+", nullable="0+")


class OffsetCommitRequestTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = array(OffsetCommitRequestPartition, "0+")


class OffsetCommitRequest(Request, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    group_id: str = string("0+")
    generation_id_or_member_epoch: int = int32("1+", default=-1, ignorable=True)
    member_id: str = string("1+", ignorable=True)
    group_instance_id: str | None = string("7+", nullable="7+", default=None)
    retention_time_ms: int = int64("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = array(OffsetCommitRequestTopic, "0+")


class OffsetCommitResponsePartition(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class OffsetCommitResponseTopic(Struct):
    name: str = string("0-9", ignorable=True)
    topic_id: UUID = uuid("10+", ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = array(OffsetCommitResponsePartition, "0+")


class OffsetCommitResponse(Response, api_key=ApiKey.OFFSET_COMMIT, versions="2-10", flexible="8+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetCommitResponseTopic] = array(OffsetCommitResponseTopic, "0+")
