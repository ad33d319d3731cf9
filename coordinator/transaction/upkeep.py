"""Periodic work: transactions that take too long are aborted, transactional ids that are unused expire."""

import logging
from collections.abc import Awaitable, Callable

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction import records
from ottla.coordinator.transaction.decisions import OVER
from ottla.coordinator.transaction.fencing import Fencing
from ottla.coordinator.transaction.shard import Entry, TransactionShard
from ottla.coordinator.transaction.state import Transaction, TransactionStatus
from ottla.metastore.errors import MetadataError
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

Work = Callable[[TransactionShard, Entry, Transaction], Awaitable[None]]


class Upkeep:
    """Looks after the transactions of one broker. If one of them fails, the others are still looked after."""

    def __init__(
        self,
        *,
        runtime: CoordinatorRuntime[TransactionShard],
        clock: Clock,
        id_expiration_ms: int,
        fencing: Fencing,
    ) -> None:
        self._runtime = runtime
        self._clock = clock
        self._id_expiration_ms = id_expiration_ms
        self._fencing = fencing

    async def abort_timed_out(self, interval_ms: int) -> None:
        """Abort transactions that take longer than their producers said they would; until cancelled."""
        await self._repeat(interval_ms, "does not abort what has timed out", self._is_timed_out, self._abort)

    async def expire_ids(self, interval_ms: int) -> None:
        """Forget ids that nobody has used for `transactional.id.expiration.ms`; until cancelled."""
        await self._repeat(interval_ms, "does not forget unused ids", self._is_unused, self._forget)

    async def _repeat(self, interval_ms: int, failure: str, is_due: Callable[[Transaction], bool], work: Work) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            for shard in self._runtime.loaded_shards():
                error = await self._look_after(shard, is_due, work)
                if error is not None:
                    keys = {"partition": shard.partition, "error": str(error)}
                    text = "partition %d of __transaction_state %s now: %s"
                    logger.warning(text, shard.partition, failure, error, extra=keys)

    async def _look_after(
        self, shard: TransactionShard, is_due: Callable[[Transaction], bool], work: Work
    ) -> Exception | None:
        """Do the work where it is due; returns the first refusal."""
        refused: Exception | None = None
        time_slice = TimeSlice()
        for transactional_id in list(shard.entries):
            await time_slice.maybe_yield()
            entry = shard.entries.get(transactional_id)
            if entry is None or entry.transaction is None or not is_due(entry.transaction):
                continue
            async with entry.lock:
                current = entry.transaction
                if shard.holds(transactional_id, entry) and is_due(current):
                    try:
                        await work(shard, entry, current)
                    except (CoordinatorError, MetadataError) as error:
                        refused = refused or error
                    except Exception:
                        # Whatever is wrong with this one, the others are still looked after, and it is tried again.
                        keys = {"transactional_id": transactional_id}
                        logger.exception("%s cannot be looked after", transactional_id, extra=keys)
        return refused

    def _is_timed_out(self, transaction: Transaction) -> bool:
        is_ongoing = transaction.status is TransactionStatus.ONGOING
        return is_ongoing and transaction.start_ms + transaction.timeout_ms < self._clock.time_ms()

    async def _abort(self, shard: TransactionShard, entry: Entry, current: Transaction) -> None:
        keys = {"transactional_id": current.transactional_id}
        logger.info("the transaction of %s timed out and is aborted", current.transactional_id, extra=keys)
        await self._fencing.fence(shard, entry, current)

    def _is_unused(self, transaction: Transaction) -> bool:
        is_idle = transaction.status in (TransactionStatus.EMPTY, *OVER)
        return is_idle and transaction.update_ms <= self._clock.time_ms() - self._id_expiration_ms

    async def _forget(self, shard: TransactionShard, entry: Entry, current: Transaction) -> None:
        await self._runtime.write(shard.partition, [records.tombstone(current.transactional_id)], shard=shard)
