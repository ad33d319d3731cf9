"""Records that do not fit their schemas go to a dead-letter topic, if their topic names one.

The others of their batch are appended. They keep the offsets that they would have had, and the batch keeps its
sequences, as if compaction had removed what was taken out: idempotent and transactional producers, their retries and
every consumer go on as ever.

Letters come first: all in-sync replicas of their partition have them before anything is appended to the topic, and only
then is the producer answered, so no record of an acknowledged batch is lost. If the append fails after that, the
producer sends the batch again, and its letters are there twice. Letters belong to no transaction: those of an aborted
one stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.records import BatchBuilder, Record, iter_records, parse_batch_header, rebuild_batch
from ottla.replica.batch_writer import WriteDelayedError, WriteRefusedError
from ottla.storage.errors import RecordTooLargeError, RefusedRecordsError
from ottla.storage.log.append_types import CheckedBatch
from ottla.storage.state.producer_state import DuplicateBatch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.metadata.image import MetadataDelta, MetadataView, TopicImage
    from ottla.replica.append import Records
    from ottla.replica.batch_writer import BatchWriter
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.server.schemas.validation import Misfits, Rule
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock
    from ottla.storage.worker_threads import WorkerThreads

logger = logging.getLogger(__name__)

_PREFIX: Final = "__dlq.errors."
_MAX_REASON_LENGTH: Final = 1_000
_MAX_BATCH_BYTES: Final = 1_048_576
#: What a record takes beside its key, value and headers, and a header beside its name and value: at most.
_RECORD_BYTES: Final = 64
_HEADER_BYTES: Final = 10
_BATCH_BYTES: Final = 61
_MAX_CONCURRENT: Final = 2


class LettersDelayedError(RefusedRecordsError):
    """Letters cannot be written now: the producer sends the batch again (KAFKA_STORAGE_ERROR is retriable)."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class Sender(NamedTuple):
    """The producer of a batch, as far as its dead letters are concerned.

    `may_write` says whether it may write to the topic of a name, `is_verified` whether the coordinator was asked
    about its transaction.
    """

    may_write: Callable[[str], bool]
    required_acks: int
    timeout_ms: int
    is_verified: bool


class DeadLetterTopics:
    """Writes the records of produced batches that do not fit their schemas to their topics' dead-letter topics."""

    def __init__(
        self,
        *,
        config: BrokerConfig,
        clock: Clock,
        replica_manager: ReplicaManager,
        writer: BatchWriter,
        metadata: MetadataView,
        threads: WorkerThreads,
    ) -> None:
        self._config = config
        self._clock = clock
        self._replica_manager = replica_manager
        self._writer = writer
        self._metadata = metadata
        self._threads = threads
        # What is worked on at the same time takes memory: a batch as far as it inflates.
        self._limiter = trio.CapacityLimiter(_MAX_CONCURRENT)
        #: The topics of which a failure was logged that has not ended since.
        self._failing: set[str] = set()

    async def divert(
        self, rule: Rule, partition: Partition, records: Records, misfits: Misfits, sender: Sender
    ) -> Records:
        """Write what does not fit to the dead-letter topic; returns what is left of the batch, which may be empty.

        Raises InvalidRecordError where that will not be possible, LettersDelayedError where it may be later, and what
        the append to the partition itself would raise: then no letter was written.
        """
        topic = self._topic(rule, misfits, sender)
        partition.require_leader()
        partition.require_replicas(sender.required_acks)
        async with self._limiter:
            checked = await self._replica_manager.check_ahead(partition.log, records.view, self._clock.time_ms())
            left: CheckedBatch = await self._threads.offload(_without_misfits, checked, misfits)
            if not self._is_duplicate(partition, left, records, sender):
                await self._write(rule, topic, partition, misfits, sender)
        assert left.changed is not None
        return records._replace(view=left.changed, fragment=None, checked=left)

    def _topic(self, rule: Rule, misfits: Misfits, sender: Sender) -> TopicImage:
        name = rule.dead_letter_topic
        topic = self._metadata.image.topic(name)
        why = ""
        if not sender.may_write(name):
            why = "its producer may not write to it"
        elif topic is None:
            why = "it does not exist"
        elif name == rule.topic or self._validates(topic):
            why = "it has a schema validation of its own"
        elif topic.is_mirrored:
            why = "it is a mirror of another cluster's topic"
        if topic is None or why:
            self._log_failure(rule, why)
            raise misfits.refusal(f"; they cannot go to the dead-letter topic {name}: {why}")
        return topic

    def _validates(self, topic: TopicImage) -> bool:
        config = self._config.topic_config(topic.configs)
        return not config.ottla_key_schema_validation == config.ottla_value_schema_validation == "none"

    def _is_duplicate(self, partition: Partition, left: CheckedBatch, records: Records, sender: Sender) -> bool:
        """Whether the batch is in the log already, and so its letters are written. Raises if it is out of order."""
        producers = partition.log.producers
        if left.header.producer_id < 0 or producers is None:
            return False
        decision = producers.check(left.header, require_verification=sender.is_verified, guard=records.guard)
        return isinstance(decision, DuplicateBatch)

    async def _write(
        self, rule: Rule, topic: TopicImage, partition: Partition, misfits: Misfits, sender: Sender
    ) -> None:
        most_bytes = self._config.topic_config(topic.configs).max_message_bytes
        index = partition.index % len(topic.partitions)
        try:
            batches = await self._threads.offload(_letters, rule.topic, partition.index, misfits, most_bytes)
            for batch in batches:
                await self._writer.write(topic, index, batch, timeout_ms=sender.timeout_ms)
        except (RecordTooLargeError, WriteRefusedError) as error:
            self._log_failure(rule, error)
            raise misfits.refusal(f"; they cannot go to the dead-letter topic {topic.name}: {error}") from error
        except WriteDelayedError as error:
            self._log_failure(rule, error)
            raise LettersDelayedError(f"the dead-letter topic {topic.name} cannot be written to: {error}") from error
        self._failing.discard(rule.topic)
        partition.traffic.went_elsewhere(len(misfits.reasons))

    def _log_failure(self, rule: Rule, why: object) -> None:
        level = logging.DEBUG if rule.topic in self._failing else logging.WARNING
        self._failing.add(rule.topic)
        logger.log(
            level,
            "records of %s that do not fit their schemas cannot go to the dead-letter topic %s: %s",
            rule.topic,
            rule.dead_letter_topic,
            why,
        )

    async def follow(self, delta: MetadataDelta) -> None:
        """Forget deleted topics."""
        self._failing.difference_update(topic.name for topic in delta.deleted_topics)


def _without_misfits(checked: CheckedBatch, misfits: Misfits) -> CheckedBatch:
    """What is left of a batch that the log would append. Raises RecordTooLargeError if the topic does not take it."""
    records = misfits.records if checked.changed is None else iter_records(checked.changed, 0, checked.header)
    fitting = [record for index, record in enumerate(records) if index not in misfits.reasons]
    batch = rebuild_batch(checked.header, fitting)
    if len(batch) > checked.config.max_message_bytes:
        raise RecordTooLargeError(
            f"{len(batch)} bytes are left of a batch: the topic accepts {checked.config.max_message_bytes}"
        )
    view = memoryview(bytearray(batch))
    return CheckedBatch(parse_batch_header(view), view, checked.config)


def _letters(topic: str, partition: int, misfits: Misfits, most_bytes: int) -> list[bytes]:
    """The batches of letters about what does not fit, each as large as their topic takes at most.

    Raises RecordTooLargeError if it does not take one of them.
    """
    limit_bytes = min(_MAX_BATCH_BYTES, most_bytes)
    batches: list[bytes] = []
    builder = BatchBuilder()
    for index, reason in sorted(misfits.reasons.items()):
        letter = misfits.records[index]
        letter = letter._replace(headers=(*letter.headers, *_headers(topic, partition, misfits, index, reason)))
        size_bytes = _size_bytes(letter)
        if size_bytes + _BATCH_BYTES > most_bytes:
            raise RecordTooLargeError(f"a letter of {size_bytes} bytes: the topic accepts {most_bytes}")
        if builder.record_count and builder.size_bytes + size_bytes > limit_bytes:
            batches.append(builder.build())
            builder = BatchBuilder()
        builder.append(letter.key, letter.value, letter.timestamp_ms, letter.headers)
    batches.append(builder.build())
    return batches


def _headers(topic: str, partition: int, misfits: Misfits, index: int, reason: str) -> Iterator[tuple[str, bytes]]:
    """The headers of a dead letter, as share groups write them (KIP-1191). The record's offset is not known yet."""
    values: Mapping[str, object] = {"topic": topic, "partition": partition, "message": reason[:_MAX_REASON_LENGTH]}
    header = misfits.header
    if header.producer_id >= 0:
        sequence = (header.base_sequence + index) & 0x7FFF_FFFF
        values = {
            **values,
            "producer.id": header.producer_id,
            "producer.epoch": header.producer_epoch,
            "sequence": sequence,
        }
    for name, value in values.items():
        yield _PREFIX + name, str(value).encode("utf-8", "backslashreplace")


def _size_bytes(record: Record) -> int:
    size_bytes = _RECORD_BYTES + len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size_bytes += _HEADER_BYTES + len(name.encode()) + len(value or b"")
    return size_bytes
