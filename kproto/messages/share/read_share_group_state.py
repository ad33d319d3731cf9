"""ReadShareGroupState (API key 84): the delivery state of share partitions, for the leader that takes them
over (KIP-932). Between brokers.

Promises: the leader epoch given fences earlier leaders.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class PartitionData(Struct):
    partition: int = int32("0+")
    leader_epoch: int = int32("0+")


class ReadStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class ReadShareGroupStateRequest(Request, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    group_id: str = string("0+")
    topics: list[ReadStateData] = array(ReadStateData, "0+")


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)
    state_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ReadStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class ReadShareGroupStateResponse(Response, api_key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    results: list[ReadStateResult] = array(ReadStateResult, "0+")
