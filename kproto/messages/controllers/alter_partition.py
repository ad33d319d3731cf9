"""AlterPartition (API key 56): a leader has the in-sync replicas of its partitions changed. From brokers to
the controller.

Promises: the change is made under the partition epoch given, or refused; the new state comes back.

Versions: 2 names topics by id (KIP-841); 3 gives the broker epoch of each replica, so that one that
restarted cannot slip in (KIP-903).
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, int64, uuid


class BrokerState(Struct):
    broker_id: int = int32("3+")
    broker_epoch: int = int64("3+", default=-1)


class PartitionData(Struct):
    partition_index: int = int32("0+")
    leader_epoch: int = int32("0+")
    new_isr: list[int] = array(int32, "0-2")
    new_isr_with_epochs: list[BrokerState] = array(BrokerState, "3+")
    leader_recovery_state: int = int8("1+")
    partition_epoch: int = int32("0+")


class TopicData(Struct):
    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[PartitionData] = array(PartitionData, "0+")


class AlterPartitionRequest(Request, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    broker_id: int = int32("0+")
    broker_epoch: int = int64("0+", default=-1)
    topics: list[TopicData] = array(TopicData, "0+")


class PartitionDataResponse(Struct, official_name="PartitionData"):
    partition_index: int = int32("0+")
    error_code: int = int16("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")
    isr: list[int] = array(int32, "0+")
    leader_recovery_state: int = int8("1+", ignorable=True)
    partition_epoch: int = int32("0+")


class TopicDataResponse(Struct, official_name="TopicData"):
    topic_id: UUID = uuid("2+", ignorable=True)
    partitions: list[PartitionDataResponse] = array(PartitionDataResponse, "0+")


class AlterPartitionResponse(Response, api_key=ApiKey.ALTER_PARTITION, versions="2-3", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    topics: list[TopicDataResponse] = array(TopicDataResponse, "0+")
