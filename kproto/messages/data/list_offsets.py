"""ListOffsets (API key 2): find an offset by timestamp, or one of the log's ends.

Promises: for a timestamp, the first offset whose record is not older, with that record's timestamp and
**its** leader epoch; -1 and -1 when there is none. Special timestamps: -1 latest (bounded by the isolation
level), -2 earliest, -3 the record with the largest timestamp (version 7, KIP-734), -4 earliest on local
disk (8, KIP-405), -5 latest in tiered storage (9, KIP-1005), -6 earliest not yet uploaded (11, KIP-1023).
Below its version a special timestamp is UNSUPPORTED_VERSION.

Versions: 1 answers a single offset; 2 adds the isolation level; 4 the current leader epoch, for fencing,
and the epoch in the answer; 5 permits OFFSET_NOT_AVAILABLE after an election; 6 is flexible; 10 has a
timeout for lookups in remote storage (KIP-1075).

What brokers get wrong: the latest offset must never go back, not even over a restart; consumers and Spark
take that for lost data. Spark asks for both ends after each poll, so this must be cheap.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32("0+")
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64("0+")


class ListOffsetsTopic(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition, "0+")


class ListOffsetsRequest(Request, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    replica_id: int = int32("0+")
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic, "0+")
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: str = string("0+")
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse, "0+")


class ListOffsetsResponse(Response, api_key=ApiKey.LIST_OFFSETS, versions="1-11", flexible="6+"):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse, "0+")
