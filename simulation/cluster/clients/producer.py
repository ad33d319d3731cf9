"""Idempotent producers: each record is sent until it is acknowledged by all in-sync replicas, in order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import trio

from ottla.client.errors import ClientError
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.transactions.init_producer_id import InitProducerIdRequest
from ottla.kproto.records import BatchBuilder
from ottla.simulation.cluster.clients.client import Client

if TYPE_CHECKING:
    from ottla.simulation.cluster.histories.attempts import Attempt, Partition
    from ottla.simulation.cluster.histories.client_environment import ClientEnvironment

__all__ = ["Producer"]

RETRIABLE: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Producer(Client):
    """Sends to some partitions, one batch at a time to each. A batch keeps its sequence however often it is sent."""

    def __init__(self, world: ClientEnvironment, name: str, partitions: Sequence[Partition]) -> None:
        super().__init__(world, name)
        self._partitions = partitions
        self._pause_s = world.rng.choice((0.1, 0.3, 0.8))
        self._at_most = world.rng.choice((9, 12, 13, 13))
        self._timeout_ms = world.rng.choice((500, 2000, 30_000))
        self._producer_id = -1
        self._epoch = -1

    async def work(self) -> None:
        answer = await self._begin()
        self._producer_id, self._epoch = answer
        self.note(f"is producer {self._producer_id}")
        async with trio.open_nursery() as nursery:
            for partition in self._partitions:
                nursery.start_soon(self._produce, partition)

    async def _begin(self) -> tuple[int, int]:
        while True:
            answer = await self.any_node(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
            if answer.error_code == ErrorCode.NONE:
                return answer.producer_id, answer.producer_epoch
            await trio.sleep(0.1)

    async def _produce(self, partition: Partition) -> None:
        number = 0
        while not self.world.is_ending:
            await trio.sleep(self.rng.uniform(0, 2 * self._pause_s))
            count = self.rng.randint(1, 3)
            batch = [self.world.history.begin(self.name, partition, number + each) for each in range(count)]
            await self._deliver(partition, batch)
            number += count

    async def _deliver(self, partition: Partition, batch: Sequence[Attempt]) -> None:
        builder = BatchBuilder(producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=batch[0].number)
        for attempt in batch:
            builder.append(None, attempt.value, 1_700_000_000_000)
        records = builder.build()
        what = f"{batch[0].value.decode()}+{len(batch)}"
        while True:
            leader = await self.leader(partition)
            code, offset = await self._send(leader, partition, records)
            if code == ErrorCode.NONE:
                self.note(f"{what} acknowledged by {leader} at {offset}")
                for index, attempt in enumerate(batch):
                    self.world.history.acknowledge(attempt, offset + index if offset >= 0 else -1)
                return
            self.note(f"{what} not by {leader}: {'no answer' if code is None else code.name}")
            if code is not None and code not in RETRIABLE:
                self.world.fail(f"{self.name} was told {code.name} for {what}, whose predecessor was acknowledged")
                return
            self.forget_leader(partition)
            await trio.sleep(self.rng.uniform(0, 0.1))

    async def _send(self, leader: int, partition: Partition, records: bytes) -> tuple[ErrorCode | None, int]:
        """The leader's error code, and the offset; no code if it does not answer."""
        topic, index = partition
        data = PartitionProduceData(index=index, records=records)
        named = TopicProduceData(name=topic, topic_id=self.topic_id(topic), partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=self._timeout_ms, topic_data=[named])
        try:
            answer = await self.call(leader, request, at_most=self._at_most)
        except ClientError:
            return None, -1
        (told,) = answer.responses[0].partition_responses
        return ErrorCode(told.error_code), told.base_offset
