"""Sending columns of records from an executor: acknowledged by all in-sync replicas, none stored twice by a retry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ottla.client.connection import BrokerConnection
from ottla.client.errors import ClientError, ConnectionLostError
from ottla.client.offsets import TopicPartition
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Compression
from ottla.pipeline.client.answers import RetriableError, check
from ottla.pipeline.client.batches import OpenBatch, SealedBatch
from ottla.pipeline.client.cluster import Address, Cluster
from ottla.pipeline.client.transactions import ProducerIdentity, Transaction
from ottla.pipeline.encoder import Columns, encode
from ottla.pipeline.errors import TopicError

__all__ = ["DEFAULT_BATCH_BYTES", "DEFAULT_BUFFER_BYTES", "Producer"]

DEFAULT_BATCH_BYTES: Final = 900_000
DEFAULT_BUFFER_BYTES: Final = 32 << 20
# Version 12 would make partitions part of a transaction by itself, and its end raise the epoch (KIP-890).
_PRODUCE: Final = 11
_REQUEST_BYTES: Final = 1 << 20
_ACKS_ALL: Final = -1
_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)
_SEQUENCES: Final = 1 << 31


class _Channel:
    """A connection to a leader, with at most one request on its way, whose batches are `in_flight`."""

    def __init__(self, connection: BrokerConnection) -> None:
        self.connection = connection
        self.in_flight: list[SealedBatch] = []


class Producer:
    """Sends records, in batches of `batch_bytes` at most before compression, or of one record.

    Without `batch_bytes` they are as large as a topic's `max.message.bytes` allows, up to DEFAULT_BATCH_BYTES. One
    that the broker finds too large all the same goes in halves. When `buffer_bytes` wait, all are sent.

    A batch that is sent again after a lost answer is stored once. While the answer to one request is on its way, the
    next batch is made. What a call cannot send within the settings' `default_api_timeout_ms` is
    BrokerUnavailableError; TopicError if a topic is not there or refuses a batch, FencedError if the transaction is
    over. After an error the producer can only be closed. Not for several threads at once.
    """

    def __init__(
        self,
        cluster: Cluster,
        identity: ProducerIdentity,
        compression: Compression = Compression.NONE,
        *,
        transaction: Transaction | None = None,
        batch_bytes: int | None = None,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
    ) -> None:
        assert (transaction is None) == (identity.transactional_id is None)
        self._cluster = cluster
        self._identity = identity
        self._compression = compression
        self._transaction = transaction
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._topics: dict[str, tuple[int, int]] = {}
        self._open: dict[TopicPartition, OpenBatch] = {}
        self._sealed: list[SealedBatch] = []
        self._open_bytes = self._sealed_bytes = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._channels: dict[Address, _Channel] = {}

    def partition_count(self, topic: str) -> int:
        """How many partitions the topic has; TopicError if there is none."""
        return self._topic(topic)[0]

    def append(self, part: TopicPartition, columns: Columns) -> None:
        """Send records to a partition, in their order."""
        count, limit_bytes = self._topic(part.topic)
        if not 0 <= part.partition < count:
            raise TopicError(f"There is no partition {part} to send a record to: the topic has {count} partitions.")
        ends = np.cumsum(columns.most_bytes())
        start = 0
        while start < columns.row_count:
            batch = self._open.get(part)
            if batch is None:
                batch = self._open[part] = OpenBatch(part)
                self._open_bytes += batch.size_bytes
            sent_bytes = int(ends[start - 1]) if start else 0
            fitting = int(np.searchsorted(ends, sent_bytes + limit_bytes - batch.size_bytes, side="right")) - start
            if fitting <= 0 and batch.count:
                self._seal(part)
                continue
            piece = columns.slice(start, max(1, fitting))
            before_bytes = batch.size_bytes
            batch.append(encode(piece, batch.count), piece.row_count)
            self._open_bytes += batch.size_bytes - before_bytes
            start += piece.row_count
        if self._open_bytes + self._sealed_bytes >= self._buffer_bytes:
            self._seal_all()

    def flush(self) -> None:
        """Send all that waits; ends when all is acknowledged."""
        self._seal_all()
        self._send_sealed()
        self._settle_all()

    def close(self) -> None:
        """Let go of the connections. What was not flushed may be lost."""
        while self._channels:
            self._channels.popitem()[1].connection.close()

    def _topic(self, topic: str) -> tuple[int, int]:
        """How many partitions it has, and how large its batches may be."""
        known = self._topics.get(topic)
        if known is None:
            partitions = self._cluster.partitions([topic]).get(topic)
            if not partitions:
                servers = self._cluster.settings.servers
                raise TopicError(f"There is no topic {topic!r} at {servers}: create it, or check its name.")
            known = self._topics[topic] = len(partitions), self._batch_bytes or _topic_limit(self._cluster, topic)
        return known

    def _seal(self, part: TopicPartition) -> None:
        batch = self._open.pop(part)
        sealed = batch.seal(self._identity, self._compression)
        self._open_bytes -= batch.size_bytes
        self._sealed.append(sealed)
        self._sealed_bytes += sealed.size_bytes
        if self._sealed_bytes >= _REQUEST_BYTES:
            self._send_sealed()

    def _seal_all(self) -> None:
        for part in list(self._open):
            self._seal(part)

    def _send_sealed(self) -> None:
        batches, self._sealed, self._sealed_bytes = self._sealed, [], 0
        if self._transaction is not None:
            self._transaction.add(batch.part for batch in batches)
        for group in _requests(batches):
            by_leader: dict[Address, list[SealedBatch]] = {}
            for batch in group:
                by_leader.setdefault(self._cluster.leader_address(batch.part), []).append(batch)
            for address, led in by_leader.items():
                self._send(address, led)

    def _send(self, address: Address, batches: list[SealedBatch]) -> None:
        """Send batches, one a partition, after what is on its way to the same leader or for the same partitions."""
        parts = {batch.part for batch in batches}
        for other, channel in list(self._channels.items()):
            if other == address or not parts.isdisjoint(batch.part for batch in channel.in_flight):
                self._settle(channel)
        for batch in batches:
            first = self._sequences.get(batch.part, 0)
            batch.number(first)
            self._sequences[batch.part] = (first + batch.count) % _SEQUENCES
        try:
            channel = self._channel(address)
            channel.in_flight = batches
            channel.connection.send(self._request(batches), at_most=_PRODUCE)
        except ConnectionLostError:
            self._drop(address)
            self._send_again(batches)

    def _settle_all(self) -> None:
        for channel in list(self._channels.values()):
            self._settle(channel)

    def _settle(self, channel: _Channel) -> None:
        """Take the answer that is on its way, and send again what it says is not stored."""
        batches, channel.in_flight = channel.in_flight, []
        if not batches:
            return
        try:
            answer = channel.connection.receive()
        except ConnectionLostError:
            for address in [address for address, held in self._channels.items() if held is channel]:
                self._drop(address)
            self._send_again(batches)
            return
        codes = _codes(answer)
        self._send_again([batch for batch in batches if not self._is_stored(batch, codes[batch.part])])

    def _is_stored(self, batch: SealedBatch, code: int) -> bool:
        try:
            self._check(batch, code)
        except RetriableError:
            return False
        return code not in _TOO_LARGE

    def _send_again(self, batches: list[SealedBatch]) -> None:
        """Have batches stored one by one, with nothing else on its way: each partition's stay in order."""
        if not batches:
            return
        self._settle_all()
        for batch in batches:
            self._store(batch)

    def _store(self, batch: SealedBatch) -> None:
        def attempt() -> int:
            address = self._cluster.leader_address(batch.part)
            try:
                answer = self._channel(address).connection.call(self._request([batch]), at_most=_PRODUCE)
            except ClientError:
                self._drop(address)
                raise
            code = _codes(answer)[batch.part]
            self._check(batch, code)
            return code

        if self._cluster.retry(attempt) not in _TOO_LARGE:
            return
        if batch.count == 1:
            raise TopicError(
                f"A record of {batch.size_bytes:,} bytes is larger than {batch.part} takes: raise the topic's "
                "max.message.bytes, or leave it out."
            )
        sequence = batch.header.base_sequence  # it took none
        for half in batch.halves():
            half.number(sequence)
            self._store(half)
            sequence = (sequence + half.count) % _SEQUENCES

    def _check(self, batch: SealedBatch, code: int) -> None:
        # A duplicate was stored before its answer was lost.
        if code not in (*_TOO_LARGE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            check(code, f"records for {batch.part}")

    def _channel(self, address: Address) -> _Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = _Channel(self._cluster.open(address))
        return channel

    def _drop(self, address: Address) -> None:
        if (channel := self._channels.pop(address, None)) is not None:
            channel.connection.close()

    def _request(self, batches: list[SealedBatch]) -> ProduceRequest:
        topics: dict[str, list[PartitionProduceData]] = {}
        for batch in batches:
            data = PartitionProduceData(index=batch.part.partition, records=batch.encode())
            topics.setdefault(batch.part.topic, []).append(data)
        return ProduceRequest(
            transactional_id=self._identity.transactional_id,
            acks=_ACKS_ALL,
            timeout_ms=self._cluster.settings.request_timeout_ms,
            topic_data=[TopicProduceData(name=name, partition_data=data) for name, data in topics.items()],
        )


def _requests(batches: list[SealedBatch]) -> Iterator[list[SealedBatch]]:
    """The batches in groups of no more than a request's bytes, and of no more than one batch a partition."""
    group: dict[TopicPartition, SealedBatch] = {}
    size_bytes = 0
    for batch in batches:
        if group and (batch.part in group or size_bytes + batch.size_bytes > _REQUEST_BYTES):
            yield list(group.values())
            group, size_bytes = {}, 0
        group[batch.part] = batch
        size_bytes += batch.size_bytes
    if group:
        yield list(group.values())


def _codes(answer: Any) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic.name, part.index): part.error_code
        for topic in answer.responses
        for part in topic.partition_responses
    }


def _topic_limit(cluster: Cluster, topic: str) -> int:
    allowed = cluster.topic_setting(topic, "max.message.bytes")
    return DEFAULT_BATCH_BYTES if allowed is None else min(DEFAULT_BATCH_BYTES, int(allowed))
