"""Copies partitions from one broker of the source: it fetches as a consumer does and appends as a follower does.

A source that is a Kafka cluster of its own does not count this node as a replica, so nothing is read beyond its high
watermark, and nothing that it may take back but by an unclean election. Where that happened the logs part, and the
mirror's is cut as a follower's is (KIP-595).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, Protocol

from ottla.client.errors import BrokerError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import PartitionData, ReplicaState
from ottla.replica.following.log_follower import PASSING, FetchTerms, LogFollower
from ottla.runtime.backoff import Backoff
from ottla.runtime.time_slice import TimeSlice
from ottla.server.mirror.copied import CopiedPartition
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from ottla.replica.following.leader_session import Key
    from ottla.replica.following.log_follower import LeaderConnection
    from ottla.replica.manager import ReplicaManager
    from ottla.server.mirror.progress import MirrorProgress
    from ottla.server.mirror.source import Source
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS: Final = 0.05
_MAX_PAUSE_SECONDS: Final = 2.0
#: How long to wait for the source while something has to be done here as soon as it is written.
_WRITE_WAIT_MS: Final = 20
_MOVED: Final = (*PASSING, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR)
"""Errors of the source after a change of leader or topic. The mirror learns of the change from the source's metadata; a
replica from its own cluster's."""


class SourceMetadata(Protocol):
    """What is known here of the source."""

    def look_again(self) -> None:
        """An error shows that it is out of date."""


class SourceFetcher(LogFollower[CopiedPartition]):
    """Copies what one broker of the source leads: `set_partitions` says what."""

    unreachable = "broker %d of the mirror's source cannot be reached, %d partitions wait for it: %s"
    reachable_again = "broker %d of the mirror's source can be reached again"

    def __init__(
        self,
        broker_id: int,
        source: Source,
        manager: ReplicaManager,
        config: BrokerConfig,
        clock: Clock,
        progress: MirrorProgress,
        source_metadata: SourceMetadata,
    ) -> None:
        super().__init__(broker_id, manager, config, clock, Backoff(_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS))
        self._source = source
        self._progress = progress
        self._source_metadata = source_metadata
        #: Partitions whose log begins later at the source than here, until enough of them is written.
        self._starting: dict[Key, CopiedPartition] = {}
        self._logged: set[tuple[Key, int]] = set()

    async def set_partitions(self, copied: Mapping[Key, CopiedPartition]) -> None:
        """Copy exactly these from now on; what is copied already goes on as it is."""
        time_slice = TimeSlice()
        for key in self._followed:
            if key not in copied:
                self._followed.remove(key)
                self._starting.pop(key, None)
            await time_slice.maybe_yield()
        for key, one in copied.items():
            known = self._followed.get(key)
            if known is None or not known.is_same(one):
                self._followed.put(one)
                self._starting.pop(key, None)
            await time_slice.maybe_yield()

    # What it asks for -----------------------------------------------------------------------------------------------

    def _open(self) -> AbstractAsyncContextManager[LeaderConnection]:
        return self._source.connect(self.leader_id)

    async def _before_fetch(self) -> None:
        """Follow the starts of logs for which that had to wait."""
        for copied in list(self._starting.values()):
            try:
                await self._follow_start(copied)
            except StorageError as error:
                self._broken(copied, error)
                self._back_off(copied)  # the next fetch's answer has the start offset

    def _terms(self, pause_seconds: float) -> FetchTerms:
        most_ms = _WRITE_WAIT_MS if self._starting else self._config.replica_fetch_wait_max_ms
        return FetchTerms(int(min(most_ms, pause_seconds * 1000)), 1, ReplicaState())

    async def _lost(self) -> None:
        self._source_metadata.look_again()

    # What the source answers ----------------------------------------------------------------------------------------

    async def _refused(self, code: int) -> None:
        raise BrokerError(code, what="a fetch from the source")

    def _partition_refused(self, followed: CopiedPartition, code: int) -> None:
        if code in _MOVED:
            self._source_metadata.look_again()
        else:
            what = f"is not copied, because the source answers {ErrorCode.of(code).name}"
            self._log_once(followed, code, what)

    async def _before_append(self, followed: CopiedPartition, data: PartitionData) -> bool:
        self._progress.heard(followed.partition, data.high_watermark)
        return True

    def _count(self, followed: CopiedPartition, size_bytes: int) -> None:
        self._progress.count_copied(size_bytes)

    async def _appended(self, followed: CopiedPartition, data: PartitionData) -> None:
        followed.source_begins_at(data.log_start_offset)
        await self._follow_start(followed)

    async def _follow_start(self, copied: CopiedPartition) -> None:
        """Delete the records that the source has deleted, as soon as the following ones are written."""
        log, offset = copied.partition.log, copied.source_start
        self._starting.pop(copied.key, None)
        if log.log_start_offset >= offset or not copied.is_current:
            return
        if offset > log.high_watermark:
            self._starting[copied.key] = copied
            return
        await log.advance_log_start_offset(offset)
        self._manager.follower_moved(copied.partition)

    # What is logged -------------------------------------------------------------------------------------------------

    def _log_cut(self, followed: CopiedPartition, offset: int) -> None:
        partition = followed.partition
        keys = {"topic": partition.topic, "partition": partition.index, "offset": offset}
        text = "%s is cut from %d to offset %d: the source has lost what it had there"
        logger.error(text, followed.name, partition.log.log_end_offset, offset, extra=keys)

    def _log_new_start(self, followed: CopiedPartition, offset: int) -> None:
        partition = followed.partition
        end = partition.log.log_end_offset
        keys = {"topic": partition.topic, "partition": partition.index, "offset": offset}
        if end > 0:
            text = "%s starts again at offset %d: the source deleted what follows %d before it was copied"
            logger.warning(text, followed.name, offset, end, extra=keys)

    def _out_of_range(self, followed: CopiedPartition, start: int, end: int) -> None:
        what = f"waits: the source has {start} to {end}, and refuses {followed.offset}"
        self._log_once(followed, ErrorCode.OFFSET_OUT_OF_RANGE, what)

    def _log_broken(self, followed: CopiedPartition, error: StorageError) -> None:
        keys = {"topic": followed.partition.topic, "partition": followed.partition.index, "error": str(error)}
        logger.error("%s cannot take what the source has of it: %s", followed.name, error, extra=keys)

    def _log_once(self, copied: CopiedPartition, code: int, what: str) -> None:
        if (copied.key, code) in self._logged:
            return
        self._logged.add((copied.key, code))
        keys = {"topic": copied.partition.topic, "partition": copied.partition.index, "error_code": code}
        logger.error("%s %s", copied.name, what, extra=keys)
