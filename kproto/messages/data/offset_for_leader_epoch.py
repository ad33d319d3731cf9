"""OffsetForLeaderEpoch (API key 23): where a leader epoch ended in the log.

Promises: for an epoch the largest one not above it that has records, and the offset after its last record;
for the current epoch the log end. -1 and -1 when the epoch is unknown. Followers and consumers find by it
where their log diverges.

Versions: 2 adds the current leader epoch, for fencing, and throttling; 3 the replica id; 4 is flexible.

What brokers get wrong: a wrong end offset makes consumers report lost data, or start over.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, string


class OffsetForLeaderPartition(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("2+", default=-1, ignorable=True)
    leader_epoch: int = int32("0+")


class OffsetForLeaderTopic(Struct):
    topic: str = string("0+")
    partitions: list[OffsetForLeaderPartition] = array(OffsetForLeaderPartition, "0+")


class OffsetForLeaderEpochRequest(Request, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"):
    replica_id: int = int32("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = array(OffsetForLeaderTopic, "0+")


class EpochEndOffset(Struct):
    error_code: int = int16("0+")
    partition: int = int32("0+")
    leader_epoch: int = int32("1+", default=-1, ignorable=True)
    end_offset: int = int64("0+", default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: str = string("0+")
    partitions: list[EpochEndOffset] = array(EpochEndOffset, "0+")


class OffsetForLeaderEpochResponse(Response, api_key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="2-4", flexible="4+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = array(OffsetForLeaderTopicResult, "0+")
