"""Follows logs of another broker: fetches what it has and this node lacks (Kafka's AbstractFetcherThread).

A replica follows its leader (`replica_fetcher.py`), and a mirror its source (`server/mirror/fetcher.py`). Both keep one
connection and one fetch session, append what comes, cut their log where it and the other part (KIP-595), begin anew
where the other log begins later, and leave a partition alone for a while after a failure. They differ in what a request
says, in what else has to be done before and after an append, and in what is logged.

What the upstream answers counts only for partitions that are followed in the same epochs still; that is asked, without
waiting in between, before anything is done to a log.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchRequest, FetchResponse, PartitionData, ReplicaState
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.replica.errors import NotLeaderError
from ottla.replica.following.copying import append_copied
from ottla.replica.following.fetch_schedule import FetchSchedule
from ottla.replica.following.followed_log import FollowedLog
from ottla.replica.following.leader_session import Key, LeaderSession, Position
from ottla.replica.offset_lookup import OffsetSpec
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ottla.kproto.schema import Request
    from ottla.replica.manager import ReplicaManager
    from ottla.runtime.backoff import Backoff
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
_NOTHING_THERE: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE)
PASSING: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.OFFSET_NOT_AVAILABLE,
)
"""What a leader answers while it or this node does not know of the latest election, or of the topic, yet."""

F = TypeVar("F", bound=FollowedLog)


class LeaderConnection(Protocol):
    """A connection to a leader that is one fetcher's own."""

    async def call(self, request: Request, *, timeout_seconds: float | None = None) -> Any:
        """The answer; raises a ClientError."""


class FetchTerms(NamedTuple):
    """What a fetch asks beside its partitions."""

    max_wait_ms: int
    min_bytes: int
    replica_state: ReplicaState


class LogFollower(ABC, Generic[F]):
    """Follows one broker for some partitions, over a connection of its own, which `run` owns.

    What changes the partitions may be called at any time: it changes what the next request asks, and an answer that is
    under way is void for what is not followed any more.
    """

    replica_id: int = -1
    """What the upstream takes this node for: a consumer, or one of its replicas."""

    unreachable: ClassVar[str]
    """The log line when the upstream cannot be reached: its id, how many partitions wait, and the error."""
    reachable_again: ClassVar[str]
    """The log line when it can be reached again: its id."""

    def __init__(
        self, leader_id: int, manager: ReplicaManager, config: BrokerConfig, clock: Clock, backoff: Backoff
    ) -> None:
        """`backoff` is that of connections which cannot be made or are lost."""
        self.leader_id = leader_id
        self._manager = manager
        self._config = config
        self._clock = clock
        self._backoff = backoff
        self._followed: FetchSchedule[F] = FetchSchedule()
        self._is_unreachable = False
        self._time_slice = TimeSlice()

    def __len__(self) -> int:
        return len(self._followed)

    # What differs ---------------------------------------------------------------------------------------------------

    @abstractmethod
    def _open(self) -> AbstractAsyncContextManager[LeaderConnection]:
        """A connection to the upstream; raises a ClientError."""

    @abstractmethod
    def _terms(self, pause_seconds: float) -> FetchTerms:
        """What the next fetch asks for; after `pause_seconds` there is more to ask for."""

    def _hold_back(self) -> None:
        """Let those back off that are to be copied later."""

    async def _before_fetch(self) -> None:
        """What has to be done before it is decided what the next fetch asks for. Where it lets a partition back off,
        the upstream is told to forget it, so that it says everything when it is asked again."""

    async def _before_request(self, pending: list[F]) -> None:
        """What has to be done before a fetch may say where these end."""

    async def _call(self, connection: LeaderConnection, request: FetchRequest) -> FetchResponse | None:
        """The answer; None if it takes too long, so that another connection is better."""
        response: FetchResponse = await connection.call(
            request, timeout_seconds=self._config.replica_socket_timeout_ms / 1000
        )
        return response

    async def _lost(self) -> None:
        """The upstream cannot be reached."""

    @abstractmethod
    async def _refused(self, code: int) -> None:
        """A whole fetch was refused, for another reason than its session."""

    @abstractmethod
    def _partition_refused(self, followed: F, code: int) -> None:
        """A partition is refused."""

    @abstractmethod
    def _log_broken(self, followed: F, error: StorageError) -> None:
        """Log that a log cannot take what the upstream has."""

    @abstractmethod
    def _count(self, followed: F, size_bytes: int) -> None:
        """So much was appended."""

    async def _before_append(self, followed: F, data: PartitionData) -> bool:
        """Whether what has come may be appended now."""
        return True

    @abstractmethod
    async def _appended(self, followed: F, data: PartitionData) -> None:
        """What has come is in the log: take over what else the upstream says."""

    @abstractmethod
    def _log_cut(self, followed: F, offset: int) -> None:
        """Log that a log is about to be cut to an offset."""

    @abstractmethod
    def _log_new_start(self, followed: F, offset: int) -> None:
        """Log that a log is about to begin anew at an offset, where the upstream's begins."""

    def _out_of_range(self, followed: F, start: int, end: int) -> None:
        """The upstream has these offsets, the next one among them, and refuses it all the same."""

    def _all_accepted(self) -> None:
        """No partition of an answer was refused."""

    # Its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            if not self._followed:
                await self._followed.wait()
                continue
            try:
                async with self._open() as connection:
                    session = LeaderSession(self._config.replica_fetch_max_bytes)
                    self._followed.begin()
                    while self._followed and await self._fetch(connection, session):
                        self._backoff.reset()
            except ClientError as error:
                self._log_unreachable(error)
                await self._lost()
                await self._backoff.wait()

    def _back_off(self, followed: F) -> None:
        self._followed.back_off(followed, trio.current_time() + followed.backoff.fail())

    async def _fetch(self, connection: LeaderConnection, session: LeaderSession) -> bool:
        """Fetch once; False if the connection is of no more use, since its next answer takes too long."""
        self._followed.end_backoffs()
        self._hold_back()
        backoff_ends = self._followed.backoff_ends
        if self._followed.all_back_off:
            await self._followed.wait(backoff_ends)
            return True
        await self._before_fetch()
        pending = self._followed.take_pending()
        await self._before_request(pending)
        request = self._request(session, pending, max(0.0, backoff_ends - trio.current_time()))
        response = await self._call(connection, request)
        if response is None:
            return False
        self._log_reached()
        if response.error_code:
            session.lost()
            if response.error_code not in _SESSION_ERRORS:
                await self._refused(response.error_code)
            return True
        session.answered(response.session_id)
        await self._take(connection, session, response)
        return True

    def _request(self, session: LeaderSession, pending: list[F], pause_seconds: float) -> FetchRequest:
        positions: dict[Key, Position] = {}
        for followed in filter(self._followed.holds, pending):
            if followed.may_be_asked_for:
                positions[followed.key] = followed.position
            else:
                self._back_off(followed)  # it is offline, or the change of the metadata is about to arrive here
        terms = self._terms(pause_seconds)
        topics, forgotten = session.ask(positions, self._followed.take_forgotten(positions))
        return FetchRequest(
            replica_state=terms.replica_state,
            max_wait_ms=terms.max_wait_ms,
            min_bytes=terms.min_bytes,
            max_bytes=self._config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # What the upstream answers --------------------------------------------------------------------------------------

    async def _take(self, connection: LeaderConnection, session: LeaderSession, response: FetchResponse) -> None:
        has_errors = False
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                followed, asked = self._followed.get(key), session.position(key)
                if followed is None or asked is None or asked.leader_epoch != followed.upstream_epoch:
                    continue
                has_errors |= data.error_code != ErrorCode.NONE
                try:
                    await self._take_partition(connection, followed, asked.offset, data)
                except NotLeaderError:
                    self._back_off(followed)  # it is offline, or the change of the metadata is about to arrive here
                except StorageError as error:
                    if not self._followed.holds(followed):
                        continue  # its log was closed while this waited: it is moved away, or deleted
                    if followed.is_current:
                        self._broken(followed, error)
                    self._back_off(followed)
        if not has_errors:
            self._all_accepted()

    async def _take_partition(
        self, connection: LeaderConnection, followed: F, asked_offset: int, data: PartitionData
    ) -> None:
        if not followed.is_current:
            raise NotLeaderError(f"{followed.name} is not followed in epoch {followed.leader_epoch} any more")
        if followed.offset != asked_offset:
            self._followed.mark_pending(followed)
            return
        if data.error_code in _NOTHING_THERE:
            is_tiered = data.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
            if not await self._find_start(connection, followed, is_tiered=is_tiered):
                self._back_off(followed)
                return
        elif data.error_code:
            self._partition_refused(followed, data.error_code)
            self._back_off(followed)
            return
        elif data.diverging_epoch.end_offset >= 0:
            await self._truncate(followed, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
        elif await self._before_append(followed, data):
            await self._append(followed, data)
        followed.succeeded()
        self._followed.mark_pending(followed)

    async def _append(self, followed: F, data: PartitionData) -> None:
        def count(size_bytes: int) -> None:
            self._count(followed, size_bytes)

        records = memoryview(data.records or b"")
        await append_copied(
            followed.partition,
            followed.leader_epoch,
            records,
            clock=self._clock,
            time_slice=self._time_slice,
            count=count,
        )
        await self._appended(followed, data)

    async def _truncate(self, followed: F, epoch: int, end_offset: int) -> None:
        """Cut the log to where it and the upstream's part: at the latest where the epoch ended there or here."""
        log = followed.partition.log
        own_end = log.end_offset_for_epoch(epoch)[1]
        await self._cut(followed, min(end_offset, log.log_end_offset, own_end if own_end >= 0 else end_offset))

    async def _cut(self, followed: F, offset: int) -> None:
        self._log_cut(followed, offset)
        await followed.partition.truncate_as_follower(offset, followed.leader_epoch)
        await self._manager.settle_losses()
        self._manager.follower_moved(followed.partition)

    async def _find_start(self, connection: LeaderConnection, followed: F, *, is_tiered: bool) -> bool:
        """The upstream has nothing at the log's end: cut what it has not, or begin where it begins; if it has that in
        tiered storage, where it begins on its disk.

        False if nothing comes of it: it does not say where its log begins and ends, or this one ends between by now.
        """
        partition = followed.partition
        end = await self._offset(connection, followed, OffsetSpec.LATEST)
        if end is None:
            return False
        if end < followed.offset:
            await self._cut(followed, end)
            return True
        spec = OffsetSpec.EARLIEST_LOCAL if is_tiered else OffsetSpec.EARLIEST
        start = await self._offset(connection, followed, spec)
        if start is None:
            return False
        if start <= followed.offset:
            self._out_of_range(followed, start, end)
            return False
        self._log_new_start(followed, start)
        await partition.start_anew_at(start, followed.leader_epoch)
        await self._manager.settle_losses()
        self._manager.follower_moved(partition)
        return True

    async def _offset(self, connection: LeaderConnection, followed: F, spec: OffsetSpec) -> int | None:
        """What the upstream says of an offset; None if it says nothing, or if that does not count any more."""
        partition = followed.partition
        asked = ListOffsetsPartition(
            partition_index=partition.index, current_leader_epoch=followed.upstream_epoch, timestamp=spec
        )
        topic = ListOffsetsTopic(name=partition.topic, partitions=[asked])
        response = await connection.call(ListOffsetsRequest(replica_id=self.replica_id, topics=[topic]))
        answers = [answer for topic in response.topics for answer in topic.partitions]
        # Another fetcher may have gone on with it meanwhile, in the same epoch.
        is_void = len(answers) != 1 or answers[0].error_code or not self._followed.holds(followed)
        return None if is_void else int(answers[0].offset)

    # What is logged: a line when an outage begins, and one when it ends. --------------------------------------------

    def _broken(self, followed: F, error: StorageError) -> None:
        if followed.breaks():
            self._log_broken(followed, error)

    def _log_unreachable(self, error: ClientError) -> None:
        if not self._is_unreachable:
            self._is_unreachable = True
            keys = {"leader": self.leader_id, "error": str(error)}
            logger.warning(self.unreachable, self.leader_id, len(self._followed), error, extra=keys)

    def _log_reached(self) -> None:
        if self._is_unreachable:
            self._is_unreachable = False
            logger.info(self.reachable_again, self.leader_id, extra={"leader": self.leader_id})
