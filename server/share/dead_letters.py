"""Dead-letter queues of share groups (KIP-1191): where records go that nobody gets any more.

The leader of a share partition writes its dead letters, one round after the other, to one partition of the queue's
topic, whose leader may be another broker. Kafka's counterparts are ShareGroupDLQStateManager and
ShareGroupDLQRecordFetcher.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla.kproto.errors import ProtocolError
from ottla.kproto.records import Record, build_batch, iter_records, parse_batch_header
from ottla.metadata.errors import InvalidConfigError, InvalidTopicError
from ottla.metastore.errors import MetadataError, PolicyViolationError
from ottla.replica.batch_writer import BatchWriter, WriteDelayedError, WriteRefusedError
from ottla.replica.errors import ReplicaError
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.runtime.backoff import Backoff
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.coordinator.share.state import SharePartitionKey
    from ottla.kproto.records import BatchHeader
    from ottla.metadata.controller import Controller
    from ottla.metadata.image import TopicImage
    from ottla.replica.batch_writer import Peers
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.server.share.config import ShareConfigs
    from ottla.server.share.records import Dead
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.worker_threads import WorkerThreads

logger = logging.getLogger(__name__)

ATTEMPTS: Final = 5
FIRST_PAUSE_SECONDS: Final = 1.0
MAX_PAUSE_SECONDS: Final = 30.0
MAX_ROUND_RECORDS: Final = 500
MAX_ROUND_BYTES: Final = 1_048_576
"""Of the source's batches that are read for one round, and of the letters that are written in it."""

_MAX_COUNTED_GROUPS: Final = 10_000
_CHANNEL: Final = "dead letters"
_GROUP_ENABLE: Final = "errors.deadletterqueue.group.enable"
_ONLY_KAFKAS: Final = "__"
#: What a record takes beside its key, value and headers, and a batch beside its records.
_RECORD_BYTES: Final = 64
_BATCH_BYTES: Final = 61

Span = tuple[int, int]
"""The first and the last of some offsets."""


class _LaterError(Exception):
    """It may be possible later."""


class _NeverError(Exception):
    """It will not be possible however often it is tried."""


class Origin(Protocol):
    """A share partition, as far as its dead letters are concerned."""

    key: SharePartitionKey
    partition: Partition
    leader_epoch: int

    @property
    def is_active(self) -> bool:
        """Whether it is served here still."""
        ...


class DeadLetters(Protocol):
    """The writer of dead letters, as the leaders of share partitions use it."""

    #: By group.
    counters: dict[str, QueueCounters]

    async def write(self, share: Origin, dead: Sequence[Dead]) -> list[Span]:
        """Write some of it to the queue of the share partition's group; returns what is written, or given up."""
        ...


class QueueCounters:
    """Counters of one group's dead-letter queue since the start of this node."""

    __slots__ = ("failed_requests", "records", "requests")

    def __init__(self) -> None:
        self.records = 0
        self.requests = 0
        self.failed_requests = 0


class _Source(NamedTuple):
    """The origin of a record, as its letter names it."""

    group_id: str
    topic: str
    partition: int


class DeadLetterQueues:
    """Writes dead letters. It owns no task: a caller of `write` that is cancelled calls again with the same letters.

    A round that fails is tried again `ATTEMPTS` times in all, with pauses that grow; then all is given up that is
    there: in Kafka, too, a record is archived whether or not its letter was written.
    """

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        controller: Controller,
        peers: Peers,
        config: BrokerConfig,
        configs: ShareConfigs,
        clock: Clock,
        threads: WorkerThreads,
    ) -> None:
        self.counters: dict[str, QueueCounters] = {}
        self._replica_manager = replica_manager
        self._controller = controller
        self._writer = BatchWriter(replica_manager, peers, _CHANNEL)
        self._config = config
        self._configs = configs
        self._clock = clock
        self._threads = threads

    async def write(self, share: Origin, dead: Sequence[Dead]) -> list[Span]:
        """See `DeadLetters`. Returns nothing if the share partition has ended meanwhile."""
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                return await self._write_round(share, dead)
            except _NeverError as error:
                return self._given_up(share, dead, error)
            except _LaterError as error:
                if attempt == ATTEMPTS:
                    return self._given_up(share, dead, error)
                logger.debug("%r: dead letters are written later: %s", share, error)
            await backoff.wait()
            if not share.is_active:
                return []
        raise AssertionError("unreachable")

    def _given_up(self, share: Origin, dead: Sequence[Dead], error: Exception) -> list[Span]:
        lost = sum(each.last - each.first + 1 for each in dead)
        logger.warning(
            "%d records of %s-%d are archived for group %s and not in its dead-letter queue: %s",
            lost,
            share.partition.topic,
            share.partition.index,
            share.key.group_id,
            error,
        )
        return [(each.first, each.last) for each in dead]

    def counters_of(self, group_id: str) -> QueueCounters:
        """The counters of a group; beyond a limit, groups are counted together."""
        known = self.counters.get(group_id)
        if known is None:
            if len(self.counters) >= _MAX_COUNTED_GROUPS:
                group_id = ""
            known = self.counters.setdefault(group_id, QueueCounters())
        return known

    async def _write_round(self, share: Origin, dead: Sequence[Dead]) -> list[Span]:
        group_id = share.key.group_id
        own = self._configs.of_share_group(group_id)
        queue = await self._queue(group_id, own.dead_letter_topic)
        most_bytes = self._config.topic_config(queue.configs).max_message_bytes
        copied = await self._read(share, dead[0].first) if own.copies_dead_letters else None
        source = _Source(group_id, share.partition.topic, share.partition.index)
        batch, written = await self._threads.offload(
            build_round, source, dead, copied, most_bytes, self._clock.time_ms()
        )
        counters = self.counters_of(group_id)
        counters.requests += 1
        try:
            await self._produce(queue, share.partition.index % len(queue.partitions), batch)
        except (_LaterError, _NeverError):
            counters.failed_requests += 1
            raise
        counters.records += sum(last - first + 1 for first, last in written)
        spans: list[Span] = written
        return spans

    async def _queue(self, group_id: str, name: str) -> TopicImage:
        """The queue's topic, which is made if it may be."""
        if not name:
            raise _NeverError(f"Configured DLQ topic name in share group: {group_id} is empty.")
        if name.startswith(_ONLY_KAFKAS):
            raise _NeverError(
                f"Configured DLQ topic name in share group: {group_id} cannot start with __, topic: {name}."
            )
        prefix = self._config.errors_deadletterqueue_topic_name_prefix
        if not name.startswith(prefix):
            raise _NeverError(
                f"Configured DLQ topic name does not comply with the DLQ topic prefix in share group: {group_id}, "
                f"topic: {name}, prefix: {prefix}."
            )
        topic = self._controller.image.topic(name)
        if topic is None:
            return await self._create(group_id, name)
        if not self._config.topic_config(topic.configs).errors_deadletterqueue_group_enable:
            raise _NeverError(f"DLQ is not enabled on configured DLQ topic for share group: {group_id}, topic: {name}.")
        return topic

    async def _create(self, group_id: str, name: str) -> TopicImage:
        from ottla.metadata.changes.topic_changes import NewTopic

        if not self._config.errors_deadletterqueue_auto_create_topics_enable:
            raise _NeverError(
                f"DLQ topic does not exist and auto create is disabled on cluster for share group: {group_id}, "
                f"topic: {name}."
            )
        configs = {_GROUP_ENABLE: "true", "message.timestamp.type": "CreateTime"}
        try:
            return await self._controller.create_topic(NewTopic(name, configs=configs))
        except (InvalidTopicError, InvalidConfigError, PolicyViolationError) as error:
            raise _NeverError(f"topic {name} cannot be made: {error}") from error
        except MetadataError as error:
            # Also where too few brokers are alive for its replicas: they may come back.
            raise _LaterError(f"topic {name} cannot be made: {error}") from error

    async def _read(self, share: Origin, offset: int) -> bytes | None:
        """Batches of the source from an offset on, as many as are copied at a time; None if they cannot be read."""
        asked = FetchPartition(share.key.topic_id, share.key.partition, offset, MAX_ROUND_BYTES, share.leader_epoch)
        try:
            (fetched,) = await self._replica_manager.fetch(FetchParams(max_bytes=MAX_ROUND_BYTES), [asked])
        except (ReplicaError, StorageError) as error:
            logger.debug("%r: what dead letters are about cannot be read: %s", share, error)
            return None
        try:
            return None if fetched.records is None else fetched.records.to_bytes()
        finally:
            fetched.release()

    async def _produce(self, queue: TopicImage, index: int, batch: bytes) -> None:
        try:
            await self._writer.write(queue, index, batch)
        except WriteDelayedError as error:
            raise _LaterError(str(error)) from error
        except WriteRefusedError as error:
            raise _NeverError(str(error)) from error


def build_round(
    source: _Source, dead: Sequence[Dead], copied: bytes | None, most_bytes: int, now_ms: int
) -> tuple[bytes, list[Span]]:
    """The batch of one round, and which offsets it is about; in any thread.

    With `copied` batches of the source, only those that these reach to, unless they do not reach to any.
    """
    originals, end_offset = ({}, -1) if copied is None else _originals(copied, dead, most_bytes)
    if end_offset <= dead[0].first:
        end_offset = -1
    limit_bytes = min(MAX_ROUND_BYTES, most_bytes)
    letters: list[Record] = []
    written: list[Span] = []
    size_bytes = _BATCH_BYTES
    for offset, each in _offsets(dead):
        if len(letters) == MAX_ROUND_RECORDS or 0 <= end_offset <= offset:
            break
        letter = _letter(source, offset, each, now_ms)
        added = _size_bytes(letter)
        key, value = originals.get(offset, (None, None))
        copy_bytes = len(key or b"") + len(value or b"")
        if _BATCH_BYTES + added + copy_bytes <= most_bytes:
            letter = letter._replace(key=key, value=value)
            added += copy_bytes
        if letters and size_bytes + added > limit_bytes:
            break
        letters.append(letter)
        size_bytes += added
        if written and written[-1][1] + 1 == offset:
            written[-1] = (written[-1][0], offset)
        else:
            written.append((offset, offset))
    return build_batch(letters), written


def _offsets(dead: Sequence[Dead]) -> Iterator[tuple[int, Dead]]:
    for each in dead:
        for offset in range(each.first, each.last + 1):
            yield offset, each


def _letter(source: _Source, offset: int, dead: Dead, now_ms: int) -> Record:
    headers = (
        ("topic", source.topic),
        ("partition", str(source.partition)),
        ("offset", str(offset)),
        ("group", source.group_id),
        ("delivery.count", str(dead.delivery_count)),
        ("message", dead.cause.value),
    )
    named = tuple((f"__dlq.errors.{name}", value.encode()) for name, value in headers)
    return Record(timestamp_ms=now_ms, headers=named)


def _size_bytes(letter: Record) -> int:
    return _RECORD_BYTES + sum(len(name) + len(value or b"") for name, value in letter.headers)


def _originals(
    copied: bytes, dead: Sequence[Dead], most_bytes: int
) -> tuple[dict[int, tuple[bytes | None, bytes | None]], int]:
    """Keys and values of what is dead by offset, and the offset behind the last batch that was looked into.

    What inflates to more than `most_bytes` is left out, and what comes after as much as a round may have is not read.
    """
    found: dict[int, tuple[bytes | None, bytes | None]] = {}
    kept_bytes = 0
    end_offset = -1
    position = 0
    try:
        while position < len(copied) and kept_bytes < MAX_ROUND_BYTES:
            header = parse_batch_header(copied, position)
            if position + header.size_bytes > len(copied):
                break
            for offset, key, value in _dead_records(copied, position, header, dead, most_bytes):
                found[offset] = key, value
                kept_bytes += len(key or b"") + len(value or b"")
            position += header.size_bytes
            end_offset = header.next_offset
    except ProtocolError as error:
        logger.debug("what cannot be read is not copied: %s", error)
    return found, end_offset


def _dead_records(
    copied: bytes, position: int, header: BatchHeader, dead: Sequence[Dead], most_bytes: int
) -> list[tuple[int, bytes | None, bytes | None]]:
    """The dead records of a batch. Batches without any are not even decompressed."""
    spans = [each for each in dead if each.first < header.next_offset and each.last >= header.base_offset]
    if not spans or header.is_control:
        return []
    try:
        return [
            (record.offset, record.key, record.value)
            for record in iter_records(copied, position, header, limit_bytes=most_bytes)
            if any(each.first <= record.offset <= each.last for each in spans)
        ]
    except ProtocolError as error:
        logger.debug("records at offset %d cannot be copied: %s", header.base_offset, error)
        return []
