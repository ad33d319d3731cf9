"""WriteShareGroupState (API key 85): store changes of the delivery state of share partitions (KIP-932).
Between brokers.

Promises: written and replicated before the answer; FENCED_STATE_EPOCH or FENCED_LEADER_EPOCH for an
outdated writer.

Versions: 1 adds how many deliveries are complete beyond the start offset (KIP-1226).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, int64, string, uuid


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class PartitionData(Struct):
    partition: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class WriteStateData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class WriteShareGroupStateRequest(Request, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    group_id: str = string("0+")
    topics: list[WriteStateData] = array(WriteStateData, "0+")


class PartitionResult(Struct):
    partition: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+", default=None)


class WriteStateResult(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionResult] = array(PartitionResult, "0+")


class WriteShareGroupStateResponse(Response, api_key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    results: list[WriteStateResult] = array(WriteStateResult, "0+")
