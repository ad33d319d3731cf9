"""Copies partitions from one broker of the source: it fetches as a consumer does and appends as a follower does.

What the source answers counts only while this node leads the mirror in the same epoch still; that is asked, without
waiting in between, before anything is done to a log. A source that is a Kafka cluster of its own does not count this
node as a replica, so nothing is read beyond its high watermark, and nothing that it may take back but by an unclean
election. Where that happened the logs part, and the mirror's is cut as a follower's is (KIP-595).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

import trio

from ottla.client.errors import BrokerError, ClientError
from ottla.client.offsets import EARLIEST, LATEST
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.kproto.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.runtime.pace import Pace
from ottla.server.replica.copying import append_copied
from ottla.server.replica.errors import NotLeaderError
from ottla.server.replica.fetch_roster import FetchRoster
from ottla.server.replica.leader_session import Key, LeaderSession, Position
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.kproto.schema import Request
    from ottla.server.mirror.copied import CopiedPartition
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.server.mirror.source import Source
    from ottla.server.replica.manager import ReplicaManager
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0
#: How long to wait for the source while something has to be done here as soon as it is written.
_WRITE_WAIT_MS: Final = 20
#: What the source says while another broker leads, or the topic is another one.
_STALE: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INCONSISTENT_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_SESSION_ERRORS: Final = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class _Connection(Protocol):
    async def call(self, request: Request, *, timeout_seconds: float | None = None) -> Any: ...


class SourceFetcher:
    """Copies what one broker of the source leads, over a connection of its own, which `run` owns.

    `set_partitions` changes what the next request asks: an answer that is under way is void for what is copied no more.
    `is_stale` is called when the source says that it is not as its metadata was.
    """

    def __init__(
        self,
        broker_id: int,
        source: Source,
        manager: ReplicaManager,
        config: BrokerConfig,
        clock: Clock,
        progress: MirrorProgress,
        is_stale: Callable[[], None],
    ) -> None:
        self.broker_id = broker_id
        self._source = source
        self._manager = manager
        self._config = config
        self._clock = clock
        self._progress = progress
        self._is_stale = is_stale
        self._copied: FetchRoster[CopiedPartition] = FetchRoster()
        #: Whose log begins later at the source than here, until enough of it is written.
        self._starting: dict[Key, CopiedPartition] = {}
        self._is_unreachable = False
        self._told: set[tuple[Key, int]] = set()
        self._pace = Pace()

    # What it copies -------------------------------------------------------------------------------------------------

    async def set_partitions(self, copied: Mapping[Key, CopiedPartition]) -> None:
        """Copy exactly these from now on; what is copied already goes on as it is."""
        pace = Pace()
        for key in self._copied:
            if key not in copied:
                self._copied.remove(key)
                self._starting.pop(key, None)
            await pace.rest()
        for key, one in copied.items():
            known = self._copied.get(key)
            if known is None or not known.is_same(one):
                self._copied.put(one)
                self._starting.pop(key, None)
            await pace.rest()

    def _let_rest(self, copied: CopiedPartition) -> None:
        self._copied.rest(copied, trio.current_time() + copied.fail())

    # Its life -------------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        pause_seconds = _FIRST_PAUSE_SECONDS
        while True:
            if not self._copied:
                await self._copied.wait()
                continue
            try:
                async with self._source.connect(self.broker_id) as connection:
                    session = LeaderSession(self._config.replica_fetch_max_bytes)
                    self._copied.begin()
                    while self._copied:
                        await self._fetch(connection, session)
                        pause_seconds = _FIRST_PAUSE_SECONDS
            except ClientError as error:
                self._tell_unreachable(error)
                self._is_stale()
                await trio.sleep(pause_seconds)
                pause_seconds = min(2 * pause_seconds, _MAX_PAUSE_SECONDS)

    async def _fetch(self, connection: _Connection, session: LeaderSession) -> None:
        self._copied.wake_rested()
        rest_ends = self._copied.rest_ends
        if self._copied.all_rest:
            await self._copied.wait(rest_ends)
            return
        await self._follow_starts()
        request = self._request(session, max(0.0, rest_ends - trio.current_time()))
        timeout_seconds = self._config.replica_socket_timeout_ms / 1000
        response: FetchResponse = await connection.call(request, timeout_seconds=timeout_seconds)
        self._tell_reached()
        if response.error_code:
            session.lost()
            if response.error_code not in _SESSION_ERRORS:
                raise BrokerError(response.error_code, what="a fetch from the source")
            return
        session.answered(response.session_id)
        await self._take(connection, session, response)

    def _request(self, session: LeaderSession, rest_seconds: float) -> FetchRequest:
        positions: dict[Key, Position] = {}
        for copied in self._copied.take_due():
            if copied.is_current:
                positions[copied.key] = copied.position
            else:
                self._let_rest(copied)  # what follows the metadata is about to tell more
        config = self._config
        most_ms = _WRITE_WAIT_MS if self._starting else config.replica_fetch_wait_max_ms
        topics, forgotten = session.ask(positions, self._copied.take_gone(positions))
        return FetchRequest(
            max_wait_ms=int(min(most_ms, rest_seconds * 1000)),
            min_bytes=1,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
        )

    # What the source answers ----------------------------------------------------------------------------------------

    async def _take(self, connection: _Connection, session: LeaderSession, response: FetchResponse) -> None:
        for topic in response.responses:
            for data in topic.partitions:
                key = (topic.topic_id, data.partition_index)
                copied, asked = self._copied.get(key), session.position(key)
                if copied is None or asked is None or not copied.is_current:
                    continue
                if asked.offset != copied.partition.log.log_end_offset:
                    self._copied.is_due(copied)
                    continue
                try:
                    await self._take_partition(connection, copied, data)
                except NotLeaderError:
                    self._let_rest(copied)  # it is not copied any more, or in another epoch
                except StorageError as error:
                    self._tell(copied, -1, f"cannot take what the source has of it: {error}")
                    self._let_rest(copied)

    async def _take_partition(self, connection: _Connection, copied: CopiedPartition, data: PartitionData) -> None:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if await self._find_start(connection, copied):
                self._copied.is_due(copied)
            else:
                self._let_rest(copied)
            return
        if data.error_code:
            if data.error_code in _STALE:
                self._is_stale()
            else:
                what = f"is not copied, because the source answers {ErrorCode.of(data.error_code).name}"
                self._tell(copied, data.error_code, what)
            self._let_rest(copied)
            return
        copied.failures = 0
        self._copied.is_due(copied)
        if data.diverging_epoch.end_offset >= 0:
            await self._cut_where_they_part(copied, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            return
        self._progress.heard(copied.partition, data.high_watermark)
        records = memoryview(data.records or b"")
        await append_copied(
            copied.partition,
            copied.leader_epoch,
            records,
            clock=self._clock,
            pace=self._pace,
            count=self._progress.count_copied,
        )
        copied.source_start = data.log_start_offset
        await self._follow_start(copied)

    async def _follow_starts(self) -> None:
        """As `_follow_start`, of all for which that had to wait."""
        for copied in list(self._starting.values()):
            try:
                await self._follow_start(copied)
            except StorageError as error:
                self._tell(copied, -1, f"cannot begin where the source does: {error}")
                self._let_rest(copied)  # it is asked for again, and the answer says where it begins

    async def _follow_start(self, copied: CopiedPartition) -> None:
        """What the source has deleted is deleted here, as soon as what comes after it is written."""
        log, offset = copied.partition.log, copied.source_start
        self._starting.pop(copied.key, None)
        if log.log_start_offset >= offset or not copied.is_current:
            return
        if offset > log.high_watermark:
            self._starting[copied.key] = copied
            return
        await log.advance_log_start_offset(offset)
        self._manager.follower_moved(copied.partition)

    async def _cut_where_they_part(self, copied: CopiedPartition, epoch: int, end_offset: int) -> None:
        log = copied.partition.log
        own_end = log.end_offset_for_epoch(epoch)[1]
        await self._cut(copied, min(end_offset, log.log_end_offset, own_end if own_end >= 0 else end_offset))

    async def _cut(self, copied: CopiedPartition, offset: int) -> None:
        partition = copied.partition
        end = partition.log.log_end_offset
        keys = {"topic": partition.topic, "partition": partition.index, "offset": offset}
        text = "%s is cut from %d to offset %d: the source has lost what it had there"
        logger.error(text, copied.name, end, offset, extra=keys)
        await partition.truncate_as_follower(offset, copied.leader_epoch)
        self._manager.follower_moved(partition)

    async def _find_start(self, connection: _Connection, copied: CopiedPartition) -> bool:
        """The source has nothing at the log's end: cut what it has not, or begin where it begins.

        False if the source does not say where its log begins and ends.
        """
        partition = copied.partition
        log = partition.log
        source_end = await self._offset(connection, copied, LATEST)
        if source_end is not None and source_end < log.log_end_offset:
            await self._cut(copied, source_end)
            return True
        source_start = None if source_end is None else await self._offset(connection, copied, EARLIEST)
        if source_start is None or source_start <= log.log_end_offset:
            if source_start is not None:
                what = f"waits: the source has {source_start} to {source_end}, and refuses {log.log_end_offset}"
                self._tell(copied, ErrorCode.OFFSET_OUT_OF_RANGE, what)
            return False
        keys = {"topic": partition.topic, "partition": partition.index, "offset": source_start}
        if log.log_end_offset > 0:
            text = "%s starts again at offset %d: the source deleted what follows %d before it was copied"
            logger.warning(text, copied.name, source_start, log.log_end_offset, extra=keys)
        await partition.start_anew_at(source_start, copied.leader_epoch)
        self._manager.follower_moved(partition)
        return True

    async def _offset(self, connection: _Connection, copied: CopiedPartition, which: int) -> int | None:
        asked = ListOffsetsPartition(
            partition_index=copied.partition.index, current_leader_epoch=copied.source_epoch, timestamp=which
        )
        topic = ListOffsetsTopic(name=copied.partition.topic, partitions=[asked])
        response = await connection.call(ListOffsetsRequest(replica_id=-1, topics=[topic]))
        answers = [answer for topic in response.topics for answer in topic.partitions]
        return None if len(answers) != 1 or answers[0].error_code else int(answers[0].offset)

    # What is told: a line when an outage begins, and one when it ends. ----------------------------------------------

    def _tell_unreachable(self, error: ClientError) -> None:
        if not self._is_unreachable:
            self._is_unreachable = True
            text = "broker %d of the mirror's source cannot be reached, %d partitions wait for it: %s"
            keys = {"leader": self.broker_id, "error": str(error)}
            logger.warning(text, self.broker_id, len(self._copied), error, extra=keys)

    def _tell_reached(self) -> None:
        if self._is_unreachable:
            self._is_unreachable = False
            text = "broker %d of the mirror's source can be reached again"
            logger.info(text, self.broker_id, extra={"leader": self.broker_id})

    def _tell(self, copied: CopiedPartition, code: int, what: str) -> None:
        if (copied.key, code) in self._told:
            return
        self._told.add((copied.key, code))
        keys = {"topic": copied.partition.topic, "partition": copied.partition.index, "error_code": code}
        logger.error("%s %s", copied.name, what, extra=keys)
