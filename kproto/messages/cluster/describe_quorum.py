"""DescribeQuorum (API key 55): leader, voters and observers of the metadata quorum (KIP-595).

Promises: for the metadata partition the leader, its epoch, the high watermark, and how far each replica has
got.

Versions: 1 adds when a replica fetched last and when it was last caught up (KIP-836); 2 error messages,
directory ids and the nodes' endpoints (KIP-853).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DescribeQuorumRequest(Request, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    topics: list[TopicData] = array(TopicData, "0+")


class ReplicaState(Struct):
    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("2+")
    log_end_offset: int = int64("0+")
    last_fetch_timestamp: int = int64("1+", default=-1, ignorable=True)
    last_caught_up_timestamp: int = int64("1+", default=-1, ignorable=True)


class PartitionDataResponse(Struct, official_name="PartitionData"):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    high_watermark: int = int64("0+")
    current_voters: list[ReplicaState] = array(ReplicaState, "0+")
    observers: list[ReplicaState] = array(ReplicaState, "0+")


class TopicDataResponse(Struct, official_name="TopicData"):
    topic_name: str = string("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class Listener(Struct):
    name: str = string("2+")
    host: str = string("2+")
    port: int = uint16("2+")


class Node(Struct):
    node_id: int = int32("2+")
    listeners: list[Listener] = array(Listener, "2+")


class DescribeQuorumResponse(Response, api_key=ApiKey.DESCRIBE_QUORUM, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    error_message: str | None = string("2+", nullable="2+", ignorable=True)
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    nodes: list[Node] = array(Node, "2+")
