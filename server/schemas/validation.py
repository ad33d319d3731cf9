"""Records are compared with their schemas before they are appended, where a topic's settings ask for it.

`ottla.value.schema.validation` and `ottla.key.schema.validation` say how: `id` asks that the value begins with the id
of a schema in the subject that the strategy names, as Confluent Server's `confluent.value.schema.validation` does;
`value` asks also that the bytes fit the schema. A null, which deletes a key, is let through.

A batch with a record that does not fit is refused whole, unless the topic names a dead-letter topic: see
`ottla.server.schemas.dead_letters`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.records import BatchHeader, crc_matches, iter_records, parse_batch_header
from ottla.schemas.errors import SchemaError, ValueMismatchError
from ottla.schemas.framing import HEADER_SIZE_BYTES, schema_id
from ottla.server.schemas.source import SchemasUnavailableError
from ottla.storage.errors import InvalidRecordError, RefusedRecordsError

if TYPE_CHECKING:
    from uuid import UUID

    from ottla.kproto.records import Record
    from ottla.metadata.image import MetadataDelta, TopicImage
    from ottla.schemas.codec import Codec
    from ottla.server.schemas.source import Codecs
    from ottla.settings.config import BrokerConfig

T = TypeVar("T")

VALUE_SETTING: Final = "ottla.value.schema.validation"
KEY_SETTING: Final = "ottla.key.schema.validation"
NONE: Final = "none"
BY_VALUE: Final = "value"
TOPIC_NAME: Final = "topic"
RECORD_NAME: Final = "record"

_MAX_NAMED: Final = 100
"""How many refused records of a batch are named."""
_MAX_SCHEMAS_OF_BATCH: Final = 20
_INLINE_BYTES: Final = 2_048
"""Batches beyond this are looked at in a worker thread."""
_MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""How far a batch may inflate."""
_THREADS: Final = 2


class SchemaLookupError(RefusedRecordsError):
    """A registry that does not answer: the producer tries again (KAFKA_STORAGE_ERROR is retriable)."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class Part(NamedTuple):
    """The requirements on a topic's keys or values."""

    is_key: bool
    compares_bytes: bool
    strategy: str

    def subject(self, topic: str, record_name: str) -> str:
        """The subject that has a record's schema, by the strategies of Confluent's serializers."""
        if self.strategy == TOPIC_NAME:
            return f"{topic}-{'key' if self.is_key else 'value'}"
        return record_name if self.strategy == RECORD_NAME else f"{topic}-{record_name}"


class Rule(NamedTuple):
    """A topic's requirements. Misfits go to `dead_letter_topic`; if it is "", their batch is refused."""

    topic: str
    parts: tuple[Part, ...]
    dead_letter_topic: str


class Misfits(NamedTuple):
    """The records of a batch that do not fit: why, by their indexes in the batch."""

    header: BatchHeader
    records: Sequence[Record]
    reasons: Mapping[int, str]

    def refusal(self, why: str = "") -> InvalidRecordError:
        """The error by which the batch is refused, in Kafka's words; `why` says what else is wrong."""
        wrong = sorted(self.reasons.items())
        return InvalidRecordError(
            f"One or more records have been rejected due to {len(wrong)} record errors in total, and only "
            f"showing the first three errors at most: {_listed(wrong[:3])}{why}",
            wrong[:_MAX_NAMED],
        )


class SchemaValidation:
    """Knows which topics ask for validation, and validates batches for them."""

    def __init__(self, codecs: Codecs, config: BrokerConfig) -> None:
        self._config = config
        #: The topics that ask for validation, by id. Most clusters have none.
        self.rules: dict[UUID, Rule] = {}
        self._codecs = codecs
        self._threads = trio.CapacityLimiter(_THREADS)

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow the topics' settings."""
        for topic in delta.deleted_topics:
            self.rules.pop(topic.topic_id, None)
        for topic in (*delta.created_topics, *delta.reconfigured_topics):
            rule = _rule(topic, self._config)
            if rule is not None:
                self.rules[topic.topic_id] = rule
            else:
                self.rules.pop(topic.topic_id, None)

    async def require(self, rule: Rule, batch: bytes | memoryview) -> None:
        """Raise InvalidRecordError, which names the records, unless all of a batch fits; or what `misfits` raises."""
        found = await self.misfits(rule, batch)
        if found is not None:
            raise found.refusal()

    async def misfits(self, rule: Rule, batch: bytes | memoryview) -> Misfits | None:
        """Compare a produced batch with its schemas; None if all of it fits.

        Raises InvalidRecordError if it cannot be read, or SchemaLookupError. Batches that the append refuses anyway are
        let through to it.
        """
        try:
            header = parse_batch_header(batch)
        except ProtocolError:
            return None
        if header.is_control or not crc_matches(batch, 0, header):
            return None
        records = await self._somewhere(len(batch), partial(_records, batch, header))
        reasons: dict[int, str] = {}
        for part in rule.parts:
            data = [record.key if part.is_key else record.value for record in records]
            codecs, problems = await self._schemas(rule.topic, part, data)
            wrong = await self._somewhere(len(batch), partial(_wrong, data, part, codecs, problems))
            for index, reason in wrong:
                reasons.setdefault(index, reason)
        return Misfits(header, records, reasons) if reasons else None

    async def _schemas(
        self, topic: str, part: Part, data: Sequence[bytes | None]
    ) -> tuple[dict[int, Codec], dict[int, str]]:
        """The codecs of the ids in some data that may be used there, and why the others may not."""
        first: dict[int, bytes] = {}
        for one in data:
            if one is not None and (number := schema_id(one)) is not None:
                first.setdefault(number, one)
        if len(first) > _MAX_SCHEMAS_OF_BATCH:
            raise InvalidRecordError(
                f"a batch has records of {len(first)} schemas; {_MAX_SCHEMAS_OF_BATCH} are allowed"
            )
        codecs: dict[int, Codec] = {}
        problems: dict[int, str] = {}
        for number, one in first.items():
            try:
                codec = await self._codecs.find(number)
                if codec is None:
                    problems[number] = f"the registry has no schema {number}"
                    continue
                subject = part.subject(topic, codec.record_name(one[HEADER_SIZE_BYTES:]))
                source = self._codecs.source
                if source is None or subject not in await source.subjects(number):
                    problems[number] = f"schema {number} is not in the subject {subject}"
                    continue
            except (SchemaError, ValueMismatchError) as error:
                problems[number] = f"schema {number}: {error}"
            except SchemasUnavailableError as error:
                raise SchemaLookupError(str(error)) from None
            else:
                codecs[number] = codec
        return codecs, problems

    async def _somewhere(self, size_bytes: int, work: partial[T]) -> T:
        """Do work on the loop if it is small, else in a worker thread."""
        if size_bytes <= _INLINE_BYTES:
            return work()
        return await trio.to_thread.run_sync(work, limiter=self._threads)


def _rule(topic: TopicImage, broker: BrokerConfig) -> Rule | None:
    if VALUE_SETTING not in topic.configs and KEY_SETTING not in topic.configs:
        return None
    config = broker.topic_config(topic.configs)
    parts = [
        Part(is_key, how == BY_VALUE, strategy)
        for is_key, how, strategy in (
            (True, config.ottla_key_schema_validation, config.ottla_key_subject_name_strategy),
            (False, config.ottla_value_schema_validation, config.ottla_value_subject_name_strategy),
        )
        if how != NONE
    ]
    return Rule(topic.name, tuple(parts), config.ottla_schema_validation_dead_letter_topic) if parts else None


def _records(batch: bytes | memoryview, header: BatchHeader) -> list[Record]:
    """The records of a batch. Raises InvalidRecordError: what cannot be read cannot be compared."""
    try:
        return list(iter_records(batch, 0, header, limit_bytes=_MAX_BATCH_BYTES))
    except ProtocolError as error:
        raise InvalidRecordError(str(error)) from None


def _wrong(
    data: Sequence[bytes | None], part: Part, codecs: Mapping[int, Codec], problems: Mapping[int, str]
) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for index, one in enumerate(data):
        if one is None:
            continue
        number = schema_id(one)
        if number is None:
            found.append((index, f"the {'key' if part.is_key else 'value'} does not begin with the id of a schema"))
        elif number in problems:
            found.append((index, problems[number]))
        elif part.compares_bytes:
            try:
                codecs[number].check(bytes(one[HEADER_SIZE_BYTES:]))
            except ValueMismatchError as error:
                found.append((index, f"schema {number}: {error}"))
    return found


def _listed(wrong: Sequence[tuple[int, str]]) -> str:
    return "[" + ", ".join(f"RecordError(batchIndex={index}, message='{reason}')" for index, reason in wrong) + "]"
