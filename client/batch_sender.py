"""Sends records to the partitions they are meant for: in batches, acknowledged by all in-sync replicas."""

from __future__ import annotations

import time
from typing import Final
from uuid import UUID

from ottla.client.client import Client
from ottla.client.errors import BrokerError, ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.partitioner import partition_for_key
from ottla.kproto.records import BatchBuilder, Record

_BATCH_BYTES: Final = 900_000
_BATCH_RECORDS: Final = 10_000
_RETRIES: Final = 10
_RETRY_SECONDS: Final = 0.1
_TIMEOUT_MS: Final = 30_000


class BatchSender:
    """Gathers records; a full batch leaves at once and the rest with `flush`. Topics that do not exist are created."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._leaders: dict[str, dict[int, int]] = {}
        self._ids: dict[str, UUID] = {}
        self._turns: dict[str, int] = {}
        self._batches: dict[tuple[str, int], BatchBuilder] = {}

    def partition_count(self, topic: str) -> int:
        """How many partitions a topic has; it is created if it does not exist."""
        if topic not in self._leaders:
            self._look_up(topic)
        return len(self._leaders[topic])

    def add(self, topic: str, record: Record, partition: int | None = None) -> None:
        """Take a record for a partition: by default the one of its key, or the next in turn."""
        partition = self._choose(topic, record.key) if partition is None else partition
        if not 0 <= partition < self.partition_count(topic):
            raise ClientError(f"topic {topic} has partitions 0 to {self.partition_count(topic) - 1}")
        batch = self._batches.get((topic, partition))
        if batch is None:
            batch = self._batches[topic, partition] = BatchBuilder()
        batch.append(record.key, record.value, record.timestamp_ms, record.headers)
        if batch.size_bytes >= _BATCH_BYTES or batch.record_count >= _BATCH_RECORDS:
            del self._batches[topic, partition]
            self._send(topic, partition, batch)

    def flush(self) -> None:
        """Send what is gathered and wait until it is acknowledged."""
        while self._batches:
            (topic, partition), batch = self._batches.popitem()
            self._send(topic, partition, batch)

    def _choose(self, topic: str, key: bytes | None) -> int:
        count = self.partition_count(topic)
        if key is not None:
            return partition_for_key(key, count)
        turn = self._turns[topic] = self._turns.get(topic, -1) + 1
        return turn % count

    def _look_up(self, topic: str) -> None:
        found = self._client.topic(topic, create=True)
        self._ids[topic] = found.topic_id
        self._leaders[topic] = {state.partition_index: state.leader_id for state in found.partitions}

    def _send(self, topic: str, partition: int, batch: BatchBuilder) -> None:
        data = PartitionProduceData(index=partition, records=batch.build())
        for attempt in range(_RETRIES):
            named = TopicProduceData(name=topic, topic_id=self._ids[topic], partition_data=[data])
            request = ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[named])
            response = self._client.broker(self._leaders[topic][partition]).call(request)
            (answer,) = response.responses[0].partition_responses
            if answer.error_code == ErrorCode.NONE:
                return
            if not ErrorCode.of(answer.error_code).retriable or attempt == _RETRIES - 1:
                break
            time.sleep(_RETRY_SECONDS)
            self._look_up(topic)
        raise BrokerError(answer.error_code, answer.error_message, what=f"{topic}-{partition}")
