"""AssignReplicasToDirs (API key 73): a broker tells the controller in which log directories its replicas
are (KIP-858).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int16, int32, int64, uuid


class PartitionData(Struct):
    partition_index: int = int32("0+")


class TopicData(Struct):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionData] = array(PartitionData, "0+")


class DirectoryData(Struct):
    id: UUID = uuid("0+")
    topics: list[TopicData] = array(TopicData, "0+")


class AssignReplicasToDirsRequest(Request, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    directories: list[DirectoryData] = array(DirectoryData, "0+")


class PartitionDataResponse(Struct, official_name="PartitionData"):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")


class TopicDataResponse(Struct, official_name="TopicData"):
    topic_id: UUID = uuid("0+")
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class DirectoryDataResponse(Struct, official_name="DirectoryData"):
    id: UUID = uuid("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")


class AssignReplicasToDirsResponse(Response, api_key=ApiKey.ASSIGN_REPLICAS_TO_DIRS, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    directories: list[DirectoryDataResponse] = array(DirectoryDataResponse, "0+")
