"""Fetch sessions (KIP-227): a client names only the partitions that change, and is told only of those that changed.

A session keeps, for each of its partitions, what the client asks and what it was told last. The cache of sessions is
bounded (`max.incremental.fetch.session.cache.slots`); a full cache gives up a session as Kafka's does: one that was not
used for two minutes, or else one of fewer partitions than the newcomer that is two minutes old; a follower's outlasts
every consumer's. A client whose session is gone starts a new one, a client that gets none fetches in full each time.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.kproto.schema import ZERO_UUID
from ottla.server.replica.errors import InvalidSessionEpochError, SessionNotFoundError, SessionTopicIdError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.server.metadata.image import TopicImage
    from ottla.server.metadata.persistent_map import PersistentMap
    from ottla.server.replica.fetch import FetchPartition, FetchResult
    from ottla.storage.clock import Clock

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_AGE_MS: Final = 120_000

#: All sessions of a node have so many partitions together; each takes some hundred bytes.
MAX_PARTITIONS: Final = 200_000
# Sessions of so few are not counted.
_FEW: Final = 100
_MAX_INT32: Final = (1 << 31) - 1


#: How a request names a partition: by topic name below Fetch v13, by topic id from there on.
PartitionKey = tuple["str | UUID", int]


def take_result(partition: FetchPartition, result: FetchResult) -> bool:
    """Remember what is told now of a partition; True if the client has to be told because it is new to it."""
    if (
        result.records is None
        and result.high_watermark == partition.told_high_watermark
        and result.log_start_offset == partition.told_log_start_offset
        and result.error is None
        and result.diverging_epoch is None
    ):
        return False
    # After an error, whose watermark is -1, the partition is told again in any case.
    partition.told_high_watermark = result.high_watermark
    partition.told_log_start_offset = result.log_start_offset
    return True


def id_of(topics: PersistentMap[str, TopicImage], name: str) -> UUID:
    """The id of the topic that has this name now; all zero if there is none."""
    topic = topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id


class FetchSession:
    """One client's session. `epoch` is what its next request must carry."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_follower",
        "last_used_ms",
        "partitions",
        "session_id",
        "topics",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.is_follower = is_follower
        self.uses_topic_ids = uses_topic_ids
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.epoch = next_epoch(INITIAL_EPOCH)
        #: The topics among which the partitions' names were looked up.
        self.topics: PersistentMap[str, TopicImage] | None = None

    def resolve_names(self, topics: PersistentMap[str, TopicImage]) -> None:
        """Let a name mean the topic that has it now: it may have been created again since the session began."""
        if self.topics is topics:
            return
        self.topics = topics
        for partition in self.partitions.values():
            partition.topic_id = id_of(topics, str(partition.name))

    def update(self, changed: dict[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Take what an incremental request adds, changes and forgets."""
        for key, partition in changed.items():
            known = self.partitions.get(key)
            if known is not None:
                partition.told_high_watermark = known.told_high_watermark
                partition.told_log_start_offset = known.told_log_start_offset
                if partition.topic_id is known.topic_id:
                    partition.resolved = known.resolved
            self.partitions[key] = partition
        for key in forgotten:
            self.partitions.pop(key, None)

    def move_to_end(self, partition: FetchPartition) -> None:
        """What got data now is looked at last the next time, so that all get their share of the limits."""
        key = (partition.name, partition.partition)
        self.partitions[key] = self.partitions.pop(key)


def next_epoch(epoch: int) -> int:
    """The epoch that follows: it wraps to 1, since 0 begins a session, and what is final stays final."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_INT32 else epoch + 1


class FetchContext:
    """One fetch request in the light of its session: which partitions are read, and which are answered."""

    __slots__ = ("_create", "_expected_epoch", "_session", "partitions")

    def __init__(
        self,
        partitions: Sequence[FetchPartition],
        *,
        session: FetchSession | None = None,
        create: Callable[[], FetchSession | None] | None = None,
    ) -> None:
        #: What to read, in this order.
        self.partitions = partitions
        self._session = session
        self._expected_epoch = 0 if session is None else session.epoch
        self._create = create

    @property
    def is_incremental(self) -> bool:
        return self._session is not None

    def resolve_names(self, topics: PersistentMap[str, TopicImage]) -> None:
        """Let the names mean the topics that have them now; those in the request do already."""
        if self._session is not None:
            self._session.resolve_names(topics)

    def finish(self, results: Sequence[FetchResult]) -> tuple[int, Sequence[int]]:
        """The session id to answer with, and the positions in `partitions` of those to tell the client of.

        Raises InvalidSessionEpochError if another request of the session has overtaken this one.
        """
        session = self._session
        if session is None:
            return self._begin_session(results), range(len(self.partitions))
        if session.epoch != self._expected_epoch:
            raise InvalidSessionEpochError(f"session {session.session_id} went on to epoch {session.epoch}")
        told = []
        for position, (partition, result) in enumerate(zip(self.partitions, results, strict=True)):
            if take_result(partition, result):
                told.append(position)
                if result.records is not None:
                    session.move_to_end(partition)
        return session.session_id, told

    def _begin_session(self, results: Sequence[FetchResult]) -> int:
        session = None if self._create is None else self._create()
        if session is None:
            return NO_SESSION
        for partition, result in zip(self.partitions, results, strict=True):
            take_result(partition, result)
        return session.session_id


class FetchSessionCache:
    """Every session of a node, `slots` at most, least recently used first.

    Together they have MAX_PARTITIONS and a few: who would go beyond gets no session, and says everything each time.
    """

    __slots__ = ("_clock", "_random", "_sessions", "_slots", "evictions")

    def __init__(self, slots: int, clock: Clock, rng: random.Random | None = None) -> None:
        self._slots = slots
        self._clock = clock
        self._random = rng or random.Random()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """How many partitions all sessions hold together."""
        return sum(len(session.partitions) for session in self._sessions.values())

    def open(
        self,
        session_id: int,
        epoch: int,
        requested: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        is_follower: bool,
    ) -> FetchContext:
        """Take a request; raises FetchSessionError when it does not fit the session it names.

        A full request (epoch 0 or -1) ends the session it names; 0 asks for a new one. Any other epoch goes on with the
        session.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(session_id, None)

            def create() -> FetchSession | None:
                return self._create(requested, is_follower=is_follower, uses_topic_ids=uses_topic_ids)

            return FetchContext(list(requested.values()), create=create if epoch == INITIAL_EPOCH else None)
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidSessionEpochError(f"session {session_id} expects epoch {session.epoch}, not {epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise SessionTopicIdError(f"session {session_id} began with topic {'names' if uses_topic_ids else 'ids'}")
        session.update(requested, forgotten)
        if len(requested) > _FEW and self.partition_count > MAX_PARTITIONS:
            del self._sessions[session_id]
            raise SessionNotFoundError(f"session {session_id} has become too large")
        if not session.partitions:
            del self._sessions[session_id]
            return FetchContext(list(requested.values()))
        session.last_used_ms = self._clock.time_ms()
        self._sessions.move_to_end(session_id)
        session.epoch = next_epoch(session.epoch)
        return FetchContext(list(session.partitions.values()), session=session)

    def _create(
        self, partitions: dict[PartitionKey, FetchPartition], *, is_follower: bool, uses_topic_ids: bool
    ) -> FetchSession | None:
        now_ms = self._clock.time_ms()
        if len(partitions) > _FEW and self.partition_count + len(partitions) > MAX_PARTITIONS:
            return None
        if len(self._sessions) >= self._slots and not self._evict_for(len(partitions), now_ms, is_follower=is_follower):
            return None
        session_id = self._random.randint(1, _MAX_INT32)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _MAX_INT32)
        session = FetchSession(
            session_id, partitions, is_follower=is_follower, uses_topic_ids=uses_topic_ids, now_ms=now_ms
        )
        self._sessions[session_id] = session
        return session

    def _evict_for(self, size: int, now_ms: int, *, is_follower: bool) -> bool:
        """Make room for a session of `size` partitions; False if none is worth less (Kafka's `tryEvict`)."""
        if not self._sessions:
            return False
        victim = next(iter(self._sessions.values()))
        if now_ms - victim.last_used_ms <= EVICTION_AGE_MS:
            evictable = [
                session
                for session in self._sessions.values()
                if now_ms - session.created_ms > EVICTION_AGE_MS or (is_follower and not session.is_follower)
            ]
            if not evictable:
                return False
            victim = min(evictable, key=_value)
            if (is_follower, size) <= (victim.is_follower, len(victim.partitions)):
                return False
        del self._sessions[victim.session_id]
        self.evictions += 1
        return True


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.session_id
