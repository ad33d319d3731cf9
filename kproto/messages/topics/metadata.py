"""Metadata (API key 3): which brokers there are, and who leads which partition.

Promises: a consistent view of the topics asked for; null topics means all of them, an empty list none
(version 0 has no null: empty means all). A topic that does not exist is created when both the broker and
`allow_auto_topic_creation` (version 4) permit it, and is answered with LEADER_NOT_AVAILABLE or
UNKNOWN_TOPIC_OR_PARTITION until it is there. A name that is not allowed is INVALID_TOPIC_EXCEPTION.

Versions: 1 adds racks, the controller and internal topics; 2 the cluster id; 5 offline replicas; 7 leader
epochs; 8-10 authorized operations of the cluster, 8+ those of topics; 9 is flexible; 10 has topic ids
(KIP-516), by which topics may be asked for from 12 on; 11 leaves the cluster's operations to
DescribeCluster (KIP-700); 13 has an error code for the whole answer, REBOOTSTRAP_REQUIRED above all
(KIP-1102).

What brokers get wrong: from version 9 on clients trust leader epochs, so these must never go back. A topic
created again has another id. Ids of zero while Fetch 13 or Produce 13 is advertised break clients.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, Struct, array, boolean, int16, int32, string, uuid


class MetadataRequestTopic(Struct):
    topic_id: UUID = uuid("10+", ignorable=True)
    name: str | None = string("0+", nullable="10+")


class MetadataRequest(Request, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    topics: list[MetadataRequestTopic] | None = array(MetadataRequestTopic, "0+", nullable="1+")
    allow_auto_topic_creation: bool = boolean("4+", default=True)
    include_cluster_authorized_operations: bool = boolean("8-10")
    include_topic_authorized_operations: bool = boolean("8+")


class MetadataResponseBroker(Struct):
    node_id: int = int32("0+")
    host: str = string("0+")
    port: int = int32("0+")
    rack: str | None = string("1+", nullable="1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    error_code: int = int16("0+")
    partition_index: int = int32("0+")
    leader_id: int = int32("0+")
    leader_epoch: int = int32("7+", default=-1, ignorable=True)
    replica_nodes: list[int] = array(int32, "0+")
    isr_nodes: list[int] = array(int32, "0+")
    offline_replicas: list[int] = array(int32, "5+", ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: int = int16("0+")
    name: str | None = string("0+", nullable="12+")
    topic_id: UUID = uuid("10+", ignorable=True)
    is_internal: bool = boolean("1+", ignorable=True)
    partitions: list[MetadataResponsePartition] = array(MetadataResponsePartition, "0+")
    topic_authorized_operations: int = int32("8+", default=-2147483648)


class MetadataResponse(Response, api_key=ApiKey.METADATA, versions="0-13", flexible="9+"):
    throttle_time_ms: int = int32("3+", ignorable=True)
    brokers: list[MetadataResponseBroker] = array(MetadataResponseBroker, "0+")
    cluster_id: str | None = string("2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = int32("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = array(MetadataResponseTopic, "0+")
    cluster_authorized_operations: int = int32("8-10", default=-2147483648)
    error_code: int = int16("13+", ignorable=True)
