"""Produce (API key 0): append record batches to partitions.

Promises: each partition's batch is appended whole or not at all, and answered on its own. acks=1 is
answered when the leader has the records, acks=-1 when every in-sync replica has them, acks=0 never: there
is no response, and an error can only be shown by closing the connection. `base_offset` is the offset of the
first record; `log_append_time_ms` is -1 unless the topic stamps records with LogAppendTime.

Versions: 3 is the first with record batches v2 and carries the transactional id; 5 adds the log start
offset, by which a producer tells lost state from a gap; 7 permits zstd (KIP-110); 8 reports single bad
records (KIP-467); 9 is flexible; 10 adds the current leader and its endpoint as tagged fields (KIP-951); 11
permits TRANSACTION_ABORTABLE; 12 lets a produce add its partitions to the transaction by itself (KIP-890);
13 names topics by id, never by name (KIP-516).

What brokers get wrong: the range must be advertised from 0 although 0-2 are refused, or older librdkafka
turns compression off. A repeated idempotent batch is acknowledged with its first offset and not stored
again. INVALID_PRODUCER_EPOCH is the answer to a fenced producer here; the coordinator's is PRODUCER_FENCED.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import (
    Request,
    Response,
    Struct,
    array,
    int16,
    int32,
    int64,
    record_data,
    string,
    struct,
    uuid,
)


class PartitionProduceData(Struct):
    index: int = int32("0+")
    records: bytes | memoryview | None = record_data("0+", nullable="0+")


class TopicProduceData(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_data: list[PartitionProduceData] = array(PartitionProduceData, "0+")


class ProduceRequest(Request, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    transactional_id: str | None = string("3+", nullable="3+", default=None)
    acks: int = int16("0+")
    timeout_ms: int = int32("0+")
    topic_data: list[TopicProduceData] = array(TopicProduceData, "0+")


class BatchIndexAndErrorMessage(Struct):
    batch_index: int = int32("8+")
    batch_index_error_message: str | None = string("8+", nullable="8+", default=None)


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("10+", default=-1)
    leader_epoch: int = int32("10+", default=-1)


class PartitionProduceResponse(Struct):
    index: int = int32("0+")
    error_code: int = int16("0+")
    base_offset: int = int64("0+")
    log_append_time_ms: int = int64("2+", default=-1, ignorable=True)
    log_start_offset: int = int64("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = array(BatchIndexAndErrorMessage, "8+", ignorable=True)
    error_message: str | None = string("8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "10+", tag=0, tagged="10+")


class TopicProduceResponse(Struct):
    name: str = string("0-12", ignorable=True)
    topic_id: UUID = uuid("13+", ignorable=True)
    partition_responses: list[PartitionProduceResponse] = array(PartitionProduceResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("10+")
    host: str = string("10+")
    port: int = int32("10+")
    rack: str | None = string("10+", nullable="10+", default=None)


class ProduceResponse(Response, api_key=ApiKey.PRODUCE, versions="3-13", flexible="9+"):
    responses: list[TopicProduceResponse] = array(TopicProduceResponse, "0+")
    throttle_time_ms: int = int32("1+", ignorable=True)
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "10+", tag=0, tagged="10+")
