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

__all__ = ["OutgoingRecord", "Producer"]

_BATCH_BYTES: Final = 900_000
_BATCH_RECORDS: Final = 10_000
_ACKS_ALL: Final = -1
_MAX_SEQUENCE: Final = (1 << 31) - 1


class OutgoingRecord(NamedTuple):
    """A record to send. Without a partition its key says where it goes, without a key it takes the next in turn."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None
    partition: int | None = None


class Producer:
    """Sends records to one topic.

    It has a producer id, so that a batch which is sent again after a lost answer is stored once. Every call ends within
    the settings' `default_api_timeout_ms`, with BrokerUnavailableError if nobody answered and TopicError if the
    topic is not there or refuses a batch. Not for several threads at once.
    """

    def __init__(self, cluster: Cluster, topic: str, compression: Compression = Compression.LZ4) -> None:
        self._cluster = cluster
        self._topic = topic
        self._compression = compression
        partitions = cluster.partitions([topic]).get(topic)
        if not partitions:
            raise TopicError(
                f"There is no topic {topic!r} at {cluster.settings.servers}: create it, or check its name."
            )
        self._partitions = partitions
        self._turns = itertools.cycle(partitions)
        self._id, self._epoch = cluster.retry(self._new_id)
        self._sequences: dict[int, int] = dict.fromkeys(partitions, 0)
        self._batches: dict[int, BatchBuilder] = {}

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
        batch = self._batches.get(partition)
        if batch is None:
            batch = self._batches[partition] = BatchBuilder(
                compression=self._compression,
                producer_id=self._id,
                producer_epoch=self._epoch,
                base_sequence=self._sequences[partition],
            )
        timestamp_ms = time.time_ns() // 1_000_000 if record.timestamp_ms is None else record.timestamp_ms
        batch.append(record.key, record.value, timestamp_ms, record.headers)
        if batch.size_bytes >= _BATCH_BYTES or batch.record_count >= _BATCH_RECORDS:
            self._send(partition)

    def _choose(self, record: OutgoingRecord) -> int:
        if record.partition is not None:
            if record.partition not in self._sequences:
                raise TopicError(f"There is no partition {self._topic}-{record.partition} to send a record to.")
            return record.partition
        if record.key is None:
            return next(self._turns)
        return partition_for_key(record.key, len(self._partitions))

    def _send(self, partition: int) -> None:
        batch = self._batches.pop(partition)
        part = TopicPartition(self._topic, partition)
        data = PartitionProduceData(index=partition, records=batch.build())
        request = ProduceRequest(
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=self._topic, partition_data=[data])],
        )

        def attempt() -> None:
            connection = self._cluster.leader(part)
            try:
                answer = connection.call(request, at_most=TOPICS_BY_NAME)
            except ConnectionLostError:
                self._cluster.forget(connection)
                raise
            code = answer.responses[0].partition_responses[0].error_code
            if code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:  # it was stored before its answer was lost
                check(code, f"records for {part}")

        self._cluster.retry(attempt)
        self._sequences[partition] = (self._sequences[partition] + batch.record_count) % (_MAX_SEQUENCE + 1)

    def _new_id(self) -> tuple[int, int]:
        connection = self._cluster.leader(TopicPartition(self._topic, self._partitions[0]))
        answer = connection.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        check(answer.error_code, f"a producer id for {self._topic}")
        return answer.producer_id, answer.producer_epoch
