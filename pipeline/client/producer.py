"""Sending records from an executor: in batches, acknowledged by all in-sync replicas, none twice by a retry."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable
from typing import Final, NamedTuple

from ottla.client.errors import ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.init_producer_id import InitProducerIdRequest
from ottla.kproto.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import BatchBuilder, Compression
from ottla.pipeline.client.answers import check
from ottla.pipeline.client.cluster import TOPICS_BY_NAME, Cluster
from ottla.pipeline.errors import TopicError

__all__ = ["DEFAULT_BATCH_BYTES", "OutgoingRecord", "Producer"]

DEFAULT_BATCH_BYTES: Final = 900_000
_BATCH_RECORDS: Final = 10_000
_ACKS_ALL: Final = -1
# What a record takes at most beside its key, its value and its headers; and a header beside its own two.
_RECORD_OVERHEAD_BYTES: Final = 36
_HEADER_OVERHEAD_BYTES: Final = 10
_MAX_UTF8_BYTES: Final = 4
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_MAX_SEQUENCE: Final = (1 << 31) - 1


class OutgoingRecord(NamedTuple):
    """A record to send. Without a partition its key says where it goes, without a key it takes the next in turn."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class _Batch:
    """Records for one partition, encoded; and as they are, should the broker want them in smaller batches."""

    def __init__(self, builder: BatchBuilder) -> None:
        self.builder = builder
        self.records: list[OutgoingRecord] = []

    def append(self, record: OutgoingRecord) -> None:
        assert record.timestamp_ms is not None
        self.builder.append(record.key, record.value, record.timestamp_ms, record.headers)
        self.records.append(record)


class Producer:
    """Sends records to one topic, in batches of `batch_bytes` at most before compression, or of one record.

    Without `batch_bytes` they are as large as the topic's `max.message.bytes` allows, up to DEFAULT_BATCH_BYTES. One
    that the broker finds too large all the same goes in halves.

    It has a producer id, so that a batch which is sent again after a lost answer is stored once. Every call ends within
    the settings' `default_api_timeout_ms`, with BrokerUnavailableError if nobody answered and TopicError if the
    topic is not there or refuses a batch. Not for several threads at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        compression: Compression = Compression.LZ4,
        *,
        batch_bytes: int | None = None,
    ) -> None:
        self._cluster = cluster
        self._topic = topic
        self._compression = compression
        partitions = cluster.partitions([topic]).get(topic)
        if not partitions:
            raise TopicError(
                f"There is no topic {topic!r} at {cluster.settings.servers}: create it, or check its name."
            )
        self._batch_bytes = _topic_limit(cluster, topic) if batch_bytes is None else batch_bytes
        self._partitions = partitions
        self._turns = itertools.cycle(partitions)
        self._id, self._epoch = cluster.retry(self._new_id)
        self._sequences: dict[int, int] = dict.fromkeys(partitions, 0)
        self._batches: dict[int, _Batch] = {}

    def send_all(self, records: Iterable[OutgoingRecord]) -> int:
        """Send all records and wait until they are acknowledged; how many they were."""
        count = 0
        for count, record in enumerate(records, start=1):  # noqa: B007 - the last number is the count
            self._add(record)
        for partition in list(self._batches):
            self._send(partition)
        return count

    def _add(self, record: OutgoingRecord) -> None:
        partition = self._choose(record)
        if record.timestamp_ms is None:
            record = record._replace(timestamp_ms=time.time_ns() // 1_000_000)
        batch = self._batches.get(partition)
        if batch is not None and not self._has_room(batch, record):
            self._send(partition)
            batch = None
        if batch is None:
            batch = self._batches[partition] = self._new_batch(partition)
        batch.append(record)

    def _has_room(self, batch: _Batch, record: OutgoingRecord) -> bool:
        size_bytes = batch.builder.size_bytes + _most_bytes(record)
        return size_bytes <= self._batch_bytes and len(batch.records) < _BATCH_RECORDS

    def _new_batch(self, partition: int) -> _Batch:
        return _Batch(
            BatchBuilder(
                compression=self._compression,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences[partition],
            )
        )

    def _choose(self, record: OutgoingRecord) -> int:
        if record.partition is not None:
            if record.partition not in self._sequences:
                raise TopicError(f"There is no partition {self._topic}-{record.partition} to send a record to.")
            return record.partition
        if record.key is None:
            return next(self._turns)
        return partition_for_key(record.key, len(self._partitions))

    def _send(self, partition: int) -> None:
        self._send_batch(partition, self._batches.pop(partition))

    def _send_batch(self, partition: int, batch: _Batch) -> None:
        code = self._produce(partition, batch.builder.build())
        count = len(batch.records)
        if code in _TOO_LARGE and count > 1:  # it took no sequence numbers
            for half in (batch.records[: count // 2], batch.records[count // 2 :]):
                smaller = self._new_batch(partition)
                for record in half:
                    smaller.append(record)
                self._send_batch(partition, smaller)
            return
        part = TopicPartition(self._topic, partition)
        if code in _TOO_LARGE:
            raise TopicError(
                f"A record of {batch.builder.size_bytes:,} bytes is larger than {part} takes: raise the topic's "
                "max.message.bytes, or leave it out."
            )
        self._sequences[partition] = (self._sequences[partition] + count) % (_MAX_SEQUENCE + 1)

    def _produce(self, partition: int, records: bytes) -> int:
        """Have a batch stored: the answer's error code, which says that it is or that it is too large."""
        part = TopicPartition(self._topic, partition)
        data = PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

        def attempt() -> int:
            connection = self._cluster.leader(part)
            try:
                answer = connection.call(request, at_most=TOPICS_BY_NAME)
            except ConnectionLostError:
                self._cluster.forget(connection)
                raise
            code: int = answer.responses[0].partition_responses[0].error_code
            # A duplicate was stored before its answer was lost.
            if code not in (*_TOO_LARGE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
                check(code, f"records for {part}")
            return code

        return self._cluster.retry(attempt)

    def _new_id(self) -> tuple[int, int]:
        connection = self._cluster.leader(TopicPartition(self._topic, self._partitions[0]))
        answer = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        check(answer.error_code, f"a producer id for {self._topic}")
        return answer.producer_id, answer.producer_epoch


def _topic_limit(cluster: Cluster, topic: str) -> int:
    allowed = cluster.topic_setting(topic, "max.message.bytes")
    return DEFAULT_BATCH_BYTES if allowed is None else min(DEFAULT_BATCH_BYTES, int(allowed))


def _most_bytes(record: OutgoingRecord) -> int:
    """What the record takes at most within a batch."""
    headers = sum(
        len(name) * _MAX_UTF8_BYTES + len(value or b"") + _HEADER_OVERHEAD_BYTES for name, value in record.headers
    )
    return len(record.key or b"") + len(record.value or b"") + headers + _RECORD_OVERHEAD_BYTES
