"""The delivery state of share groups in `__share_group_state` (KIP-932).

One key names a group, topic id and partition. A snapshot (type 0) holds the whole state: the
share-partition start offset and the batches in flight beyond it. An update (type 1) holds what changed
since the snapshot of the same snapshot epoch, or -1 for what did not. A state epoch lower than the one on
record is a fenced writer's.
"""

from uuid import UUID

from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue
from ottla.kproto.schema import Struct, array, int8, int16, int32, int64, string, uuid


class ShareSnapshotKey(CoordinatorKey, record_type=0, versions="0"):
    group_id: str = string("0")
    topic_id: UUID = uuid("0")
    partition: int = int32("0")


class StateBatch(Struct):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class ShareSnapshotValue(CoordinatorValue, record_type=0, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    state_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, tagged="0+", default=-1)
    create_timestamp: int = int64("0+")
    write_timestamp: int = int64("0+")
    state_batches: list[StateBatch] = array(StateBatch, "0+")


class ShareUpdateKey(CoordinatorKey, record_type=1, versions="0"):
    group_id: str = string("0")
    topic_id: UUID = uuid("0")
    partition: int = int32("0")


class ShareUpdateValue(CoordinatorValue, record_type=1, versions="0", flexible="0+"):
    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", tag=0, tagged="0+", default=-1)
    state_batches: list[StateBatch] = array(StateBatch, "0+")
