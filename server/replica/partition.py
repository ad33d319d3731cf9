"""One partition on this node: its role, its epoch, who is in sync, and what of its log may be seen by whom."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.server.replica.errors import (
    FencedLeaderEpochError,
    NotEnoughReplicasError,
    NotLeaderError,
    ReplicaError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
)
from ottla.server.replica.follower import UNKNOWN_OFFSET, FollowerProgress
from ottla.server.replica.traffic import TopicTraffic
from ottla.storage.errors import OffsetOutOfRangeError, StorageError, StoreOfflineError
from ottla.storage.log.partition_log import AppendInfo, AppendOrigin, PartitionLog
from ottla.storage.memory.iobuf import Fragment

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.metadata.image import PartitionState
    from ottla.storage.log.append_types import CheckedBatch
    from ottla.storage.state.producer_state import VerificationGuard

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1

_NO_FOLLOWERS: Final[dict[int, FollowerProgress]] = {}


class Isolation(Enum):
    """Up to where a reader sees the log (Kafka's `FetchIsolation`)."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


class Role(Enum):
    """What this node is for the partition. All but the first two are final for this object."""

    FOLLOWER = "follower"
    LEADER = "leader"
    OFFLINE = "offline"
    GIVEN_UP = "given up"
    DELETED = "deleted"


_SERVING: Final = (Role.LEADER, Role.FOLLOWER)


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ended; (-1, -1) when nothing is known of it."""

    epoch: int
    end_offset: int


class Partition:
    """A partition's state, changed only by synchronous methods: nobody ever sees it half changed.

    A partition with one replica commits what it has flushed; with more, the high watermark is the least log end over
    the in-sync replicas, and it stands still while they are fewer than `min.insync.replicas`. The object is its own key
    in the purgatories; whoever changes it signals them.
    """

    __slots__ = (
        "_followers",
        "_min_insync_replicas",
        "changes",
        "epoch_start_offset",
        "index",
        "is_internal",
        "is_under_min_isr",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "node_id",
        "replicas",
        "role",
        "term",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(
        self,
        topic: str,
        topic_id: UUID,
        index: int,
        log: PartitionLog,
        *,
        node_id: int,
        min_insync_replicas: int = 1,
        is_internal: bool = False,
        traffic: TopicTraffic | None = None,
    ) -> None:
        self.traffic = TopicTraffic() if traffic is None else traffic
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.node_id = node_id
        self.is_internal = is_internal
        self._min_insync_replicas = min_insync_replicas
        #: Fewer replicas are in sync than `min.insync.replicas` asks for, or all of them if that is more.
        self.is_under_min_isr = False
        self.role = Role.FOLLOWER
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        #: Rises each time this node begins to lead: what was appended in one term is not vouched for in the next.
        self.term = 0
        #: Rises each time its waiters are signalled.
        self.changes = 0
        self._followers = _NO_FOLLOWERS

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} {self.role.value} epoch {self.leader_epoch}>"

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def min_insync_replicas(self) -> int:
        """The topic's `min.insync.replicas`."""
        return self._min_insync_replicas

    @min_insync_replicas.setter
    def min_insync_replicas(self, count: int) -> None:
        self._min_insync_replicas = count
        self._count_isr()

    def _count_isr(self) -> None:
        self.is_under_min_isr = len(self.isr) < min(self._min_insync_replicas, len(self.replicas))

    # Roles ----------------------------------------------------------------------------------------------------------

    def apply(self, state: PartitionState) -> None:
        """Take the cluster's new state: become or stay leader or follower. A final role stays final."""
        if self.role not in _SERVING:
            return
        was_leader = self.role is Role.LEADER
        new_epoch = state.leader_epoch != self.leader_epoch
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas
        self.isr = state.isr
        self._count_isr()
        if state.leader != self.node_id:
            self.role = Role.FOLLOWER
            self._followers = _NO_FOLLOWERS
            return
        self.role = Role.LEADER
        if not was_leader:
            self.term += 1
        if new_epoch or not was_leader:
            self.epoch_start_offset = self.log.log_end_offset
        self._follow_assignment(keep_progress=was_leader)
        self.advance_high_watermark()

    def _follow_assignment(self, *, keep_progress: bool) -> None:
        others = [replica for replica in self.replicas if replica != self.node_id]
        if not others:
            self._followers = _NO_FOLLOWERS
            return
        known = self._followers if keep_progress else _NO_FOLLOWERS
        self._followers = {replica: known.get(replica) or FollowerProgress() for replica in others}

    def go_offline(self) -> None:
        """Its store has stopped for good."""
        if self.role in _SERVING:
            self.role = Role.OFFLINE

    def give_up(self) -> None:
        """This node no longer holds a replica."""
        self.role = Role.GIVEN_UP

    def delete(self) -> None:
        """The topic is gone."""
        self.role = Role.DELETED

    def leadership_error(self) -> ReplicaError | StorageError | None:
        """Why this node cannot act as leader; None when it leads."""
        return None if self.role is Role.LEADER else self._refusal()

    def require_leader(self) -> None:
        """Raise unless this node leads."""
        if self.role is not Role.LEADER:
            raise self._refusal()

    def require_readable(self, current_leader_epoch: int, *, from_follower: bool = False) -> None:
        """Raise unless a reader with this idea of the leader epoch (-1: none) may be served.

        With `from_follower` a follower serves as well (KIP-392). The epoch is judged first, as in Kafka.
        """
        if current_leader_epoch != NO_EPOCH and self.role in _SERVING:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(f"epoch {current_leader_epoch} is before {self.leader_epoch}")
            if current_leader_epoch > self.leader_epoch:
                raise UnknownLeaderEpochError(f"epoch {current_leader_epoch} is beyond {self.leader_epoch}")
        if self.role is not Role.LEADER and not (from_follower and self.role is Role.FOLLOWER):
            raise self._refusal()

    def _refusal(self) -> ReplicaError | StorageError:
        if self.role is Role.OFFLINE:
            return StoreOfflineError(f"the store of {self.topic}-{self.index} is offline")
        if self.role is Role.DELETED:
            return UnknownTopicIdError(f"{self.topic}-{self.index} was deleted")
        return NotLeaderError(f"node {self.node_id} does not lead {self.topic}-{self.index}")

    # Appending ------------------------------------------------------------------------------------------------------

    def append(
        self,
        records: memoryview,
        fragment: Fragment | None,
        *,
        required_acks: int,
        origin: AppendOrigin,
        now_ms: int,
        transaction_version: int = 0,
        require_verification: bool = False,
        guard: VerificationGuard | None = None,
        checked: CheckedBatch | None = None,
    ) -> AppendInfo:
        """Append as leader. Raises ReplicaError or StorageError, and then nothing has changed."""
        if self.role is not Role.LEADER:
            raise self._refusal()
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            raise NotEnoughReplicasError(
                f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync and needs {self.min_insync_replicas}"
            )
        return self.log.append_as_leader(
            records,
            fragment,
            leader_epoch=self.leader_epoch,
            origin=origin,
            now_ms=now_ms,
            transaction_version=transaction_version,
            require_verification=require_verification,
            guard=guard,
            checked=checked,
        )

    def advance_high_watermark(self) -> bool:
        """After a flush, a follower's progress or a change of the in-sync set; True if readers can see more."""
        if self.role is not Role.LEADER or self.is_under_min_isr:
            return False
        offset = self.log.flushed_end_offset
        for replica, follower in self._followers.items():
            if replica in self.isr:
                offset = min(offset, follower.log_end_offset)
        return offset >= 0 and self.log.advance_high_watermark(offset)

    # Followers ------------------------------------------------------------------------------------------------------

    def record_follower_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, current_leader_epoch: int, now_ms: int
    ) -> bool:
        """Take note of what a follower has; True if it has moved, so that waiting operations may complete.

        Raises UnknownLeaderEpochError or NotLeaderError for a node that is not assigned the partition, as Kafka does.
        """
        follower = self._followers.get(replica_id)
        if follower is None:
            message = f"node {replica_id} is no replica of {self.topic}-{self.index}"
            if current_leader_epoch != NO_EPOCH:
                raise UnknownLeaderEpochError(message)
            raise NotLeaderError(message)
        moved = follower.record_fetch(offset, log_start_offset, self.log.flushed_end_offset, now_ms)
        if moved:
            self.advance_high_watermark()
        return moved

    def in_sync_candidates(self, now_ms: int, max_lag_ms: int) -> tuple[int, ...]:
        """The replicas that are in sync as the leader sees it, in the order of the assignment.

        A follower joins once it has reached the high watermark and the start of this leader epoch (KAFKA-7128); it
        stays while it keeps up. When they differ from `isr` the leader has the cluster's state changed by
        compare-and-swap, and `apply` brings the result.
        """
        end_offset = self.log.flushed_end_offset
        joins_at = max(self.log.high_watermark, self.epoch_start_offset)

        def is_in_sync(replica: int) -> bool:
            if replica == self.node_id:
                return True
            follower = self._followers[replica]
            if replica in self.isr:
                return follower.is_caught_up(end_offset, now_ms, max_lag_ms)
            return follower.log_end_offset >= joins_at

        return tuple(replica for replica in self.replicas if is_in_sync(replica))

    def low_watermark(self, live_nodes: Iterable[int] | None = None) -> int:
        """The least log start offset over the live replicas: below it no replica serves anything (DeleteRecords)."""
        offset = self.log.log_start_offset
        for replica, follower in self._followers.items():
            if live_nodes is None or replica in live_nodes:
                offset = min(offset, follower.log_start_offset)
        return offset

    # Reading --------------------------------------------------------------------------------------------------------

    def visible_end(self, isolation: Isolation) -> int:
        """The offset at which a reader has seen everything that it may see."""
        if isolation is Isolation.HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        # Not the assigned end: what a crash of the leader may still take back, no follower may have.
        return self.log.flushed_end_offset

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Where a follower's log parts from this one, None if it does not before `offset` (KIP-595).

        Raises OffsetOutOfRangeError if nothing is known of the epoch, or `offset` is below the log start.
        """
        end = self.end_offset_for_epoch(last_fetched_epoch)
        log = self.log
        if end.epoch == NO_EPOCH or end.end_offset == UNKNOWN_OFFSET or offset < log.log_start_offset:
            raise OffsetOutOfRangeError(offset, log.log_start_offset, log.log_end_offset)
        if end.epoch < last_fetched_epoch or end.end_offset < offset:
            return end
        return None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at an offset was, or would now be, written; -1 if unknown."""
        if self.role is Role.LEADER and offset >= self.epoch_start_offset:
            return self.leader_epoch
        return self.log.epochs.epoch_for_offset(offset)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch up to this one and where it ended (KIP-101, KIP-279; Kafka's `LeaderEpochFileCache`).

        The leader's own epoch counts from the moment it leads, before anything was appended in it.
        """
        if epoch == NO_EPOCH or (self.role is Role.LEADER and epoch > self.leader_epoch):
            return EpochEndOffset(NO_EPOCH, UNKNOWN_OFFSET)
        logged_epoch = self.log.latest_epoch
        if self.role is not Role.LEADER or epoch < logged_epoch or logged_epoch == self.leader_epoch:
            return EpochEndOffset(*self.log.end_offset_for_epoch(epoch))
        # Nothing was appended in the current epoch so far.
        if epoch == self.leader_epoch:
            return EpochEndOffset(epoch, self.log.log_end_offset)
        return EpochEndOffset(epoch if logged_epoch == NO_EPOCH else logged_epoch, self.epoch_start_offset)
