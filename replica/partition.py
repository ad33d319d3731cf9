"""One partition on this node: its role, its epoch, its in-sync replicas, and how far its log may be read."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.replica.errors import (
    FencedLeaderEpochError,
    MirroredTopicError,
    NotEnoughReplicasError,
    NotLeaderError,
    ReplicaError,
    UnknownLeaderEpochError,
    UnknownTopicIdError,
)
from ottla.replica.follower import UNKNOWN_OFFSET, FollowerProgress
from ottla.replica.isr_change import IsrChange
from ottla.replica.traffic import TopicTraffic
from ottla.settings.mirrored import Mirroring
from ottla.storage.errors import OffsetOutOfRangeError, StorageError, StoreOfflineError
from ottla.storage.log.partition_log import AppendInfo, AppendOrigin, PartitionLog
from ottla.storage.memory.iobuf import Fragment

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import PartitionState
    from ottla.replica.kept_logs import KeptLogs
    from ottla.replica.throttles import Throttled
    from ottla.replica.tiered.remote_log import RemoteLog
    from ottla.storage.log.append_types import CheckedBatch
    from ottla.storage.state.leader_epochs import LeaderEpochs
    from ottla.storage.state.producer_state import VerificationGuard

ACKS_ALL: Final = -1
NO_EPOCH: Final = -1

_PATIENCE_MS: Final = 250
"""How long a follower that is about to join is waited for between two of its fetches."""

_NO_FOLLOWERS: Final[dict[int, FollowerProgress]] = {}
_NO_BROKERS: Final[Mapping[int, int]] = {}


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


# A member of an enumeration costs as much to look up as two calls, and these are asked for with every append or read.
_HIGH_WATERMARK: Final = Isolation.HIGH_WATERMARK
_LEADER: Final = Role.LEADER
_NOT_MIRRORED: Final = Mirroring.NO

_SERVING: Final = (Role.LEADER, Role.FOLLOWER)


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ended; (-1, -1) when nothing is known of it."""

    epoch: int
    end_offset: int


class Partition:
    """A partition's state, changed only by synchronous methods: nobody ever sees it half changed.

    A partition with one replica commits what it has flushed; with more, the high watermark is the least log end over
    the in-sync replicas, and it stands still while they are fewer than `min.insync.replicas`. A replica that is about
    to join counts from before the cluster is asked, one that is about to leave until the cluster has agreed (Kafka's
    maximal in-sync set); so does one that may lead without being in sync (KIP-966), as it must have everything. The
    object is its own key in the purgatories; each change of it signals them.

    The one change that waits is a truncation, which only a follower and the leader of a mirror do: a change of the role
    waits for its end with `settled`.
    """

    __slots__ = (
        "_brokers",
        "_followers",
        "_isr_change",
        "_kept_logs",
        "_leader_high_watermark",
        "_max_lag_ms",
        "_maximal_isr",
        "_min_insync_replicas",
        "_truncation",
        "changes",
        "elr",
        "epoch_start_offset",
        "first_bad_offset",
        "index",
        "is_internal",
        "is_leaving",
        "is_throttled_follower",
        "is_throttled_leader",
        "is_under_min_isr",
        "isr",
        "leader_epoch",
        "leader_id",
        "log",
        "mirroring",
        "node_id",
        "remote",
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
        mirroring: Mirroring = Mirroring.NO,
        traffic: TopicTraffic | None = None,
        brokers: Mapping[int, int] = _NO_BROKERS,
        max_lag_ms: int = 30_000,
        kept_logs: KeptLogs | None = None,
    ) -> None:
        """`brokers` are the epochs of all that are alive, kept up to date by its owner; `max_lag_ms` is
        `replica.lag.time.max.ms`. `kept_logs` sets aside what must not be lost when a follower is cut."""
        self.traffic = TopicTraffic() if traffic is None else traffic
        #: Of a log that may lack records the offset up to which it is sound, -1 as long as that is not known. It is to
        #: be filled from there. None for a log without doubt, and where nobody else has more.
        self.first_bad_offset: int | None = None
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        #: The part of the log that is in the object store; None if the topic is not tiered.
        self.remote: RemoteLog | None = None
        self.node_id = node_id
        self.is_internal = is_internal
        #: What the topic is to another cluster. Of a mirror, the epochs in the log are the source's, and not above this
        #: cluster's, which clients know.
        self.mirroring = mirroring
        self._min_insync_replicas = min_insync_replicas
        #: What is sent, and fetched, of it counts for the quotas of throttled replicas.
        self.is_throttled_leader = False
        self.is_throttled_follower = False
        #: This node stops: no follower fetches from it any more.
        self.is_leaving = False
        #: Fewer replicas are in sync than `min.insync.replicas` asks for, or all of them if that is more.
        self.is_under_min_isr = False
        self.role = Role.FOLLOWER
        self.leader_id = -1
        self.leader_epoch = NO_EPOCH
        self.epoch_start_offset = 0
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.elr: tuple[int, ...] = ()
        #: Rises each time this node begins to lead: what was appended in one term is not vouched for in the next.
        self.term = 0
        #: Rises each time its waiters are signalled.
        self.changes = 0
        self._followers = _NO_FOLLOWERS
        #: As the leader whom this node follows has said last.
        self._leader_high_watermark = UNKNOWN_OFFSET
        self._brokers = brokers
        self._max_lag_ms = max_lag_ms
        self._kept_logs = kept_logs
        self._maximal_isr: tuple[int, ...] = ()
        self._isr_change: IsrChange | None = None
        self._truncation: trio.Event | None = None

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.index} {self.role.value} epoch {self.leader_epoch}>"

    @property
    def is_leader(self) -> bool:
        return self.role is _LEADER

    @property
    def min_insync_replicas(self) -> int:
        """The topic's `min.insync.replicas`."""
        return self._min_insync_replicas

    def require_in_sync(self, count: int) -> None:
        """The topic's `min.insync.replicas` has changed."""
        self._min_insync_replicas = count
        self._count_isr()

    def change_mirroring(self, mirroring: Mirroring) -> None:
        """Whether the topic is a mirror has changed. Nothing of the partition is under way."""
        self.mirroring = mirroring

    def lose_followers(self) -> None:
        """This node stops: nobody fetches from it any more, and no wait for replicas can end well."""
        self.is_leaving = True

    def count_change(self) -> None:
        """Something was changed that those who wait may have waited for."""
        self.changes += 1

    @property
    def has_followers(self) -> bool:
        """Whether other nodes hold replicas, as far as their leader is concerned."""
        return bool(self._followers)

    def throttle(self, throttled: Throttled) -> None:
        """What the topic says of throttled replicas has changed."""
        self.is_throttled_leader = throttled.as_leader is None or self.index in throttled.as_leader
        self.is_throttled_follower = throttled.as_follower is None or self.index in throttled.as_follower

    def _count_isr(self) -> None:
        self.is_under_min_isr = len(self.isr) < min(self._min_insync_replicas, len(self.replicas))

    # Roles ----------------------------------------------------------------------------------------------------------

    def apply(self, state: PartitionState, now_ms: int = 0) -> None:
        """Take the cluster's new state: become or stay leader or follower. A final role stays final."""
        if self.role not in _SERVING:
            return
        assert self._truncation is None, f"the role of {self!r} changes while it is truncated"
        # Several changes may be told as one: then somebody else may have led in between, for whom followers have cut
        # off what they had.
        leads_on = self.leads_on(state)
        new_epoch = state.leader_epoch != self.leader_epoch
        if new_epoch:
            self._leader_high_watermark = UNKNOWN_OFFSET
        self.leader_id = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas
        for replica, follower in self._followers.items():
            if replica in self.isr and replica not in state.isr:
                follower.has_left()
        self.isr = state.isr
        self.elr = state.elr
        self._count_isr()
        if state.leader != self.node_id:
            self.role = Role.FOLLOWER
            self._followers = _NO_FOLLOWERS
            self._isr_change = None
            return
        self.role = Role.LEADER
        if not leads_on:
            self.term += 1
        if new_epoch or not leads_on:
            self.epoch_start_offset = self.log.log_end_offset
        self._follow_assignment(now_ms, keep_progress=leads_on)
        self._count_maximal_isr()
        self.advance_high_watermark(now_ms)

    def leads_in(self, leader_epoch: int) -> bool:
        """Whether this node leads the partition, in this epoch."""
        return self.is_leader and self.leader_epoch == leader_epoch

    def leads_on(self, state: PartitionState) -> bool:
        """Whether nobody else can have led between what this node, which leads, knows and this state."""
        return self.role is Role.LEADER and state.leader_epoch <= self.leader_epoch + 1

    def _follow_assignment(self, now_ms: int, *, keep_progress: bool) -> None:
        others = [replica for replica in self.replicas if replica != self.node_id]
        if not others:
            self._followers = _NO_FOLLOWERS
            return
        known = self._followers if keep_progress else _NO_FOLLOWERS
        # A replica that is in sync when a leader begins has the whole allowed lag to show that it follows.
        self._followers = {
            replica: known.get(replica) or FollowerProgress(now_ms if replica in self.isr else 0) for replica in others
        }

    def _count_maximal_isr(self) -> None:
        change = self._isr_change
        joining = () if change is None else tuple(it for it in change.joining if it not in self.isr)
        self._maximal_isr = self.isr + joining + self.elr

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
        return None if self.role is _LEADER else self._refusal()

    def require_leader(self) -> None:
        """Raise unless this node leads."""
        if self.role is not _LEADER:
            raise self._refusal()

    def require_replicas(self, required_acks: int) -> None:
        """Raise NotEnoughReplicasError if acks=all are asked for and too few replicas are in sync."""
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            raise NotEnoughReplicasError(
                f"{self.topic}-{self.index} has {len(self.isr)} replicas in sync and needs {self.min_insync_replicas}"
            )

    def require_readable(self, current_leader_epoch: int, *, from_follower: bool = False) -> None:
        """Raise unless a reader with this idea of the leader epoch (-1: none) may be served.

        With `from_follower` a follower serves as well (KIP-392). The epoch is judged first, as in Kafka.
        """
        if current_leader_epoch != NO_EPOCH and self.role in _SERVING:
            if current_leader_epoch < self.leader_epoch:
                raise FencedLeaderEpochError(f"epoch {current_leader_epoch} is before {self.leader_epoch}")
            if current_leader_epoch > self.leader_epoch:
                raise UnknownLeaderEpochError(f"epoch {current_leader_epoch} is beyond {self.leader_epoch}")
        if self.role is not _LEADER and not (from_follower and self.role is Role.FOLLOWER):
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
        if self.role is not _LEADER:
            raise self._refusal()
        if self.mirroring is not _NOT_MIRRORED:
            self._require_own(origin)
        if required_acks == ACKS_ALL and self.is_under_min_isr:
            self.require_replicas(required_acks)
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

    def _require_own(self, origin: AppendOrigin) -> None:
        """Only the markers that end what was open come into a mirror, when it gets nothing from its source any more."""
        if origin is AppendOrigin.CLIENT or self.mirroring is Mirroring.FOLLOWING:
            raise MirroredTopicError(f"{self.topic} is a mirror of another cluster's topic and cannot be written to")

    def advance_high_watermark(self, now_ms: int = 0) -> bool:
        """After a flush, a follower's progress or a change of the in-sync set; True if readers can see more.

        A follower that keeps up but is not in the set yet is waited for, or under load it would never reach what it has
        to reach to join. It must have fetched just now: a follower that stops or dies holds nobody up.
        """
        if self.role is not _LEADER or self.is_under_min_isr:
            return False
        end_offset = offset = self.log.flushed_end_offset
        for replica, follower in self._followers.items():
            if follower.log_end_offset < offset and (
                replica in self._maximal_isr
                or (
                    now_ms - follower.last_fetch_ms <= _PATIENCE_MS
                    and follower.broker_epoch == self._brokers.get(replica)
                    and follower.is_caught_up(end_offset, now_ms, self._max_lag_ms)
                )
            ):
                offset = follower.log_end_offset
        return offset >= 0 and self.log.advance_high_watermark(offset)

    # Followers ------------------------------------------------------------------------------------------------------

    def follower(self, replica_id: int, current_leader_epoch: int) -> FollowerProgress:
        """What the leader knows of a follower. Raises UnknownLeaderEpochError or NotLeaderError for a node that is not
        assigned the partition, as Kafka does."""
        follower = self._followers.get(replica_id)
        if follower is None:
            message = f"node {replica_id} is not a replica of {self.topic}-{self.index}"
            if current_leader_epoch != NO_EPOCH:
                raise UnknownLeaderEpochError(message)
            raise NotLeaderError(message)
        return follower

    def record_follower_fetch(
        self,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        current_leader_epoch: int,
        now_ms: int,
        broker_epoch: int = NO_EPOCH,
    ) -> bool:
        """Take note of what a follower has; True if waiting operations may complete by it.

        Raises what `follower` does, and NotLeaderError for a process that another one of the same node has followed
        (KIP-903).
        """
        follower = self.follower(replica_id, current_leader_epoch)
        if broker_epoch != NO_EPOCH and broker_epoch < follower.broker_epoch:
            raise NotLeaderError(f"node {replica_id} has registered again since epoch {broker_epoch}")
        moved = follower.record_fetch(offset, log_start_offset, self.log.flushed_end_offset, now_ms, broker_epoch)
        # Also when it has not moved: perhaps a follower that was waited for no longer is.
        if moved or self.log.high_watermark < self.log.flushed_end_offset:
            moved |= self.advance_high_watermark(now_ms)
        return moved

    def record_unchanged_fetch(
        self, replica_id: int, offset: int, log_start_offset: int, now_ms: int, broker_epoch: int
    ) -> bool:
        """Take note of a fetch from the leader's end by a follower that is in sync and had come as far already.

        False if it says anything new: then nothing is noted, and `record_follower_fetch` takes it.
        """
        follower = self._followers.get(replica_id)
        return (
            follower is not None
            and replica_id in self.isr
            and follower.fetches_again(offset, log_start_offset, now_ms, broker_epoch)
        )

    def fetches(self) -> dict[int, int]:
        """How often each of the other replicas that may be elected has fetched in this term."""
        return {replica: self._followers[replica].fetches for replica in self._maximal_isr if replica != self.node_id}

    def may_join(self, replica: int) -> bool:
        """Whether a follower that is not in sync has become so.

        It has reached the high watermark and the start of this leader epoch (KAFKA-7128), and is the living process
        that the cluster knows (KIP-903).
        """
        follower = self._followers.get(replica)
        return (
            follower is not None
            and replica not in self.isr
            and follower.log_end_offset >= max(self.log.high_watermark, self.epoch_start_offset)
            and self._brokers.get(replica) == follower.broker_epoch
        )

    def lagging(self, now_ms: int) -> tuple[int, ...]:
        """The followers in sync that have not kept up for `replica.lag.time.max.ms`."""
        end_offset = self.log.flushed_end_offset
        return tuple(
            replica
            for replica, follower in self._followers.items()
            if replica in self.isr and not follower.is_caught_up(end_offset, now_ms, self._max_lag_ms)
        )

    def begin_isr_change(self, now_ms: int) -> IsrChange | None:
        """What the leader asks of the cluster, if the in-sync set has to change: the caller has it done and says so.

        Who joins counts from now on. None also while a change is under way.
        """
        if self.role is not Role.LEADER or self._isr_change is not None or not self._followers:
            return None
        joining = {
            replica: follower.broker_epoch for replica, follower in self._followers.items() if self.may_join(replica)
        }
        leaving = self.lagging(now_ms)
        if not joining and not leaving:
            return None
        self._isr_change = IsrChange(self.node_id, self.leader_epoch, joining, leaving, self._brokers)
        self._count_maximal_isr()
        return self._isr_change

    def end_isr_change(self, change: IsrChange, now_ms: int) -> bool:
        """The cluster has agreed or refused, and `apply` has told the result; True if readers can see more."""
        if self._isr_change is not change:
            return False
        self._isr_change = None
        self._count_maximal_isr()
        return self.advance_high_watermark(now_ms)

    @property
    def live_brokers(self) -> Collection[int]:
        """The brokers that are alive, as far as this node knows now."""
        return self._brokers.keys()

    def read_replica(self, near: Container[int], offset: int) -> int:
        """The node among those near a consumer that serves it an offset best, -1 if none does (KIP-392).

        It must be in sync: a consumer of one that lags would fall behind with it. The most caught up is the best, as
        Kafka's RackAwareReplicaSelector has it.
        """
        candidates = (
            (follower.log_end_offset, follower.last_caught_up_ms, replica)
            for replica, follower in self._followers.items()
            if replica in near
            and replica in self.isr
            and follower.log_start_offset <= offset <= follower.log_end_offset
        )
        return max(candidates, default=(0, 0, -1))[2]

    def low_watermark(self) -> int:
        """The least log start offset over the live replicas: below it no replica serves anything (DeleteRecords)."""
        offset = self.log_start_offset
        for replica, follower in self._followers.items():
            if replica in self._brokers:
                offset = min(offset, follower.log_start_offset)
        return offset

    # Following ------------------------------------------------------------------------------------------------------

    def follows(self, leader_epoch: int) -> bool:
        """Whether this node is a follower in this epoch still: what a leader said in another one is void. Of a log that
        is being looked through, nothing is changed.
        """
        follows = self.role is Role.FOLLOWER and self.leader_epoch == leader_epoch
        return follows and self.first_bad_offset != UNKNOWN_OFFSET

    def mirrors(self, leader_epoch: int) -> bool:
        """Whether this node leads a mirror in this epoch still, and follows its source: as a follower in all but
        what is committed, which is decided here."""
        return self.role is Role.LEADER and self.leader_epoch == leader_epoch and self.mirroring is Mirroring.FOLLOWING

    @property
    def is_counted_on(self) -> bool:
        """Whether the cluster takes this replica to have everything that is committed."""
        return self.node_id in self.isr or self.node_id in self.elr

    @property
    def fetch_offset(self) -> int:
        """From where on a follower needs what its leader has: its log's end, or where that is damaged."""
        return self.log.log_end_offset if self.first_bad_offset is None else self.first_bad_offset

    @property
    def fetched_epoch(self) -> int:
        """The leader epoch of the last record before `fetch_offset`."""
        if self.first_bad_offset is None:
            return self.log.latest_epoch
        return self.log.epochs.epoch_for_offset(self.first_bad_offset - 1)

    def suspect(self) -> None:
        """Its log may lack records: until it is looked through, nobody can say from where on."""
        self.first_bad_offset = UNKNOWN_OFFSET

    def take_as_whole(self) -> None:
        """No other replica has more than this log, whatever it lacks."""
        self.first_bad_offset = None

    def found_sound(self, offset: int) -> None:
        """A log that may lack records was looked through, and can be read up to there."""
        if self.first_bad_offset is not None:
            self.first_bad_offset = offset if offset < self.log.log_end_offset else None

    def append_as_follower(self, records: memoryview, leader_epoch: int, now_ms: int) -> None:
        """Append batches as the leader of an epoch, or the source, numbered them. Raises NotLeaderError or
        StorageError."""
        self._require_copying(leader_epoch)
        self.log.append_as_follower(records, None, now_ms=now_ms)

    def take_high_watermark(self, offset: int, leader_epoch: int) -> bool:
        """What a leader says is committed, as far as this log reaches; True if readers can see more."""
        self._require_follower(leader_epoch)
        self._leader_high_watermark = offset
        return self.log.advance_high_watermark(offset)

    @property
    def lag(self) -> int | None:
        """How many offsets its leader has committed that are not here; None while a follower has not heard of it."""
        if self.role is not Role.FOLLOWER:
            return 0
        if self._leader_high_watermark == UNKNOWN_OFFSET:
            return None
        return max(0, self._leader_high_watermark - self.fetch_offset)

    async def truncate_as_follower(self, offset: int, leader_epoch: int) -> None:
        """Drop everything at and beyond an offset. Raises NotLeaderError or StorageError.

        What was committed, as far as this node knows, is set aside first: its leader may have been chosen by metadata
        that is older than this log. Of a log that is kept, everything is set aside.

        An empty log forgets in which epoch its last record was. Where its leader does not know that epoch, nothing else
        could be cut, and the two would never agree.
        """
        log = self.log
        with self._truncating(leader_epoch):
            is_committed = offset < log.high_watermark and self.first_bad_offset is None
            if self.is_kept or (is_committed and self.role is Role.FOLLOWER):
                await self._set_aside(offset)
            if log.log_start_offset == log.log_end_offset == offset:
                await log.truncate_fully_and_start_at(offset)
            else:
                await log.truncate_to(offset)
            if self.first_bad_offset is not None and offset <= self.first_bad_offset:
                self.first_bad_offset = None

    async def start_anew_at(self, offset: int, leader_epoch: int) -> None:
        """Drop everything and begin at an offset, the leader's first. Raises NotLeaderError or StorageError."""
        with self._truncating(leader_epoch):
            if self.is_kept:
                await self._set_aside(self.log.log_start_offset)
            await self.log.truncate_fully_and_start_at(offset)
            self.first_bad_offset = None

    @property
    def is_kept(self) -> bool:
        """Whether the log may have more than the cluster knows: nothing of it is dropped that was not set aside."""
        return self._kept_logs is not None and self._kept_logs.get(self.topic_id, self.index) is not None

    async def _set_aside(self, offset: int) -> None:
        if self._kept_logs is not None:
            await self._kept_logs.set_aside(self.log, offset)

    async def settled(self) -> None:
        """Return when no truncation is under way; until the caller waits again, none begins."""
        while self._truncation is not None:
            await self._truncation.wait()

    @contextmanager
    def _truncating(self, leader_epoch: int) -> Iterator[None]:
        self._require_copying(leader_epoch)
        assert self._truncation is None, f"two truncations of {self!r}"
        self._truncation = trio.Event()
        try:
            yield
        finally:
            self._truncation.set()
            self._truncation = None

    def _require_copying(self, leader_epoch: int) -> None:
        if not self.mirrors(leader_epoch):
            self._require_follower(leader_epoch)

    def _require_follower(self, leader_epoch: int) -> None:
        if not self.follows(leader_epoch):
            raise NotLeaderError(f"{self!r} does not follow in epoch {leader_epoch}")

    # Reading --------------------------------------------------------------------------------------------------------

    def tier(self, remote: RemoteLog | None) -> None:
        """The topic is tiered from now on, and this is the part of the log in the object store; or it no longer is."""
        self.remote = remote

    @property
    def log_start_offset(self) -> int:
        """Where the log begins, on the disk or in the object store."""
        local_start = self.log.log_start_offset
        return local_start if self.remote is None else self.remote.log_start(local_start)

    @property
    def knows_log_start(self) -> bool:
        """Whether `log_start_offset` is certain: of a tiered log a new leader has to look at the object store first."""
        return self.remote is None or self.remote.is_known(self.leader_epoch)

    def require_remote(self, offset: int, *, from_follower: bool) -> None:
        """Raise unless an offset that is not on the disk may be in the object store, for a reader that can read there.

        Raises OffsetOutOfRangeError, or OffsetMovedToTieredStorageError for a follower.
        """
        log, remote = self.log, self.remote
        is_below = 0 <= offset < log.log_start_offset
        if remote is None or not is_below or (self.knows_log_start and offset < self.log_start_offset):
            raise OffsetOutOfRangeError(offset, self.log_start_offset, log.log_end_offset)
        if from_follower:
            from ottla.replica.tiered.errors import OffsetMovedToTieredStorageError

            raise OffsetMovedToTieredStorageError(
                f"{self.topic}-{self.index} has offset {offset} in the object store only"
            )

    def visible_end(self, isolation: Isolation) -> int:
        """The offset at which a reader has seen everything that it may see."""
        if isolation is _HIGH_WATERMARK:
            return self.log.high_watermark
        if isolation is Isolation.TXN_COMMITTED:
            return self.log.last_stable_offset
        # Not the assigned end: what a crash of the leader may still take back, no follower may have.
        return self.log.flushed_end_offset

    def diverging_epoch(self, offset: int, last_fetched_epoch: int) -> EpochEndOffset | None:
        """Where a follower's log parts from this one, None if it does not before `offset` (KIP-595).

        Raises OffsetOutOfRangeError if `offset` is below the log start, or on the disk and nothing is known of the
        epoch.
        """
        end = self.end_offset_for_epoch(last_fetched_epoch)
        log = self.log
        is_unknown = end.epoch == NO_EPOCH or end.end_offset == UNKNOWN_OFFSET
        if offset < log.log_start_offset and self.remote is not None:
            if is_unknown and (not self.knows_log_start or offset >= self.log_start_offset):
                # Nothing can be said before the object store is looked at. As in Kafka, what is there is read then,
                # whatever the reader has seen before it.
                return None
            is_below = offset < self.log_start_offset
        else:
            is_below = offset < log.log_start_offset
        if is_unknown or is_below:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, log.log_end_offset)
        if end.epoch < last_fetched_epoch or end.end_offset < offset:
            return end
        return None

    def epoch_at(self, offset: int) -> int:
        """The leader epoch in which the record at an offset was, or would now be, written; -1 if unknown."""
        if self.role is Role.LEADER and self.mirroring is Mirroring.NO and offset >= self.epoch_start_offset:
            return self.leader_epoch
        return self._epochs.epoch_for_offset(offset)

    @property
    def _epochs(self) -> LeaderEpochs:
        """The epochs of the whole log."""
        return self.log.epochs if self.remote is None else self.remote.epochs(self.log.epochs)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """The largest epoch up to this one and where it ended (KIP-101, KIP-279; Kafka's `LeaderEpochFileCache`).

        The leader's own epoch counts from the moment it leads, before anything was appended in it.
        """
        if epoch == NO_EPOCH or (self.role is Role.LEADER and epoch > self.leader_epoch):
            return EpochEndOffset(NO_EPOCH, UNKNOWN_OFFSET)
        epochs = self._epochs
        logged_epoch = epochs.latest_epoch
        is_logged = logged_epoch != NO_EPOCH and epoch < logged_epoch
        if self.role is not Role.LEADER or is_logged or logged_epoch == self.leader_epoch:
            return EpochEndOffset(*epochs.end_offset_for(epoch, self.log.log_end_offset))
        if self.mirroring is not Mirroring.NO:
            return EpochEndOffset(epoch if logged_epoch == NO_EPOCH else logged_epoch, self.log.log_end_offset)
        # Nothing was appended in the current epoch so far.
        if epoch == self.leader_epoch:
            return EpochEndOffset(epoch, self.log.log_end_offset)
        return EpochEndOffset(epoch if logged_epoch == NO_EPOCH else logged_epoch, self.epoch_start_offset)
