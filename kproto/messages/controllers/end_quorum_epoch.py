"""EndQuorumEpoch (API key 54): the leader of the KRaft quorum resigns and names its preferred successors.
Between controllers.

Versions: 1 is flexible, names candidates with their directory ids and the leader's endpoints (KIP-853).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, string, uint16, uuid


class ReplicaInfo(Struct):
    candidate_id: int = int32("1+")
    candidate_directory_id: UUID = uuid("1+")


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    preferred_successors: list[int] = array(int32, "0", ignorable=True)
    preferred_candidates: list[ReplicaInfo] = array(ReplicaInfo, "1+", ignorable=True)


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class LeaderEndpoint(Struct):
    name: str = string("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class EndQuorumEpochRequest(Request, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
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


class EndQuorumEpochResponse(Response, api_key=ApiKey.END_QUORUM_EPOCH, versions="0-1", flexible="1+"):
    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
