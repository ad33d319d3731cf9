"""FetchSnapshot (API key 59): a part of a snapshot of the metadata log (KIP-630). Between controllers and
to brokers.

Versions: 1 adds directory ids and the leader's endpoint (KIP-853).
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
    uint16,
    uuid,
)


class SnapshotId(Struct):
    end_offset: int = int64("0+")
    epoch: int = int32("0+")


class PartitionSnapshot(Struct):
    partition: int = int32("0+")
    current_leader_epoch: int = int32("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    position: int = int64("0+")
    replica_directory_id: UUID = uuid("1+", tag=0, tagged="1+", ignorable=True)


class TopicSnapshot(Struct):
    name: str = string("0+")
    partitions: list[PartitionSnapshot] = array(PartitionSnapshot, "0+")


class FetchSnapshotRequest(Request, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    cluster_id: str | None = string("0+", nullable="0+", tag=0, tagged="0+", default=None)
    replica_id: int = int32("0+", default=-1)
    max_bytes: int = int32("0+", default=0x7FFFFFFF)
    topics: list[TopicSnapshot] = array(TopicSnapshot, "0+")


class LeaderIdAndEpoch(Struct):
    leader_id: int = int32("0+")
    leader_epoch: int = int32("0+")


class PartitionSnapshotResponse(Struct, official_name="PartitionSnapshot"):
    index: int = int32("0+")
    error_code: int = int16("0+")
    snapshot_id: SnapshotId = struct(SnapshotId, "0+")
    current_leader: LeaderIdAndEpoch = struct(LeaderIdAndEpoch, "0+", tag=0, tagged="0+")
    size: int = int64("0+")
    position: int = int64("0+")
    unaligned_records: bytes | memoryview | None = record_data("0+")


class TopicSnapshotResponse(Struct, official_name="TopicSnapshot"):
    name: str = string("0+")
    partitions: list[PartitionSnapshotResponse] = array(PartitionSnapshotResponse, "0+")


class NodeEndpoint(Struct):
    node_id: int = int32("1+")
    host: str = string("1+")
    port: int = uint16("1+")


class FetchSnapshotResponse(Response, api_key=ApiKey.FETCH_SNAPSHOT, versions="0-1", flexible="0+"):
    throttle_time_ms: int = int32("0+", ignorable=True)
    error_code: int = int16("0+")
    topics: list[TopicSnapshotResponse] = array(TopicSnapshotResponse, "0+")
    node_endpoints: list[NodeEndpoint] = array(NodeEndpoint, "1+", tag=0, tagged="1+")
