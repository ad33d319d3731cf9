"""Completion of a decided transaction: a marker in every partition, then the record that says it is complete."""

import logging
from collections.abc import Mapping
from typing import Final

import trio

from ottla.coordinator.errors import CoordinatorError, CoordinatorNotAvailableError
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction import records
from ottla.coordinator.transaction.markers import MarkerSink, write_everywhere
from ottla.coordinator.transaction.shard import Completing, Entry, TransactionShard
from ottla.coordinator.transaction.state import Transaction, TransactionStatus
from ottla.kproto.records import EndTxnMarker
from ottla.runtime.supervisor import Tasks
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

RETRY_BACKOFF_SECONDS: Final = 1.0
"""The pause between two attempts to write that a transaction is over."""

Runtime = CoordinatorRuntime[TransactionShard]


async def store(runtime: Runtime, shard: TransactionShard, entry: Entry, after: Transaction) -> None:
    """Commit a step of a transaction. The caller holds the entry's lock.

    Shielded: the next operation of the transactional id has to see it. The wait ends with the write, which the runtime
    settles in every case.
    """
    with trio.CancelScope(shield=True):
        await runtime.write(shard.partition, [records.build(after)], shard=shard)
    entry.commit(after)


class Completion:
    """Carries decided transactions through, each in a task of its own, which `nursery` runs.

    A task ends with its transaction, or when the shard is unloaded; the broker that loads it next starts over.
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        markers: MarkerSink,
        clock: Clock,
        epochs: Mapping[int, int],
        nursery: Tasks,
    ) -> None:
        """`epochs` are the leader epochs of the partitions of `__transaction_state`, as they are now."""
        self._runtime = runtime
        self._markers = markers
        self._clock = clock
        self._epochs = epochs
        self._nursery = nursery

    def begin(self, shard: TransactionShard, entry: Entry) -> None:
        """The outcome is decided and committed: carry it through."""
        transaction = entry.transaction
        assert transaction is not None
        assert transaction.is_prepared
        if entry.completing is None and shard.holds(transaction.transactional_id, entry):
            self._nursery.start_soon(self._complete, shard, entry, transaction, entry.begin_completing())

    def resume(self, shard: TransactionShard) -> None:
        """A shard is loaded: carry through what was decided before."""
        self._nursery.start_soon(self._resume, shard)

    async def _resume(self, shard: TransactionShard) -> None:
        time_slice = TimeSlice()
        for transactional_id in list(shard.entries):
            await time_slice.maybe_yield()
            entry = shard.entries.get(transactional_id)
            if entry is not None and entry.transaction is not None and entry.transaction.is_prepared:
                self.begin(shard, entry)

    async def _complete(
        self, shard: TransactionShard, entry: Entry, prepared: Transaction, completing: Completing
    ) -> None:
        marker = EndTxnMarker(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            coordinator_epoch=self._epochs.get(shard.partition, 0),
            is_commit=prepared.status is TransactionStatus.PREPARE_COMMIT,
        )
        try:
            with completing.scope:
                await write_everywhere(self._markers, prepared.partitions, marker)
                await self._finish(shard, entry, prepared)
        finally:
            entry.end_completing()
            completing.over.set()

    async def _finish(self, shard: TransactionShard, entry: Entry, prepared: Transaction) -> None:
        """Write that it is over; if that is refused for a while, try again, as Kafka does."""
        while True:
            async with entry.lock:
                try:
                    return await store(self._runtime, shard, entry, prepared.completed(self._clock.time_ms()))
                except CoordinatorNotAvailableError as error:
                    keys = {"transactional_id": prepared.transactional_id, "error": str(error)}
                    logger.warning("%s is not marked as complete yet: %s", prepared.transactional_id, error, extra=keys)
                except CoordinatorError as error:
                    # The partition has moved. Its next coordinator writes the markers again, which is harmless.
                    return logger.debug("%s is not marked as complete: %s", prepared.transactional_id, error)
            await trio.sleep(RETRY_BACKOFF_SECONDS)
