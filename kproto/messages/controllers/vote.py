"""Vote (API key 52): a candidate asks for a vote in the KRaft quorum. Between controllers.

Versions: 1 adds the voter's directory id (KIP-853); 2 the pre-vote (KIP-996).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import (
    Request,
    Response,
    Struct,
    array,
    boolean,
    int16,
    int32,
    int64,
    string,
    uint16,
    uuid,
)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    replica_epoch: int = int32("0+")
    replica_id: int = int32("0+")
    replica_directory_id: UUID = uuid("1+", ignorable=True)
    voter_directory_id: UUID = uuid("1+", ignorable=True)
    last_offset_epoch: int = int32("0+")
    last_offset: int = int64("0+")
    pre_vote: bool = boolean("2+")


class TopicData(Struct):
    topic_name: str = string("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class VoteRequest(Request, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", default=None)
    voter_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[TopicData] = array(TopicData, "0+")


class PartitionDataResponse(Struct, official_name="PartitionData"):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    vote_granted: bool = boolean("0+")


class TopicDataResponse(Struct, official_name="TopicData"):
    topic_name: str = string("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class VoteResponse(Response, api_key=ApiKey.VOTE, versions="0-2", flexible="0+"):
    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
