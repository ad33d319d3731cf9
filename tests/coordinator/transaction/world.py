"""A transaction coordinator over a log in memory, with markers that a test can hold back or refuse."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import trio
import trio.testing

from ottla.coordinator.transaction.coordinator import (
    TRANSACTIONS_TOPIC,
    TransactionConfig,
    TransactionCoordinator,
)
from ottla.coordinator.transaction.state import Partition, ProducerIdAndEpoch, TransactionStatus
from ottla.kproto.records import EndTxnMarker
from ottla.metadata.features import TRANSACTION_VERSION
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.storage.clock import ManualClock

P0, P1 = Partition("t", 0), Partition("t", 1)
MINUTE_MS = 60_000
V1, V2 = 0, 2


class Markers:
    """A MarkerSink that remembers what was written; `gate` holds it back, `refused` fails partitions."""

    def __init__(self) -> None:
        self.written: list[tuple[Partition, EndTxnMarker]] = []
        self.refused: dict[Partition, Exception] = {}
        self.gate = trio.Event()
        self.gate.set()

    async def write(self, partitions: Iterable[Partition], marker: EndTxnMarker) -> dict[Partition, Exception]:
        await self.gate.wait()
        await trio.lowlevel.checkpoint()
        failed = {}
        for partition in partitions:
            if partition in self.refused:
                failed[partition] = self.refused[partition]
            else:
                self.written.append((partition, marker))
        return failed


class World:
    def __init__(self, log: Any, markers: Markers, clock: ManualClock, nursery: trio.Nursery, **config: Any) -> None:
        self.markers = markers
        self.clock = clock
        #: The transaction version of the cluster.
        self.level = 2
        self.ids = iter(range(1_000, 10_000))
        #: Refuses what has to ask for a producer id.
        self.refuse_ids: Exception | None = None
        #: Holds back what has to ask for a producer id.
        self.id_gate = trio.Event()
        self.id_gate.set()

        async def new_producer_id() -> int:
            await self.id_gate.wait()
            await trio.lowlevel.checkpoint()
            if self.refuse_ids is not None:
                raise self.refuse_ids
            return next(self.ids)

        self.coordinator = TransactionCoordinator(
            node_id=1,
            config=TransactionConfig(topic_partitions=1)._replace(**config),
            clock=clock,
            log=log,
            markers=markers,
            producer_ids=SimpleNamespace(next=new_producer_id),
            metadata=self,
            nursery=nursery,
        )
        self.lead(1)

    @property
    def image(self) -> MetadataImage:
        return MetadataImage(features={TRANSACTION_VERSION: self.level})

    def lead(self, leader: int, partition: int = 0) -> None:
        state = PartitionState.initial((leader,))
        states = (state,) * self.coordinator.config.topic_partitions
        topic = TopicImage(TRANSACTIONS_TOPIC, uuid5(NAMESPACE_DNS, TRANSACTIONS_TOPIC), states)
        change = PartitionChange(topic, partition, None, state)
        self.coordinator.apply(MetadataDelta(MetadataImage(), MetadataImage(), changed_partitions=[change]))

    async def init(
        self, expected: ProducerIdAndEpoch | None = None, transactional_id: str = "x", timeout_ms: int = MINUTE_MS
    ) -> ProducerIdAndEpoch:
        return await self.coordinator.init_producer_id(transactional_id, timeout_ms, expected)

    async def add(self, producer: ProducerIdAndEpoch, *partitions: Partition, version: int = V1) -> None:
        await self.coordinator.add_partitions("x", producer, partitions or (P0,), version)

    async def end(self, producer: ProducerIdAndEpoch, *, commit: bool, version: int = V1) -> ProducerIdAndEpoch:
        return await self.coordinator.end("x", producer, commit=commit, client_version=version)

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked()

    def status_now(self) -> TransactionStatus:
        return self.coordinator.describe("x").status


@asynccontextmanager
async def running(log: Any, markers: Markers | None = None, **config: Any) -> AsyncIterator[World]:
    async with trio.open_nursery() as nursery:
        world = World(log, markers or Markers(), ManualClock(1_000_000), nursery, **config)
        await world.settle()
        yield world
        nursery.cancel_scope.cancel()
