"""BeginQuorumEpoch (API key 53): a new leader of the KRaft quorum tells the voters. Between controllers.

Versions: 1 is flexible, and adds the voter key and the leader's endpoints (KIP-853).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochRequest(Request, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")
    leader_endpoints: list[LeaderEndpoint] = array(LeaderEndpoint, "1+", ignorable=True)


class PartitionDataResponse(Struct, official_name="PartitionData"):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class TopicDataResponse(Struct, official_name="TopicData"):
    topic_name: str = string("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class BeginQuorumEpochResponse(Response, api_key=ApiKey.BEGIN_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
