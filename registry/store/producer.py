"""Appends batches to the topic, each exactly once: one without an answer is sent again under the same sequence."""

from __future__ import annotations

from collections.abc import Sequence
from time import time
from typing import Any, Final
from uuid import UUID

from ottla.client.errors import BrokerError
from ottla.client.trio_connection import TrioConnection
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import BatchBuilder

_TIMEOUT_MS: Final = 15_000
_NO_TRANSACTION_TIMEOUT_MS: Final = 2**31 - 1

Written = tuple[bytes, bytes | None]
"""A key and a value; None removes."""


class Producer:
    """An idempotent producer of one topic. One call of `append` at a time."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._id = -1
        self._epoch = -1
        self._sequence = 0

    def forget(self) -> None:
        """Begin with a new producer id: the outcome of the last `append` is unknown, or the topic is another one."""
        self._id = -1

    async def append(self, connection: TrioConnection, topic_id: UUID, written: Sequence[Written]) -> int:
        """Append these as one batch; returns the offset of the first. Call it again, with the same, after a
        ConnectionLostError or a BrokerError that is retriable: nothing is then appended twice.
        """
        if self._id < 0:
            await self._begin(connection)
        builder = BatchBuilder(producer_id=self._id, producer_epoch=self._epoch, base_sequence=self._sequence)
        now_ms = int(time() * 1000)
        for key, value in written:
            builder.append(key, value, now_ms)
        data = PartitionProduceData(index=0, records=builder.build())
        named = TopicProduceData(name=self._topic, topic_id=topic_id, partition_data=[data])
        answer = await connection.call(ProduceRequest(acks=-1, timeout_ms=_TIMEOUT_MS, topic_data=[named]))
        (result,) = answer.responses[0].partition_responses
        if result.error_code != ErrorCode.NONE:
            raise BrokerError(result.error_code, result.error_message, what=self._topic)
        self._sequence = (self._sequence + len(written)) & 0x7FFFFFFF
        return int(result.base_offset)

    async def _begin(self, connection: TrioConnection) -> None:
        answer: Any = await connection.call(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=_NO_TRANSACTION_TIMEOUT_MS)
        )
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(answer.error_code, what="a producer id")
        self._id, self._epoch, self._sequence = answer.producer_id, answer.producer_epoch, 0
