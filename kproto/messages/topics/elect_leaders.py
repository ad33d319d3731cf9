"""ElectLeaders (API key 43): elect the preferred replica of partitions as leader, or any at the price of
data.

Promises: each partition on its own; null topics means all. ELECTION_NOT_NEEDED when the wanted replica
leads already, PREFERRED_LEADER_NOT_AVAILABLE when it cannot.

Versions: 0 is the preferred election (KIP-183); 1 adds the type, 1 for an unclean election, and an error
for the whole answer (KIP-460); 2 is flexible.
"""

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, int8, int16, int32, string


class TopicPartitions(Struct):
    topic: str = string("0+")
    partitions: list[int] = array(int32, "0+")


class ElectLeadersRequest(Request, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    election_type: int = int8("1+")
    topic_partitions: list[TopicPartitions] | None = array(TopicPartitions, "0+", nullable="0+")
    timeout_ms: int = int32("0+", default=60000)


class PartitionResult(Struct):
    partition_id: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")


class ReplicaElectionResult(Struct):
    topic: str = string("0+")
    partition_result: list[PartitionResult] = array(PartitionResult, "0+")


class ElectLeadersResponse(Response, api_key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("1+")
    replica_election_results: list[ReplicaElectionResult] = array(ReplicaElectionResult, "0+")
