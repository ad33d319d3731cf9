"""The transaction coordinator: it gives out producer ids and epochs, follows each transaction and ends it everywhere.

What it promises (KIP-98, 360, 447, 890; Kafka's TransactionCoordinator):

- The outcome of a transaction is decided by one committed record. From then on its markers are written until every
  partition has one, also after a crash or a change of leaders.
- If a producer is fenced or its transaction times out, the transaction is aborted under the next epoch, so that nothing
  that the producer still sends counts.
- The operations of one transactional id come one after the other. While markers are written they raise
  ConcurrentTransactionsError, and the client tries again.
"""

from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

from ottla.coordinator.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionalIdNotFoundError,
)
from ottla.coordinator.log import CoordinatorLog
from ottla.coordinator.partitioning import coordinator_partition
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.transaction.completion import Completion, store
from ottla.coordinator.transaction.decisions import (
    REFUSALS,
    needs_end,
    require_owner,
    require_part,
    require_settled,
)
from ottla.coordinator.transaction.fencing import Fencing, NewProducerIds
from ottla.coordinator.transaction.markers import MarkerSink
from ottla.coordinator.transaction.shard import Entry, TransactionShard
from ottla.coordinator.transaction.state import (
    NO_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_V2,
    Partition,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)
from ottla.coordinator.transaction.upkeep import Upkeep
from ottla.metadata.image import MetadataDelta, MetadataView
from ottla.runtime.supervisor import Loop, Tasks
from ottla.storage.clock import Clock

TRANSACTIONS_TOPIC: Final = "__transaction_state"


class TransactionConfig(NamedTuple):
    """The broker settings for transactions; the names are Kafka's (`transaction.…`, `transactional.id.…`)."""

    max_timeout_ms: int = 900_000
    topic_partitions: int = 50
    abort_timed_out_interval_ms: int = 10_000
    id_expiration_ms: int = 7 * 24 * 3_600_000
    id_expiration_interval_ms: int = 3_600_000


class TransactionCoordinator:
    """All transactions that this broker coordinates. `nursery` owns its background work."""

    def __init__(
        self,
        *,
        node_id: int,
        config: TransactionConfig,
        clock: Clock,
        log: CoordinatorLog,
        markers: MarkerSink,
        producer_ids: NewProducerIds,
        metadata: MetadataView,
        nursery: Tasks,
    ) -> None:
        self.config = config
        self._node_id = node_id
        self._clock = clock
        self._producer_ids = producer_ids
        self._epochs: dict[int, int] = {}
        self._runtime = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            log=log,
            clock=clock,
            nursery=nursery,
            new_shard=lambda partition: TransactionShard(partition, self._completion),
        )
        self._completion = Completion(
            runtime=self._runtime,
            markers=markers,
            clock=clock,
            epochs=self._epochs,
            nursery=nursery,
        )
        # As it was when the topic was first seen, whatever the setting says now.
        self._partition_count: int | None = None
        self._fencing = fencing = Fencing(
            runtime=self._runtime,
            completion=self._completion,
            producer_ids=producer_ids,
            metadata=metadata,
            clock=clock,
        )
        expiry_ms = config.id_expiration_ms
        upkeep = Upkeep(runtime=self._runtime, clock=clock, id_expiration_ms=expiry_ms, fencing=fencing)
        nursery.start_soon(Loop(upkeep.abort_timed_out), config.abort_timed_out_interval_ms)
        nursery.start_soon(Loop(upkeep.expire_ids), config.id_expiration_interval_ms)

    # Where transactions live

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps a transactional id, among those that the topic has."""
        return coordinator_partition(transactional_id, self._partition_count or self.config.topic_partitions)

    @property
    def runtime(self) -> CoordinatorRuntime[TransactionShard]:
        """The runtime, which loads the shards and writes their records."""
        return self._runtime

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: coordinate what this broker leads. Called after the replica manager has applied it."""
        for topic in delta.deleted_topics:
            if topic.name == TRANSACTIONS_TOPIC:
                self._partition_count = None
                for partition in range(len(topic.partitions)):
                    self._runtime.resign(partition)
        for change in delta.changed_partitions:
            if change.topic.name != TRANSACTIONS_TOPIC:
                continue
            self._partition_count = self._partition_count or len(change.topic.partitions)
            if change.after.leader == self._node_id:
                self._epochs[change.partition] = change.after.leader_epoch
            self._runtime.follow(change, self._node_id)

    def _shard(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise InvalidRequestError("a transactional id is needed")
        return self._runtime.shard(self.partition_for(transactional_id))

    @asynccontextmanager
    async def _exclusively(
        self, transactional_id: str, *, may_begin: bool = False
    ) -> AsyncIterator[tuple[TransactionShard, Entry]]:
        """The operations of a transactional id, one after the other. `may_begin`: also of one that is not known yet.

        What is answered, or refused, without a write is answered only if no other broker may have written since.
        """
        while True:
            shard = self._shard(transactional_id)
            entry = shard.entries.get(transactional_id)
            if entry is None:
                if not may_begin:
                    await self._runtime.confirm([shard.partition])
                    raise _unknown(transactional_id)
                entry = shard.entries[transactional_id] = Entry(None)
            try:
                async with entry.lock:
                    # It may have been forgotten meanwhile, or the partition has gone, and perhaps come back.
                    if shard.holds(transactional_id, entry):
                        before = entry.transaction
                        try:
                            yield shard, entry
                        except REFUSALS:
                            if entry.transaction is before:
                                await self._runtime.confirm([shard.partition])
                            raise
                        if entry.transaction is before:
                            await self._runtime.confirm([shard.partition])
                        return
            finally:
                # Also if the task was cancelled before it had the lock, which another one may have.
                if not entry.lock.locked():
                    shard.forget_unused(transactional_id, entry)

    # InitProducerId

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Give a producer its id and epoch, and fence the previous producer of the transactional id.

        An ongoing transaction of the former producer is aborted first, with ConcurrentTransactionsError meanwhile.
        """
        if transactional_id and not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"{timeout_ms} ms lies outside 1 to {self.config.max_timeout_ms} ms (transaction.max.timeout.ms)"
            )
        async with self._exclusively(transactional_id, may_begin=True) as (shard, entry):
            current = entry.transaction
            if current is None:
                producer_id = await self._producer_ids.next()
                current = Transaction(transactional_id, producer_id, NO_EPOCH, timeout_ms)
            require_settled(current)
            if expected is not None and not current.knows(expected):
                raise ProducerFencedError(f"{transactional_id} belongs to producer {current.producer_id} now")
            if current.status is TransactionStatus.ONGOING:
                await self._fencing.fence(shard, entry, current)
                raise ConcurrentTransactionsError(f"the transaction of {transactional_id} is being aborted")
            after = await self._initialized(current, expected, timeout_ms)
            await store(self._runtime, shard, entry, after)
            return after.identity

    async def _initialized(
        self, current: Transaction, expected: ProducerIdAndEpoch | None, timeout_ms: int
    ) -> Transaction:
        now_ms = self._clock.time_ms()
        if current.is_exhausted and (expected is None or expected.epoch == current.producer_epoch):
            producer_id = await self._producer_ids.next()
            return current.rotated(producer_id, timeout_ms, now_ms, keep_last_epoch=expected is not None)
        return current.initialized(expected, timeout_ms, now_ms)

    # Partitions

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[Partition], client_version: int
    ) -> None:
        """Let partitions take part in the transaction, which begins with the first of them."""
        added = frozenset(partitions)
        async with self._exclusively(transactional_id) as (shard, entry):
            current = _known(transactional_id, entry)
            require_settled(current)
            require_owner(current, producer)
            if current.status is TransactionStatus.ONGOING and added <= current.partitions:
                return
            after = current.with_partitions(added, client_version, self._clock.time_ms())
            await store(self._runtime, shard, entry, after)

    async def until_settled(self, transactional_id: str) -> None:
        """Return when no transaction of this id is being carried through here."""
        entry = self._shard(transactional_id).entries.get(transactional_id)
        if entry is not None and entry.completing is not None:
            await entry.completing.over.wait()

    async def confirm(self, transactional_id: str) -> None:
        """Before a `verify`: return when no other broker had coordinated the transactional id when this was called.
        Raises NotCoordinatorError if that cannot be known.
        """
        await self._runtime.confirm([self.partition_for(transactional_id)])

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: Partition) -> None:
        """Check that a partition takes part in the producer's ongoing transaction.

        Synchronous: unless it raises, a record that is appended before the next await belongs to the transaction.
        """
        entry = self._shard(transactional_id).entries.get(transactional_id)
        require_part(_known(transactional_id, entry), producer, partition)

    # EndTxn

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """Decide the outcome; returns when it is committed, with the identity for the next transaction.

        Before KIP-890 the identity stays, and repeating the same end gets the same answer. With it (`client_version` 2)
        every end raises the epoch, a retry is known by the previous epoch, and an empty transaction may be aborted.
        """
        async with self._exclusively(transactional_id) as (shard, entry):
            current = _known(transactional_id, entry)
            if not needs_end(current, producer, commit=commit, client_version=client_version):
                return _next_identity(current)
            after = current.prepared(
                commit=commit,
                version=client_version,
                next_producer_id=await self._fencing.next_producer_id(current, client_version),
                now_ms=self._clock.time_ms(),
            )
            await store(self._runtime, shard, entry, after)
            self._completion.begin(shard, entry)
            return _next_identity(after) if client_version >= TRANSACTION_V2 else producer

    # Administration

    def describe(self, transactional_id: str) -> Transaction:
        """Raises TransactionalIdNotFoundError."""
        entry = self._shard(transactional_id).entries.get(transactional_id)
        if entry is None or entry.transaction is None:
            raise TransactionalIdNotFoundError(f"no transaction under {transactional_id}")
        return entry.transaction

    def list_transactions(self) -> Iterator[Transaction]:
        """The state of every transactional id of this broker. There may be tens of thousands: take them in steps."""
        shards = self._runtime.shards()
        return (transaction for shard in shards for transaction in shard.transactions())


def _known(transactional_id: str, entry: Entry | None) -> Transaction:
    if entry is None or entry.transaction is None:
        raise _unknown(transactional_id)
    return entry.transaction


def _unknown(transactional_id: str) -> InvalidProducerIdMappingError:
    return InvalidProducerIdMappingError(f"nobody has initialized {transactional_id}")


def _next_identity(transaction: Transaction) -> ProducerIdAndEpoch:
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(transaction.next_producer_id, 0)
    return transaction.identity
