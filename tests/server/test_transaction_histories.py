"""Random histories of transactions against a plain model, on a simulated disk, in one process.

Idempotent and transactional producers of both transaction versions write, commit, abort, are fenced by their
successors, time out and go on as zombies; the log is compacted, when it is asked for and by the broker itself, and the
broker crashes. After every step a reader of what is committed must find what the model says: before compaction every
visible record, after it at least the last one of each key, and never one that was aborted, refused or is undecided.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
import trio

from ottla.coordinator.errors import ConcurrentTransactionsError, CoordinatorLoadInProgressError
from ottla.coordinator.metadata import CoordinatorMetadata
from ottla.coordinator.replica_log import ReplicaLog
from ottla.coordinator.transaction.coordinator import (
    TRANSACTIONS_TOPIC,
    TransactionConfig,
    TransactionCoordinator,
)
from ottla.coordinator.transaction.markers import ReplicaMarkers
from ottla.coordinator.transaction.other_brokers import TransactionVerifier
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch
from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch, iter_batches, iter_records, parse_end_txn_marker
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.replica.config import TopicRules
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Isolation
from ottla.runtime.memory_budget import MemoryBudget
from ottla.server.apis.data import produce
from ottla.server.schemas.source import Codecs
from ottla.server.schemas.validation import SchemaValidation
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk.simulated_disk import SimulatedDisk
from ottla.storage.log_manager import LogManager
from tests.doubles.replica_configs import FixedRules
from tests.servers import answered

PARTITIONS = 2
STEPS = 60
CLEANER_BACKOFF_MS = 15_000
KEYS = 4
NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000
LED = PartitionState(leader=0, replicas=(0,), isr=(0,))
TOPIC = TopicImage("topic", UUID(int=7), (LED,) * PARTITIONS)
TRANSACTIONS = TopicImage(TRANSACTIONS_TOPIC, UUID(int=8), (LED,))
V1_PRODUCE, V2_PRODUCE = 11, 12
OPEN, COMMITTED, ABORTED = "open", "committed", "aborted"


# The model ------------------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class Transaction:
    """Records outside of any transaction have one of their own that is committed."""

    state: str = OPEN


@dataclass
class Log:
    """What a partition holds: offset -> key, value and transaction, of every record that was acknowledged."""

    records: dict[int, tuple[bytes, bytes, Transaction]] = field(default_factory=dict)
    is_compacted: bool = False

    def check(self, found: dict[int, tuple[bytes, bytes]]) -> None:
        undecided = [offset for offset, (_, _, owner) in self.records.items() if owner.state == OPEN]
        stable = min(undecided, default=2**63)
        visible = {
            offset: (key, value)
            for offset, (key, value, owner) in self.records.items()
            if owner.state == COMMITTED and offset < stable
        }
        if not self.is_compacted:
            assert found == visible
            return
        assert found.items() <= visible.items()
        last = {key: offset for offset, (key, _) in sorted(visible.items())}
        assert set(last.values()) <= found.keys()


class Producer:
    """One instance of a producer; `transactional_id` None for an idempotent one. A zombie keeps its old identity."""

    def __init__(self, transactional_id: str | None, identity: ProducerIdAndEpoch, *, is_v2: bool) -> None:
        self.transactional_id = transactional_id
        self.is_v2 = is_v2
        self.is_fenced = False
        self.open: Transaction | None = None
        self.identity = identity
        self.sequences = [0] * PARTITIONS

    def go_on_as(self, identity: ProducerIdAndEpoch) -> None:
        """After an end; a new epoch begins with sequence 0."""
        if identity != self.identity:
            self.sequences = [0] * PARTITIONS
        self.identity = identity

    def fence(self) -> None:
        self.is_fenced = True
        if self.open is not None:
            self.open.state = ABORTED


# The broker -----------------------------------------------------------------------------------------------------------


async def in_place(function: Callable[[], Any]) -> Any:
    await trio.lowlevel.checkpoint()
    return function()


class Node:
    """The storage engine, the replica manager and the transaction coordinator, wired as in `server/wiring`."""

    def __init__(self, log_manager: LogManager, replicas: ReplicaManager, clock: ManualClock) -> None:
        self.log_manager = log_manager
        self.replica_manager = replicas
        self.clock = clock
        self.metadata = MetadataImage()
        self.transaction_coordinator: Any = None
        self.config = BrokerConfig()
        self.schema_validation = SchemaValidation(Codecs(), self.config)
        self.transaction_verifier = TransactionVerifier(self, self, node_id=0)

    @property
    def image(self) -> MetadataImage:
        return self.metadata

    @property
    def transactions(self) -> Any:
        return self.transaction_coordinator

    @property
    def other_brokers(self) -> Any:
        return SimpleNamespace()

    def topic_id(self, name: str) -> UUID | None:
        topic = self.metadata.topic(name)
        return None if topic is None else topic.topic_id

    def topic_id_of(self, topic: str, partition: int) -> UUID | None:
        return self.topic_id(topic)

    async def read_committed(self, partition: int) -> dict[int, tuple[bytes, bytes]]:
        """As a consumer does it: offset -> key and value, without what the aborted-transaction index names."""
        found: dict[int, tuple[bytes, bytes]] = {}
        offset = 0
        while True:
            params = FetchParams(max_wait_ms=0, min_bytes=1, isolation=Isolation.TXN_COMMITTED)
            asked = FetchPartition(TOPIC.topic_id, partition, offset)
            (result,) = await self.replica_manager.fetch(params, [asked])
            assert result.error is None
            data = b"" if result.records is None else result.records.to_bytes()
            starts = sorted((first, producer_id) for producer_id, first in result.aborted_transactions or ())
            result.release()
            if not data:
                return found
            aborted: set[int] = set()
            for position, header in iter_batches(data):
                offset = header.last_offset + 1
                while starts and starts[0][0] <= header.last_offset:
                    aborted.add(starts.pop(0)[1])
                if header.is_control:
                    marker = parse_end_txn_marker(data, position, header) if header.record_count else None
                    if marker is not None and not marker.is_commit:
                        aborted.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in aborted):
                    for record in iter_records(data, position, header):
                        found[record.offset] = (bytes(record.key or b""), bytes(record.value or b""))


@asynccontextmanager
async def start(disk: SimulatedDisk, clock: ManualClock, ids: Iterable[int]) -> AsyncIterator[Node]:
    config = StorageConfig(segment_index_entries=8, cleaner_backoff_ms=CLEANER_BACKOFF_MS)
    log_manager = LogManager(disk, "/data", config, clock, run_blocking=in_place)
    replicas = ReplicaManager(
        log_manager,
        clock,
        FixedRules(
            lambda: TopicRules(LogConfig(compact=True, delete=False, segment_bytes=1024, min_cleanable_dirty_ratio=0))
        ),
        response_budget=MemoryBudget(1 << 24),
    )
    log_manager.set_listener(replicas)
    new_ids = iter(ids)

    async def new_producer_id() -> int:
        await trio.lowlevel.checkpoint()
        return next(new_ids)

    async with log_manager.run(), trio.open_nursery() as nursery:
        node = Node(log_manager, replicas, clock)
        topics = (TOPIC, TRANSACTIONS)
        before = node.metadata
        for topic in topics:
            node.metadata = replace(
                node.metadata,
                topics=node.metadata.topics.set(topic.name, topic),
                topics_by_id=node.metadata.topics_by_id.set(topic.topic_id, topic),
            )
        changes = [PartitionChange(topic, n, None, LED) for topic in topics for n in range(len(topic.partitions))]
        delta = MetadataDelta(before, node.metadata, created_topics=list(topics), changed_partitions=changes)
        await replicas.apply(delta)
        node.transaction_coordinator = TransactionCoordinator(
            node_id=0,
            config=TransactionConfig(topic_partitions=1),
            clock=clock,
            log=ReplicaLog(replicas, node, TRANSACTIONS.name),
            markers=ReplicaMarkers(replicas, SimpleNamespace(), node, clock),
            producer_ids=SimpleNamespace(next=new_producer_id),
            metadata=CoordinatorMetadata(MetadataImage(features={TRANSACTION_VERSION: 2})),
            nursery=nursery,
        )
        node.transaction_coordinator.apply(delta)
        yield node
        nursery.cancel_scope.cancel()
        replicas.close()


# Histories ------------------------------------------------------------------------------------------------------------


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.disk = SimulatedDisk(seed)
        self.clock = ManualClock(NOW_MS)
        self.ids = iter(range(1_000, 100_000))
        self.logs = [Log() for _ in range(PARTITIONS)]
        self.current: dict[str, Producer] = {}
        self.zombies: list[Producer] = []
        self.values = 0
        self.node: Node

    async def run(self) -> None:
        left = STEPS
        while left > 0:
            life = min(left, self.random.randint(5, 25))
            left -= life
            async with start(self.disk, self.clock, self.ids) as self.node:
                started_at = trio.current_time()
                for _ in range(life):
                    await self._step()
                    self.clock.advance(self.random.randint(1, 50))
                    if trio.current_time() - started_at >= CLEANER_BACKOFF_MS / 1000:
                        self._compacted()  # by the broker's own cleaner, if it found anything to do
                    await self._check()
            # The process is gone in the midst of what went on; what was written stays.
            self.disk = self.disk.crash()

    async def _step(self) -> None:
        steps = (self._open, self._send, self._send, self._send, self._end, self._end, self._send_late)
        rare = (self._time_out, self._compact, self._send_plain)
        await self.random.choice(steps + rare)()

    async def _check(self) -> None:
        """Markers are written soon after an end is answered: wait for them, then compare."""
        coordinator = self.node.transaction_coordinator
        while any(  # noqa: ASYNC110 (the time is virtual)
            t.is_prepared for t in await self._retried(in_place, coordinator.list_transactions)
        ):
            await trio.sleep(0.01)
        for partition, log in enumerate(self.logs):
            log.check(await self.node.read_committed(partition))

    async def _retried(self, act: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        while True:
            try:
                return await act(*arguments, **options)
            except (ConcurrentTransactionsError, CoordinatorLoadInProgressError):
                await trio.sleep(0.01)

    async def _open(self) -> None:
        """A producer starts, and fences who had its transactional id."""
        name = self.random.choice(["a", "b", "c"])
        coordinator = self.node.transaction_coordinator
        identity = await self._retried(coordinator.init_producer_id, name, TIMEOUT_MS, None)
        former = self.current.get(name)
        if former is not None:
            former.fence()
            self.zombies.append(former)
        self.current[name] = Producer(name, identity, is_v2=self.random.random() < 0.5)

    async def _send_plain(self) -> None:
        """An idempotent producer, outside of transactions."""
        if "" not in self.current:
            self.current[""] = Producer(None, ProducerIdAndEpoch(next(self.ids), 0), is_v2=False)
        producer, partition = self.current[""], self.random.randrange(PARTITIONS)
        assert await self._append(producer, partition, Transaction(COMMITTED)) == ErrorCode.NONE

    async def _send(self) -> None:
        producer = self._a_transactional_one()
        if producer is None:
            return
        partition = self.random.randrange(PARTITIONS)
        if not producer.is_v2:
            coordinator = self.node.transaction_coordinator
            part = [Partition(TOPIC.name, partition)]
            await self._retried(coordinator.add_partitions, producer.transactional_id, producer.identity, part, 0)
        producer.open = producer.open or Transaction()
        assert await self._append(producer, partition, producer.open) == ErrorCode.NONE

    async def _send_late(self) -> None:
        """A zombie goes on: whatever it sends is refused."""
        if self.zombies:
            zombie = self.random.choice(self.zombies)
            code = await self._append(zombie, self.random.randrange(PARTITIONS), Transaction(ABORTED))
            assert code in (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)

    async def _end(self) -> None:
        producer = self._a_transactional_one()
        if producer is None or producer.open is None:
            return
        commit = self.random.random() < 0.6
        identity = await self._retried(
            self.node.transaction_coordinator.end,
            producer.transactional_id,
            producer.identity,
            commit=commit,
            client_version=2 if producer.is_v2 else 0,
        )
        producer.open.state = COMMITTED if commit else ABORTED
        producer.open = None
        producer.go_on_as(identity)

    async def _time_out(self) -> None:
        """Every open transaction takes too long."""
        if self.random.random() < 0.7:
            return
        self.clock.advance(TIMEOUT_MS + 1)
        await trio.sleep(11)
        for name, producer in list(self.current.items()):
            if producer.open is not None:
                producer.fence()
                self.zombies.append(self.current.pop(name))

    async def _compact(self) -> None:
        await self.node.log_manager.clean()
        self._compacted()

    def _compacted(self) -> None:
        for log in self.logs:
            log.is_compacted = True

    def _a_transactional_one(self) -> Producer | None:
        able = [producer for name, producer in sorted(self.current.items()) if name]
        return self.random.choice(able) if able else None

    async def _append(self, producer: Producer, partition: int, owner: Transaction) -> ErrorCode:
        """One batch through the Produce handler, in the model if it was acknowledged."""
        rows = []
        for _ in range(self.random.randint(1, 3)):
            self.values += 1
            rows.append((b"%d" % self.random.randrange(KEYS), b"%d" % self.values))
        batch = build_batch(
            [Record(key=key, value=value, timestamp_ms=self.clock.time_ms()) for key, value in rows],
            producer_id=producer.identity.producer_id,
            producer_epoch=producer.identity.epoch,
            base_sequence=producer.sequences[partition],
            is_transactional=producer.transactional_id is not None,
        )
        data = PartitionProduceData(index=partition, records=memoryview(bytearray(batch)))
        request = ProduceRequest(
            transactional_id=producer.transactional_id,
            acks=-1,
            timeout_ms=5_000,
            topic_data=[TopicProduceData(name=TOPIC.name, partition_data=[data])],
        )
        header = SimpleNamespace(api_version=V2_PRODUCE if producer.is_v2 else V1_PRODUCE, client_id="history")
        connection = SimpleNamespace(was_held_up=False, held_up=lambda: None, is_awaited=True, sends_files=False)
        context: Any = SimpleNamespace(
            header=header, broker=self.node, fragment=None, connection=connection, counted=None
        )
        while True:
            response = await answered(produce.handle(request, context))
            answer = response.responses[0].partition_responses[0]
            if answer.error_code not in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS):
                break
            await trio.sleep(0.01)
        if answer.error_code == ErrorCode.NONE:
            producer.sequences[partition] += len(rows)
            for number, (key, value) in enumerate(rows):
                self.logs[partition].records[answer.base_offset + number] = (key, value, owner)
        return ErrorCode(answer.error_code)


@pytest.mark.parametrize("seed", [*range(40), 61, 96, 129])
async def test_a_reader_of_what_is_committed_sees_what_the_model_says(seed: int, autojump_clock: object) -> None:
    await History(seed).run()


async def test_a_batch_that_waited_until_its_transaction_ended_is_refused(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had been verified: without a guard it would open a transaction that nobody ends."""
    history = History(0)
    async with start(history.disk, history.clock, history.ids) as node:
        history.node = node
        coordinator, replicas = node.transaction_coordinator, node.replica_manager
        identity = await history._retried(coordinator.init_producer_id, "a", TIMEOUT_MS, None)
        producer = history.current["a"] = Producer("a", identity, is_v2=False)
        await coordinator.add_partitions("a", identity, [Partition(TOPIC.name, 0)], 0)

        async def end() -> None:
            await coordinator.end("a", identity, commit=True, client_version=0)
            await trio.sleep(1)

        def begin_late(*arguments: Any, **options: Any) -> Any:
            monkeypatch.undo()
            yield end
            return (yield from replicas.begin_append(*arguments, **options))

        monkeypatch.setattr(ReplicaManager, "begin_append", lambda _, *a, **o: begin_late(*a, **o))
        assert await history._append(producer, 0, Transaction(ABORTED)) == ErrorCode.INVALID_TXN_STATE
        await history._send_plain()
        await history._check()
