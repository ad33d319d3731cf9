"""aiokafka, on an event loop of its own in a thread, so that scenarios stay plain functions."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.errors import BrokerResponseError, KafkaError, for_code

from compat_tests.clients.base import (
    ANSWER_TIMEOUT_S,
    BATCH_BYTES,
    LINGER_MS,
    MAX_REQUEST_BYTES,
    BrokerError,
    Feature,
    Record,
    Start,
)
from compat_tests.clients.kafka_python import ACKS, received

T = TypeVar("T")


class LoopThread:
    """An asyncio loop in a thread; `run` waits for a coroutine there and translates broker errors."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
        except BrokerResponseError as error:
            raise BrokerError(error.errno, str(error)) from error

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class AioKafkaProducer:
    def __init__(self, loop: LoopThread, bootstrap: str, *, codec: str, acks: str, idempotent: bool) -> None:
        self._loop = loop
        self._producer = loop.run(self._started(bootstrap, codec, acks, idempotent))

    async def _started(self, bootstrap: str, codec: str, acks: str, idempotent: bool) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if codec == "none" else codec,
            acks=ACKS[acks],
            enable_idempotence=idempotent,
            max_batch_size=BATCH_BYTES,
            linger_ms=LINGER_MS,
            max_request_size=MAX_REQUEST_BYTES,
        )
        await producer.start()
        return producer

    def send(self, topic: str, records: Sequence[Record]) -> list[int]:
        return self._loop.run(self._send(topic, records))

    async def _send(self, topic: str, records: Sequence[Record]) -> list[int]:
        futures = [
            await self._producer.send(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
            )
            for record in records
        ]
        sent = await asyncio.wait_for(asyncio.gather(*futures), ANSWER_TIMEOUT_S)
        return [metadata.offset if metadata is not None else -1 for metadata in sent]

    def close(self) -> None:
        self._loop.run(self._producer.stop())


class AioKafkaTransactions:
    """Implements TransactionalProducer."""

    def __init__(self, loop: LoopThread, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._loop = loop
        self._producer = self._run(self._started(bootstrap, transactional_id, timeout_ms))

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Transactions tell of a broker's error by exceptions of the client's own, too."""
        try:
            return self._loop.run(coroutine)
        except KafkaError as error:
            raise BrokerError(-1, repr(error)) from error

    async def _started(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> AIOKafkaProducer:
        producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            linger_ms=LINGER_MS,
        )
        await producer.start()
        return producer

    def begin(self) -> None:
        self._run(self._producer.begin_transaction())

    def send(self, topic: str, records: Sequence[Record]) -> None:
        self._run(self._send(topic, records))

    async def _send(self, topic: str, records: Sequence[Record]) -> None:
        futures = [
            await self._producer.send(topic, value=record.value, key=record.key, partition=record.partition)
            for record in records
        ]
        await asyncio.wait_for(asyncio.gather(*futures), ANSWER_TIMEOUT_S)

    def send_offsets(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        named = {TopicPartition(topic, number): offset for number, offset in offsets.items()}
        self._run(self._producer.send_offsets_to_transaction(named, group))

    def commit(self) -> None:
        self._run(self._producer.commit_transaction())

    def abort(self) -> None:
        self._run(self._producer.abort_transaction())

    def close(self) -> None:
        self._run(self._producer.stop())


class AioKafkaConsumer:
    def __init__(self, loop: LoopThread, topic: str, start: Start, partition: int, config: Mapping[str, str]) -> None:
        self._loop = loop
        self._ready: list[Record] = []
        self._assigned = TopicPartition(topic, partition)
        self._consumer = loop.run(self._started(config, self._assigned, start))

    async def _started(self, config: Mapping[str, str], partition: TopicPartition, start: Start) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(**config)
        await consumer.start()
        consumer.assign([partition])
        # A seek before the first position is found races with aiokafka's own reset.
        await consumer.position(partition)
        if start.kind == "beginning":
            await consumer.seek_to_beginning(partition)
        elif start.kind == "end":
            await consumer.seek_to_end(partition)
        elif start.kind == "offset":
            consumer.seek(partition, start.at)
        else:
            found = (await consumer.offsets_for_times({partition: start.at}))[partition]
            # Where no record is as late, aiokafka passes the broker's -1 on.
            if found is not None and found.offset >= 0:
                consumer.seek(partition, found.offset)
            else:
                await consumer.seek_to_end(partition)
        await consumer.position(partition)
        return consumer

    def take(self, count: int, timeout_s: float = ANSWER_TIMEOUT_S) -> list[Record]:
        deadline = time.monotonic() + timeout_s
        while len(self._ready) < count and (left_s := deadline - time.monotonic()) > 0:
            polled = self._loop.run(self._consumer.getmany(timeout_ms=int(left_s * 1000) + 1))
            for records in polled.values():
                self._ready += [received(record) for record in records]
        taken, self._ready = self._ready[:count], self._ready[count:]
        return taken

    def await_end(self) -> None:
        self._loop.run(self._reach_end())

    async def _reach_end(self) -> None:
        (end,) = (await self._consumer.end_offsets([self._assigned])).values()
        deadline = time.monotonic() + ANSWER_TIMEOUT_S
        while await self._consumer.position(self._assigned) != end:
            assert time.monotonic() < deadline, "the end of the partition was not reached"
            for records in (await self._consumer.getmany(timeout_ms=50)).values():
                self._ready += [received(record) for record in records]

    def close(self) -> None:
        self._loop.run(self._consumer.stop())


class AioKafka:
    name = "aiokafka"
    lacks: frozenset[Feature] = frozenset()

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._loop = LoopThread()

    def producer(self, *, codec: str = "none", acks: str = "all", idempotent: bool = False) -> AioKafkaProducer:
        return AioKafkaProducer(self._loop, self._bootstrap, codec=codec, acks=acks, idempotent=idempotent)

    def transactional(self, transactional_id: str, *, timeout_ms: int = 60_000) -> AioKafkaTransactions:
        return AioKafkaTransactions(self._loop, self._bootstrap, transactional_id, timeout_ms)

    def consumer(
        self,
        topic: str,
        start: Start,
        *,
        partition: int = 0,
        reset: str = "earliest",
        isolation: str = "read_uncommitted",
    ) -> AioKafkaConsumer:
        config = {"bootstrap_servers": self._bootstrap, "auto_offset_reset": reset, "isolation_level": isolation}
        return AioKafkaConsumer(self._loop, topic, start, partition, config)

    @asynccontextmanager
    async def _admin(self) -> AsyncIterator[AIOKafkaAdminClient]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        await admin.start()
        try:
            yield admin
        finally:
            await admin.close()

    def create_topic(self, topic: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None) -> None:
        async def create() -> None:
            async with self._admin() as admin:
                new = NewTopic(topic, partitions, 1, topic_configs=dict(configs or {}))
                raise_refusals((await admin.create_topics([new])).topic_errors)

        self._loop.run(create())

    def add_partitions(self, topic: str, total: int) -> None:
        async def add() -> None:
            async with self._admin() as admin:
                raise_refusals((await admin.create_partitions({topic: NewPartitions(total)})).topic_errors)

        self._loop.run(add())

    def delete_topic(self, topic: str) -> None:
        async def delete() -> None:
            async with self._admin() as admin:
                raise_refusals((await admin.delete_topics([topic])).topic_error_codes)

        self._loop.run(delete())

    def topics(self) -> dict[str, int]:
        async def describe() -> dict[str, int]:
            async with self._admin() as admin:
                return {topic["topic"]: len(topic["partitions"]) for topic in await admin.describe_topics()}

        return self._loop.run(describe())

    @asynccontextmanager
    async def _group_member(self, group: str, assigned: TopicPartition) -> AsyncIterator[AIOKafkaConsumer]:
        consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        try:
            consumer.assign([assigned])
            yield consumer
        finally:
            await consumer.stop()

    def commit(self, group: str, topic: str, partition: int, offset: int) -> None:
        async def commit() -> None:
            assigned = TopicPartition(topic, partition)
            async with self._group_member(group, assigned) as consumer:
                await consumer.commit({assigned: offset})

        self._loop.run(commit())

    def committed(self, group: str, topic: str, partition: int) -> int | None:
        async def committed() -> int | None:
            assigned = TopicPartition(topic, partition)
            async with self._group_member(group, assigned) as consumer:
                offset: int | None = await consumer.committed(assigned)
                return offset

        return self._loop.run(committed())

    def close(self) -> None:
        self._loop.close()


def raise_refusals(errors: Sequence[Sequence[Any]]) -> None:
    """The admin client answers (topic, error code, …) and raises nothing."""
    for topic, code, *_ in errors:
        if code:
            raise BrokerError(code, f"{topic}: {for_code(code).__name__}")
