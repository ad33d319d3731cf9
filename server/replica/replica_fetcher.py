"""A follower of one leader: it fetches what the leader has and this node lacks (Kafka's ReplicaFetcherThread).

What a leader answers counts only for partitions that this node follows in the same epoch still; that is asked, without
waiting in between, before anything is done to a log. A fetch says what is *written* here, so the next one follows when
what the last one brought is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.runtime.pace import Pace
from ottla.server.replica.copying import append_copied
from ottla.server.replica.errors import NotLeaderError
from ottla.server.replica.fetch_roster import FetchRoster
from ottla.server.replica.leader_session import Key, LeaderSession, Position
from ottla.server.replica.offset_lookup import OffsetSpec
from ottla.server.replica.partition import Partition
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.kproto.schema import Request
    from ottla.server.replica.manager import ReplicaManager
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.01
#: After which a throttle that may have been lifted meanwhile is looked at again.
_MAX_HELD_BACK_SECONDS: Final = 0.5
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
#: What a leader says while it or this node does not know of the latest election, or of the topic, yet.
_PASSING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)


class LeaderConnection(Protocol):
    """A connection to a leader that is one fetcher's own."""

    async def call(self, request: Request, *, timeout_seconds: float | None = None) -> Any:
        """The answer; raises a ClientError."""


Connect = Callable[[int], AbstractAsyncContextManager[LeaderConnection]]
"""Opens a connection to a node, for whoever asks alone; raises a ClientError."""


class _Followed:
    """A partition in one leader epoch. After a failure it rests, longer each time."""

    __slots__ = ("failures", "is_broken", "key", "leader_epoch", "partition", "rests_until")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.key = (partition.topic_id, partition.index)
        self.leader_epoch = partition.leader_epoch
        self.failures = 0
        self.is_broken = False
        self.rests_until = 0.0

    @property
    def is_current(self) -> bool:
        """Whether this node is the follower still that this was made for."""
        return self.partition.follows(self.leader_epoch)

    @property
    def is_written(self) -> bool:
        """Whether all that the log has may be vouched for."""
        log = self.partition.log
        return log.flushed_end_offset == log.log_end_offset

    @property
    def position(self) -> Position:
        partition = self.partition
        log = partition.log
        assert self.is_written, f"a fetch would say that {partition!r} has what is not written"
        return Position(
            self.leader_epoch,
            partition.fetch_offset,
            partition.fetched_epoch,
            log.log_start_offset,
            log.high_watermark,
        )

    def fail(self, max_seconds: float) -> float:
        """Count a failure; returns the seconds to leave it for."""
        self.failures += 1
        return min(max_seconds, _FIRST_PAUSE_SECONDS * (1 << min(self.failures - 1, 20)))


class ReplicaFetcher:
    """Follows one leader for some partitions, over a connection of its own.

    `run` owns the connection. `follow` and `unfollow` may be called at any time: they change what the next request
    asks, and an answer that is under way is void for whoever is not followed any more.
    """

    def __init__(
        self,
        leader_id: int,
        manager: ReplicaManager,
        connect: Connect,
        config: BrokerConfig,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        """`broker_epoch` is that of this node's registration, -1 before there is one."""
        self.leader_id = leader_id
        self._manager = manager
        self._connect = connect
        self._config = config
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._followed: FetchRoster[_Followed] = FetchRoster()
        #: Of the wait for an answer, and when one was last broken off for new partitions.
        self._patience = trio.CancelScope()
        self._broken_off = -1.0
        self._is_unreachable = False
        self._told_codes: set[int] = set()
        self._pace = Pace()

    def __len__(self) -> int:
        return len(self._followed)

    # What it follows ------------------------------------------------------------------------------------------------

    def follow(self, partition: Partition) -> None:
        """Fetch a partition, in its present leader epoch, from now on. Goes on as it is where that is done already."""
        followed = _Followed(partition)
        known = self._followed.get(followed.key)
        if known is not None and known.partition is partition and known.is_current:
            return
        self._followed.put(followed)
        # The leader may hold the present request for a while, in which nothing can be asked over this connection.
        self._patience.deadline = max(trio.current_time(), self._broken_off + 0.2)

    def unfollow(self, key: Key) -> None:
        """Fetch a partition no longer."""
        self._followed.remove(key)

    def _let_rest(self, followed: _Followed) -> None:
        seconds = followed.fail(self._config.replica_fetch_backoff_ms / 1000)
        self._followed.rest(followed, trio.current_time() + seconds)

    def _hold_back(self) -> None:
        """While too much was copied of throttled replicas, those of them rest that are behind."""
        seconds = min(self._manager.follower_quota.throttle_seconds(), _MAX_HELD_BACK_SECONDS)
        if seconds:
            for followed in self._followed.due():
                if followed.partition.is_throttled_follower and followed.partition.lag != 0:
                    self._followed.rest(followed, trio.current_time() + seconds)

    # Its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            if not self._followed:
                await self._followed.wait()
                continue
            try:
                async with self._connect(self.leader_id) as connection:
                    session = LeaderSession(self._config.replica_fetch_max_bytes)
                    self._followed.begin()
                    while self._followed and await self._fetch(connection, session):
                        pause_seconds = _FIRST_PAUSE_SECONDS
            except ClientError as error:
                self._tell_unreachable(error)
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, self._config.replica_fetch_backoff_ms / 1000)

    async def _fetch(self, connection: LeaderConnection, session: LeaderSession) -> bool:
        """Fetch once; False if the connection is of no more use, since its next answer takes too long."""
        self._followed.wake_rested()
        self._hold_back()
        rest_ends = self._followed.rest_ends
        if self._followed.all_rest:
            await self._followed.wait(rest_ends)
            return True
        due = self._followed.take_due()
        await self._manager.wait_flushed([followed.partition for followed in due])
        request = self._request(session, due, max(0.0, rest_ends - trio.current_time()))
        with trio.CancelScope() as self._patience:
            timeout_seconds = self._config.replica_socket_timeout_ms / 1000
            response = await connection.call(request, timeout_seconds=timeout_seconds)
        if self._patience.cancelled_caught:
            self._broken_off = trio.current_time()
            return False
        self._tell_reached()
        if response.error_code:
            session.lost()
            if response.error_code not in _SESSION_ERRORS:
                self._tell_refused(response.error_code, None)
                await trio.sleep(self._config.replica_fetch_backoff_ms / 1000)
            return True
        session.answered(response.session_id)
        await self._take(connection, session, response)
        return True

    def _request(self, session: LeaderSession, due: list[_Followed], rest_seconds: float) -> FetchRequest:
        positions: dict[Key, Position] = {}
        for followed in filter(self._followed.holds, due):
            if followed.is_current and followed.is_written:
                positions[followed.key] = followed.position
            else:
                self._let_rest(followed)  # it is offline, or what follows the metadata is about to tell more
        config = self._config
        topics, forgotten = session.ask(positions, self._followed.take_gone(positions))
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._manager.node_id, replica_epoch=self._broker_epoch()),
            max_wait_ms=int(min(config.replica_fetch_wait_max_ms, rest_seconds * 1000)),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # What a leader answers ------------------------------------------------------------------------------------------

    async def _take(self, connection: LeaderConnection, session: LeaderSession, response: FetchResponse) -> None:
        has_errors = False
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed, asked = self._followed.get(key), session.position(key)
                if followed is None or asked is None or asked.leader_epoch != followed.leader_epoch:
                    continue
                has_errors |= data.error_code != ErrorCode.NONE
                try:
                    await self._take_partition(connection, followed, asked.offset, data)
                except NotLeaderError:
                    self._let_rest(followed)  # it is offline, or what follows the metadata is about to tell more
                except StorageError as error:
                    if self._followed.get(key) is not followed:
                        continue  # its log was closed while this waited: it is moved away, or deleted
                    if followed.is_current:
                        self._tell_broken(followed, error)
                    self._let_rest(followed)
        if not has_errors:
            self._told_codes.clear()

    async def _take_partition(
        self, connection: LeaderConnection, followed: _Followed, offset: int, data: PartitionData
    ) -> None:
        partition = followed.partition
        if data.error_code == ErrorCode.NONE:
            if data.diverging_epoch.end_offset >= 0:
                await self._truncate(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            elif partition.fetch_offset == offset and await self._cut_damage(followed, data):
                await self._append(followed, data)
        elif data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if not await self._find_start(connection, followed):
                self._let_rest(followed)
                return
        else:
            self._tell_refused(data.error_code, partition)
            self._let_rest(followed)
            return
        followed.failures = 0
        followed.is_broken = False
        self._followed.is_due(followed)

    async def _cut_damage(self, followed: _Followed, data: PartitionData) -> bool:
        """Cut a damaged log where its leader goes on; False as long as it is not known that the leader can.

        Until then what follows the damage stays: it may be all that there is of it.
        """
        offset = followed.partition.sound_until
        if offset is None:
            return True
        if not data.records and data.high_watermark > offset:
            return False
        await self._cut(followed, offset)
        return True

    async def _append(self, followed: _Followed, data: PartitionData) -> None:
        partition, epoch = followed.partition, followed.leader_epoch
        log = partition.log

        def count(size_bytes: int) -> None:
            self._manager.counters.replicated_bytes += size_bytes
            if partition.is_throttled_follower:
                self._manager.follower_quota.record(size_bytes)

        records = memoryview(data.records or b"")
        await append_copied(partition, epoch, records, clock=self._clock, pace=self._pace, count=count)
        moved = partition.take_high_watermark(data.high_watermark, epoch)
        if log.log_start_offset < data.log_start_offset <= log.high_watermark:
            await log.advance_log_start_offset(data.log_start_offset)
            moved = True
        if moved:
            self._manager.follower_moved(partition)

    async def _truncate(self, followed: _Followed, epoch: int, end_offset: int) -> None:
        """Cut the log to where it and the leader's part: at the latest where the leader's epoch ended there or here."""
        partition = followed.partition
        log = partition.log
        own_end = log.end_offset_for_epoch(epoch)[1]
        offset = min(end_offset, log.log_end_offset, own_end if own_end >= 0 else end_offset)
        await self._cut(followed, offset)

    async def _cut(self, followed: _Followed, offset: int) -> None:
        partition = followed.partition
        log = partition.log
        name = f"{partition.topic}-{partition.index}"
        keys = {"topic": partition.topic, "partition": partition.index, "offset": offset}
        if partition.sound_until == offset:
            text = "%s is cut from %d to offset %d, where it is damaged: node %d has what follows"
            logger.warning(text, name, log.log_end_offset, offset, self.leader_id, extra=keys)
        elif offset < log.high_watermark:
            text = "%s is cut to offset %d, below its high watermark %d: its leader lacks what was committed here"
            logger.error(text, name, offset, log.high_watermark, extra=keys)
        else:
            logger.info(
                "%s is cut from %d to offset %d, where its leader's log ends",
                name,
                log.log_end_offset,
                offset,
                extra=keys,
            )
        await partition.truncate_as_follower(offset, followed.leader_epoch)
        await self._manager.settle_losses()
        self._manager.follower_moved(partition)

    async def _find_start(self, connection: LeaderConnection, followed: _Followed) -> bool:
        """The leader has nothing at the log's end: cut what it has not, or begin where it begins.

        False if nothing comes of it: the leader does not say where its log begins and ends, or it lies between by now.
        """
        partition = followed.partition
        leader_end = await self._offset(connection, followed, OffsetSpec.LATEST)
        if leader_end is None:
            return False
        if leader_end < partition.fetch_offset:
            await self._cut(followed, leader_end)
            return True
        leader_start = await self._offset(connection, followed, OffsetSpec.EARLIEST)
        if leader_start is None:
            return False
        if leader_start <= partition.fetch_offset:
            return False
        name = f"{partition.topic}-{partition.index}"
        keys = {"topic": partition.topic, "partition": partition.index, "offset": leader_start}
        logger.info("%s starts again at offset %d, where its leader's log starts", name, leader_start, extra=keys)
        await partition.start_anew_at(leader_start, followed.leader_epoch)
        await self._manager.settle_losses()
        self._manager.follower_moved(partition)
        return True

    async def _offset(self, connection: LeaderConnection, followed: _Followed, spec: OffsetSpec) -> int | None:
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=followed.leader_epoch, timestamp=spec
        )
        request = ListOffsetsRequest(
            replica_id=self._manager.node_id, topics=[ListOffsetsTopic(name=partition.topic, partitions=[asked])]
        )
        response = await connection.call(request)
        answer = response.topics[0].partitions[0]
        # Another fetcher may have gone on with it meanwhile, in the same epoch.
        is_void = answer.error_code or not self._followed.holds(followed)
        return None if is_void else int(answer.offset)

    # What is told: a line when an outage begins, and one when it ends. ----------------------------------------------

    def _tell_unreachable(self, error: ClientError) -> None:
        if not self._is_unreachable:
            self._is_unreachable = True
            text = "node %d cannot be followed in %d partitions: %s"
            keys = {"leader": self.leader_id, "error": str(error)}
            logger.warning(text, self.leader_id, len(self._followed), error, extra=keys)

    def _tell_reached(self) -> None:
        if self._is_unreachable:
            self._is_unreachable = False
            logger.info("node %d can be followed again", self.leader_id, extra={"leader": self.leader_id})

    def _tell_refused(self, code: int, partition: Partition | None) -> None:
        if code in _PASSING or code in self._told_codes:
            return
        self._told_codes.add(code)
        what = "a fetch" if partition is None else f"{partition.topic}-{partition.index}"
        keys = {"leader": self.leader_id, "error_code": code}
        logger.warning("node %d answers %s with %s", self.leader_id, what, ErrorCode.of(code).name, extra=keys)

    def _tell_broken(self, followed: _Followed, error: StorageError) -> None:
        if followed.is_broken:
            return  # it was said, and nothing came in since
        followed.is_broken = True
        partition = followed.partition
        keys = {"topic": partition.topic, "partition": partition.index, "leader": self.leader_id, "error": str(error)}
        name = f"{partition.topic}-{partition.index}"
        logger.error("%s cannot take what node %d has of it: %s", name, self.leader_id, error, extra=keys)
