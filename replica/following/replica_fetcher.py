"""A follower of one leader: it fetches what the leader has and this node lacks (Kafka's ReplicaFetcherThread).

A fetch says what is *written* here, so the next one follows when what the last one brought is.
"""

from __future__ import annotations

import logging
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Final, Protocol

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.replica.following.followed_log import FollowedLog
from ottla.replica.following.leader_session import Key, Position
from ottla.replica.following.log_follower import PASSING, FetchTerms, LeaderConnection, LogFollower
from ottla.runtime.backoff import Backoff

if TYPE_CHECKING:
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.errors import StorageError

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.01
#: After which a throttle that may have been lifted meanwhile is looked at again.
_MAX_HELD_BACK_SECONDS: Final = 0.5


class Peers(Protocol):
    """The brokers of the cluster, as a follower reaches them."""

    def connect(self, node_id: int) -> AbstractAsyncContextManager[LeaderConnection]:
        """A connection to a node, for the caller alone; raises a ClientError."""

    @property
    def own_epoch(self) -> int:
        """The epoch of this node's registration, -1 before there is one."""


class FollowedReplica(FollowedLog):
    """A replica that follows its leader in one epoch."""

    __slots__ = ()

    @property
    def key(self) -> Key:
        return self.partition.topic_id, self.partition.index

    @property
    def upstream_epoch(self) -> int:
        return self.leader_epoch

    @property
    def is_current(self) -> bool:
        return self.partition.follows(self.leader_epoch)

    @property
    def may_be_asked_for(self) -> bool:
        return self.is_current and self._is_written

    @property
    def _is_written(self) -> bool:
        """Whether all that the log has may be vouched for."""
        log = self.partition.log
        return log.flushed_end_offset == log.log_end_offset

    @property
    def offset(self) -> int:
        return self.partition.fetch_offset

    @property
    def position(self) -> Position:
        partition = self.partition
        log = partition.log
        assert self._is_written, f"a fetch would say that {partition!r} has what is not written"
        return Position(
            self.leader_epoch,
            partition.fetch_offset,
            partition.fetched_epoch,
            log.log_start_offset,
            log.high_watermark,
        )


class ReplicaFetcher(LogFollower[FollowedReplica]):
    """Follows one leader for some partitions: `follow` and `unfollow` say for which."""

    unreachable = "node %d cannot be followed in %d partitions: %s"
    reachable_again = "node %d can be followed again"

    def __init__(
        self,
        leader_id: int,
        manager: ReplicaManager,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
    ) -> None:
        super().__init__(leader_id, manager, config, clock, self._new_backoff(config))
        self.replica_id = manager.node_id
        self._peers = peers
        #: Of the wait for an answer, and when one was last broken off for new partitions.
        self._patience = trio.CancelScope()
        self._broken_off = -1.0
        self._logged_codes: set[int] = set()

    @staticmethod
    def _new_backoff(config: BrokerConfig) -> Backoff:
        return Backoff(_FIRST_PAUSE_SECONDS, config.replica_fetch_backoff_ms / 1000)

    # What it follows ------------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition, in its present leader epoch, from now on. Goes on as it is where that is done already."""
        followed = FollowedReplica(partition, self._new_backoff(self._config))
        known = self._followed.get(followed.key)
        if known is not None and known.partition is partition and known.is_current:
            return
        self._followed.put(followed)
        # The leader may hold the present request for a while, in which nothing can be asked over this connection.
        self._patience.deadline = max(trio.current_time(), self._broken_off + 0.2)

    def unfollow(self, key: Key) -> None:
        """Fetch a partition no longer."""
        self._followed.remove(key)

    # What it asks for -----------------------------------------------------------------------------------------------

    def _open(self) -> AbstractAsyncContextManager[LeaderConnection]:
        return self._peers.connect(self.leader_id)

    def _hold_back(self) -> None:
        """While too much was copied of throttled replicas, those of them that are behind back off."""
        seconds = min(self._manager.follower_quota.throttle_seconds(), _MAX_HELD_BACK_SECONDS)
        if seconds:
            for followed in self._followed.pending():
                if followed.partition.is_throttled_follower and followed.partition.lag != 0:
                    self._followed.back_off(followed, trio.current_time() + seconds)

    async def _before_request(self, pending: list[FollowedReplica]) -> None:
        await self._manager.wait_flushed([followed.partition for followed in pending])

    def _terms(self, pause_seconds: float) -> FetchTerms:
        return FetchTerms(
            int(min(self._config.replica_fetch_wait_max_ms, pause_seconds * 1000)),
            self._config.replica_fetch_min_bytes,
            ReplicaState(replica_id=self.replica_id, replica_epoch=self._peers.own_epoch),
        )

    async def _call(self, connection: LeaderConnection, request: FetchRequest) -> FetchResponse | None:
        with trio.CancelScope() as self._patience:
            return await super()._call(connection, request)
        self._broken_off = trio.current_time()
        return None

    # What a leader answers ------------------------------------------------------------------------------------------

    async def _refused(self, code: int) -> None:
        self._log_refused(code, "a fetch")
        await trio.sleep(self._config.replica_fetch_backoff_ms / 1000)

    def _partition_refused(self, followed: FollowedReplica, code: int) -> None:
        self._log_refused(code, followed.name)

    def _all_accepted(self) -> None:
        self._logged_codes.clear()

    async def _before_append(self, followed: FollowedReplica, data: PartitionData) -> bool:
        """Cut a damaged log where its leader goes on; False as long as it is not known that the leader can.

        Until then what follows the damage stays: it may be all that there is of it.
        """
        offset = followed.partition.first_bad_offset
        if offset is None:
            return True
        if not data.records and data.high_watermark > offset:
            return False
        await self._cut(followed, offset)
        return True

    def _count(self, followed: FollowedReplica, size_bytes: int) -> None:
        self._manager.counters.replicated(size_bytes)
        if followed.partition.is_throttled_follower:
            self._manager.follower_quota.record(size_bytes)

    async def _appended(self, followed: FollowedReplica, data: PartitionData) -> None:
        partition = followed.partition
        log = partition.log
        moved = partition.take_high_watermark(data.high_watermark, followed.leader_epoch)
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            await log.advance_log_start_offset(data.log_start_offset)
            moved = True
        if moved:
            self._manager.follower_moved(partition)

    # What is logged -------------------------------------------------------------------------------------------------

    def _log_cut(self, followed: FollowedReplica, offset: int) -> None:
        partition, name = followed.partition, followed.name
        log = partition.log
        keys = {"topic": partition.topic, "partition": partition.index, "offset": offset}
        if partition.first_bad_offset == offset:
            text = "%s is cut from %d to offset %d, where it is damaged: node %d has what follows"
            logger.warning(text, name, log.log_end_offset, offset, self.leader_id, extra=keys)
        elif offset < log.high_watermark:
            text = "%s is cut to offset %d, below its high watermark %d: its leader lacks what was committed here"
            logger.error(text, name, offset, log.high_watermark, extra=keys)
        else:
            text = "%s is cut from %d to offset %d, where its leader's log ends"
            logger.info(text, name, log.log_end_offset, offset, extra=keys)

    def _log_new_start(self, followed: FollowedReplica, offset: int) -> None:
        keys = {"topic": followed.partition.topic, "partition": followed.partition.index, "offset": offset}
        logger.info("%s starts again at offset %d, where its leader's log starts", followed.name, offset, extra=keys)

    def _log_refused(self, code: int, what: str) -> None:
        if code in PASSING or code in self._logged_codes:
            return
        self._logged_codes.add(code)
        keys = {"leader": self.leader_id, "error_code": code}
        logger.warning("node %d answers %s with %s", self.leader_id, what, ErrorCode.of(code).name, extra=keys)

    def _log_broken(self, followed: FollowedReplica, error: StorageError) -> None:
        partition = followed.partition
        keys = {"topic": partition.topic, "partition": partition.index, "leader": self.leader_id, "error": str(error)}
        logger.error("%s cannot take what node %d has of it: %s", followed.name, self.leader_id, error, extra=keys)
