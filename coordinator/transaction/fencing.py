"""Shuts out the producer of an ongoing transaction: it is aborted under the next epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from ottla.coordinator.transaction.completion import Completion, Runtime, store
from ottla.coordinator.transaction.state import NO_PRODUCER_ID, TRANSACTION_V2, Transaction
from ottla.metadata.features import TRANSACTION_VERSION

if TYPE_CHECKING:
    from ottla.coordinator.transaction.shard import Entry, TransactionShard
    from ottla.metadata.image import MetadataView
    from ottla.storage.clock import Clock


class NewProducerIds(Protocol):
    """Where producer ids come from; `ottla.metadata.producer_ids.ProducerIds`."""

    async def next(self) -> int:
        """One that was never given out before; raises MetadataError if none can be had now."""


class Fencing:
    """Used for a producer that begins again, and for a transaction that takes too long."""

    def __init__(
        self,
        *,
        runtime: Runtime,
        completion: Completion,
        producer_ids: NewProducerIds,
        metadata: MetadataView,
        clock: Clock,
    ) -> None:
        self._runtime = runtime
        self._completion = completion
        self._producer_ids = producer_ids
        self._metadata = metadata
        self._clock = clock

    async def fence(self, shard: TransactionShard, entry: Entry, current: Transaction) -> None:
        """Abort an ongoing transaction under the next epoch. The caller holds the entry's lock."""
        version = self._metadata.image.features.get(TRANSACTION_VERSION, 0)
        after = current.fenced(
            version=version,
            next_producer_id=await self.next_producer_id(current, version),
            now_ms=self._clock.time_ms(),
        )
        await store(self._runtime, shard, entry, after)
        self._completion.begin(shard, entry)

    async def next_producer_id(self, current: Transaction, version: int) -> int:
        """The producer id that goes on after the end of a transaction, if it uses up the epochs of this one."""
        if version >= TRANSACTION_V2 and current.is_exhausted:
            return await self._producer_ids.next()
        return NO_PRODUCER_ID
