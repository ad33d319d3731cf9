"""Fetch sessions (KIP-227): a client names only the partitions that change, and is told only of those that changed.

A session keeps, for each of its partitions, what the client asks and what it was told last. The cache of sessions is
bounded (`max.incremental.fetch.session.cache.slots`); a full cache gives up a session as Kafka's does: one that was not
used for two minutes, or else one of fewer partitions than the newcomer that is two minutes old; a follower's outlasts
every consumer's. Those that were not used for two minutes also make room where all together have too many partitions.
A client whose session is gone starts a new one, a client that gets none fetches in full each time.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.kproto.schema import ZERO_UUID
from ottla.replica.errors import InvalidSessionEpochError, SessionNotFoundError, SessionTopicIdError
from ottla.replica.fetch import CONSUMER_REPLICA_ID

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.metadata.image import TopicImage
    from ottla.metadata.persistent_map import PersistentMap
    from ottla.replica.fetch import FetchPartition, FetchResult
    from ottla.storage.clock import Clock

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_AGE_MS: Final = 120_000
MAX_PARTITIONS_IN_SESSIONS: Final = 500_000

_MAX_INT32: Final = (1 << 31) - 1


#: How a request names a partition: by topic name below Fetch v13, by topic id from there on.
PartitionKey = tuple["str | UUID", int]


def is_new(partition: FetchPartition, result: FetchResult) -> bool:
    """Whether the client has to be told of a partition, because something of it is new to it."""
    return not (
        result.records is None
        and result.high_watermark == partition.told_high_watermark
        and result.log_start_offset == partition.told_log_start_offset
        and result.error is None
        and result.diverging_epoch is None
        and result.preferred_read_replica < 0
    )


def _is_in_sync(replica_id: int, result: FetchResult) -> bool:
    """Whether the client is a follower that is in sync with what is answered here."""
    return result.partition is not None and replica_id in result.partition.isr


def id_of(topics: PersistentMap[str, TopicImage], name: str) -> UUID:
    """The id of the topic that has this name now; all zero if there is none."""
    topic = topics.get(name)
    return ZERO_UUID if topic is None else topic.topic_id


class FetchSession:
    """One client's session. `epoch` is what its next request must carry."""

    __slots__ = (
        "created_ms",
        "epoch",
        "last_used_ms",
        "partitions",
        "replica_id",
        "session_id",
        "topics",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, FetchPartition],
        *,
        replica_id: int,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> None:
        self.session_id = session_id
        self.partitions = partitions
        self.replica_id = replica_id
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
            partition.means(id_of(topics, str(partition.name)))

    def update(self, changed: dict[PartitionKey, FetchPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Take what an incremental request adds, changes and forgets."""
        for key, partition in changed.items():
            known = self.partitions.get(key)
            if known is not None:
                partition.go_on_from(known, is_follower=self.is_follower)
            self.partitions[key] = partition
        for key in forgotten:
            self.partitions.pop(key, None)

    def served(self, partition: FetchPartition, result: FetchResult) -> None:
        """Partitions that got data now come last the next time, so that all get their share of the limits. Those that a
        follower is in sync with do not: producers wait for them, and it must not queue behind what a new replica has to
        copy first.
        """
        if _is_in_sync(self.replica_id, result):
            return
        key = (partition.name, partition.partition)
        self.partitions[key] = self.partitions.pop(key)

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0


def next_epoch(epoch: int) -> int:
    """The epoch that follows: it wraps to 1, since 0 begins a session, and what is final stays final."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_INT32 else epoch + 1


class FetchContext:
    """One fetch request in the light of its session: which partitions are read, and which are answered.

    `answer` only looks; what the client is told is noted, and a new session begins, with `keep`, which follows at once
    unless the client gets an empty answer instead, being beyond its quota.
    """

    __slots__ = ("_cache", "_expected_epoch", "_new_id", "_replica_id", "_session", "_uses_topic_ids", "partitions")

    def __init__(
        self,
        partitions: Sequence[FetchPartition],
        *,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        replica_id: int = CONSUMER_REPLICA_ID,
        uses_topic_ids: bool = False,
    ) -> None:
        """With a `session` the request goes on with it; with a `cache` it asks for a new one; else it is by itself."""
        #: What to read, in this order.
        self.partitions = partitions
        self._session = session
        self._expected_epoch = 0 if session is None else session.epoch
        self._cache = cache
        self._replica_id = replica_id
        self._uses_topic_ids = uses_topic_ids
        self._new_id = NO_SESSION

    @property
    def is_incremental(self) -> bool:
        return self._session is not None

    def resolve_names(self, topics: PersistentMap[str, TopicImage]) -> None:
        """Let the names mean the topics that have them now; those in the request do already."""
        if self._session is not None:
            self._session.resolve_names(topics)

    def answer(self, results: Sequence[FetchResult]) -> tuple[int, Sequence[int]]:
        """The session id to answer with, and the positions in `partitions` of those to tell the client of.

        Raises InvalidSessionEpochError if another request of the session has overtaken this one.
        """
        session = self._session
        if session is None:
            if self._cache is not None:
                self._new_id = self._cache.new_id(len(self.partitions), replica_id=self._replica_id)
            return self._new_id, range(len(self.partitions))
        if session.epoch != self._expected_epoch:
            raise InvalidSessionEpochError(f"session {session.session_id} went on to epoch {session.epoch}")
        return session.session_id, [
            position
            for position, (partition, result) in enumerate(zip(self.partitions, results, strict=True))
            if is_new(partition, result)
        ]

    def keep(self, results: Sequence[FetchResult], told: Sequence[int]) -> None:
        """The client gets what `answer` said; nothing has happened in between."""
        session = self._session
        if session is None:
            if self._new_id == NO_SESSION:
                return
            assert self._cache is not None
            partitions = self.partitions
            if self._replica_id >= 0:
                behind = [not _is_in_sync(self._replica_id, result) for result in results]
                partitions = [partitions[position] for position in sorted(range(len(behind)), key=behind.__getitem__)]
            self._cache.add(self._new_id, partitions, replica_id=self._replica_id, uses_topic_ids=self._uses_topic_ids)
        for position in told:
            self.partitions[position].told(results[position])
            if session is not None and results[position].records is not None:
                session.served(self.partitions[position], results[position])


class FetchSessionCache:
    """Every session of a node, `slots` at most, least recently used first.

    Together they have `max_partitions` at most: a request may name millions, and Kafka has no bound for it.
    """

    __slots__ = ("_clock", "_max_partitions", "_random", "_sessions", "_slots", "evictions", "partition_count")

    def __init__(
        self,
        slots: int,
        clock: Clock,
        rng: random.Random | None = None,
        *,
        max_partitions: int = MAX_PARTITIONS_IN_SESSIONS,
    ) -> None:
        self._slots = slots
        self._max_partitions = max_partitions
        self._clock = clock
        self._random = rng or random.Random()
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0
        #: How many partitions all sessions hold together.
        self.partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def open(
        self,
        session_id: int,
        epoch: int,
        requested: dict[PartitionKey, FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        uses_topic_ids: bool,
        replica_id: int,
    ) -> FetchContext:
        """Take a request; raises FetchSessionError when it does not fit the session it names.

        A full request (epoch 0 or -1) ends the session it names; 0 asks for a new one. Any other epoch goes on with the
        session.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            return FetchContext(
                list(requested.values()),
                cache=self if epoch == INITIAL_EPOCH else None,
                replica_id=replica_id,
                uses_topic_ids=uses_topic_ids,
            )
        session = self._sessions.get(session_id)
        if session is None:
            raise SessionNotFoundError(f"there is no fetch session {session_id}")
        if session.epoch != epoch:
            raise InvalidSessionEpochError(f"session {session_id} expects epoch {session.epoch}, not {epoch}")
        if session.uses_topic_ids != uses_topic_ids:
            raise SessionTopicIdError(f"session {session_id} began with topic {'names' if uses_topic_ids else 'ids'}")
        before = len(session.partitions)
        session.update(requested, forgotten)
        self.partition_count += len(session.partitions) - before
        if self.partition_count > self._max_partitions and len(session.partitions) > before:
            self._remove(session_id)
            raise SessionNotFoundError(f"session {session_id} has more partitions than there is room for")
        if not session.partitions:
            self._remove(session_id)
            return FetchContext(list(requested.values()))
        session.last_used_ms = self._clock.time_ms()
        self._sessions.move_to_end(session_id)
        session.epoch = next_epoch(session.epoch)
        return FetchContext(list(session.partitions.values()), session=session)

    def new_id(self, size: int, *, replica_id: int) -> int:
        """The id that a session of `size` partitions would get; NO_SESSION if there is no room for it.

        It is not begun by that: see `add`.
        """
        if self._victims(size, is_follower=replica_id >= 0) is None:
            return NO_SESSION
        session_id = self._random.randint(1, _MAX_INT32)
        while session_id in self._sessions:
            session_id = self._random.randint(1, _MAX_INT32)
        return session_id

    def add(
        self, session_id: int, partitions: Sequence[FetchPartition], *, replica_id: int, uses_topic_ids: bool
    ) -> None:
        """Begin the session whose id `new_id` gave just now; those that are worth least make room for it."""
        victims = self._victims(len(partitions), is_follower=replica_id >= 0)
        assert victims is not None, "new_id found that there is room"
        for victim in victims:
            self._remove(victim.session_id)
            self.evictions += 1
        self._sessions[session_id] = FetchSession(
            session_id,
            {(partition.name, partition.partition): partition for partition in partitions},
            replica_id=replica_id,
            uses_topic_ids=uses_topic_ids,
            now_ms=self._clock.time_ms(),
        )
        self.partition_count += len(partitions)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.partitions)

    def _victims(self, size: int, *, is_follower: bool) -> list[FetchSession] | None:
        """Who makes room for a session of `size` partitions, perhaps nobody; None if there is no room for it."""
        victims: list[FetchSession] = []
        if len(self._sessions) >= self._slots:
            victim = self._victim(size, is_follower=is_follower)
            if victim is None:
                return None
            victims.append(victim)
        surplus = self.partition_count + size - self._max_partitions - sum(len(it.partitions) for it in victims)
        now_ms = self._clock.time_ms()
        for session in self._sessions.values():
            if surplus <= 0 or now_ms - session.last_used_ms <= EVICTION_AGE_MS:
                break
            if session not in victims:
                victims.append(session)
                surplus -= len(session.partitions)
        return victims if surplus <= 0 else None

    def _victim(self, size: int, *, is_follower: bool) -> FetchSession | None:
        """Who makes room for a session of `size` partitions; None if none is worth less (Kafka's `tryEvict`)."""
        if not self._sessions:
            return None
        now_ms = self._clock.time_ms()
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.last_used_ms > EVICTION_AGE_MS:
            return oldest
        evictable = [
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > EVICTION_AGE_MS or (is_follower and not session.is_follower)
        ]
        if not evictable:
            return None
        victim = min(evictable, key=_value)
        return victim if (is_follower, size) > (victim.is_follower, len(victim.partitions)) else None


def _value(session: FetchSession) -> tuple[bool, int, int]:
    return session.is_follower, len(session.partitions), session.session_id
