"""The transaction coordinator: gives out producer ids and epochs, follows each transaction and ends it everywhere.

What it promises (KIP-98, 360, 447, 890; Kafka's TransactionCoordinator):

- The outcome of a transaction is decided by one committed record. From then on its markers are written until every
  partition has one, also after a crash or a change of leaders.
- A producer that was fenced, or whose transaction timed out, has its transaction aborted under the next epoch, so that
  nothing that it still sends counts.
- The operations of one transactional id come one after the other. While markers are written they answer
  ConcurrentTransactionsError, and the client tries again.
"""

import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

import trio

from ottla.kproto.records import EndTxnMarker
from ottla.server.coordinator.errors import (
    ConcurrentTransactionsError,
    CoordinatorError,
    InvalidProducerIdMappingError,
    InvalidRequestError,
    InvalidTransactionStateError,
    InvalidTransactionTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionalIdNotFoundError,
)
from ottla.server.coordinator.log import CoordinatorLog
from ottla.server.coordinator.partitioning import coordinator_partition
from ottla.server.coordinator.runtime import CoordinatorRuntime
from ottla.server.coordinator.transaction import records
from ottla.server.coordinator.transaction.markers import MarkerSink, write_everywhere
from ottla.server.coordinator.transaction.shard import Entry, TransactionShard
from ottla.server.coordinator.transaction.state import (
    EXHAUSTED_EPOCH,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Partition,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)
from ottla.server.metadata.image import MetadataDelta
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

TRANSACTIONS_TOPIC: Final = "__transaction_state"
TRANSACTION_V2: Final = 2

_OVER: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)


class TransactionConfig(NamedTuple):
    """The broker settings that transactions obey; the names are Kafka's (`transaction.…`, `transactional.id.…`)."""

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
        new_producer_id: Callable[[], Awaitable[int]],
        nursery: trio.Nursery,
    ) -> None:
        self.config = config
        self._node_id = node_id
        self._clock = clock
        self._markers = markers
        self._new_producer_id = new_producer_id
        self._nursery = nursery
        self._epochs: dict[int, int] = {}
        self._runtime = CoordinatorRuntime(
            TRANSACTIONS_TOPIC,
            log=log,
            clock=clock,
            nursery=nursery,
            new_shard=lambda partition: TransactionShard(partition, self._resume),
        )
        # As it was when the topic was first seen, whatever the setting says now.
        self._partition_count: int | None = None
        nursery.start_soon(self._repeat, config.abort_timed_out_interval_ms, self._abort_timed_out)
        nursery.start_soon(self._repeat, config.id_expiration_interval_ms, self._expire_ids)

    # Where transactions live

    def partition_for(self, transactional_id: str) -> int:
        """The partition of `__transaction_state` that keeps a transactional id, among those that the topic has."""
        return coordinator_partition(transactional_id, self._partition_count or self.config.topic_partitions)

    @property
    def runtime(self) -> CoordinatorRuntime[TransactionShard]:
        """What runs the shards, for those who watch it."""
        return self._runtime

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: coordinate what this broker leads. Called after the replica manager has applied it."""
        for change in delta.changed_partitions:
            if change.topic.name != TRANSACTIONS_TOPIC:
                continue
            self._partition_count = self._partition_count or len(change.topic.partitions)
            if change.after.leader == self._node_id:
                self._epochs[change.partition] = change.after.leader_epoch
                self._runtime.elect(change.partition)
            else:
                self._runtime.resign(change.partition)
        for topic in delta.deleted_topics:
            if topic.name == TRANSACTIONS_TOPIC:
                self._partition_count = None
                for partition in range(len(topic.partitions)):
                    self._runtime.resign(partition)

    def _shard(self, transactional_id: str) -> TransactionShard:
        if not transactional_id:
            raise InvalidRequestError("a transactional id is needed")
        return self._runtime.shard(self.partition_for(transactional_id))

    def _entry(self, transactional_id: str) -> Entry:
        entry = self._shard(transactional_id).entries.get(transactional_id)
        if entry is None:
            raise InvalidProducerIdMappingError(f"nobody has initialized {transactional_id}")
        return entry

    async def _commit(self, entry: Entry, after: Transaction) -> None:
        """Commit a step. Shielded: the next operation of the transactional id has to see it."""
        with trio.CancelScope(shield=True):
            await self._runtime.write(self.partition_for(after.transactional_id), [records.build(after)])
        entry.transaction = after  # what replay made of it, with the last epoch that no record holds

    # InitProducerId

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, expected: ProducerIdAndEpoch | None
    ) -> ProducerIdAndEpoch:
        """Give a producer its identity and fence whoever had the transactional id before.

        An ongoing transaction of the former producer is aborted first, with ConcurrentTransactionsError meanwhile.
        """
        shard = self._shard(transactional_id)
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            raise InvalidTransactionTimeoutError(
                f"{timeout_ms} ms lies outside 1 to {self.config.max_timeout_ms} ms (transaction.max.timeout.ms)"
            )
        entry = shard.entries.get(transactional_id)
        if entry is None:
            entry = shard.entries[transactional_id] = Entry(None)
        async with entry.lock:
            current = entry.transaction
            if current is None:
                producer_id = await self._new_producer_id()
                current = Transaction(transactional_id, producer_id, NO_EPOCH, timeout_ms)
            if expected is not None and not current.knows(expected):
                raise ProducerFencedError(f"{transactional_id} belongs to producer {current.producer_id} now")
            if current.is_prepared:
                raise ConcurrentTransactionsError(f"the last transaction of {transactional_id} is being ended")
            if current.status is TransactionStatus.ONGOING:
                await self._fence(entry, current)
                raise ConcurrentTransactionsError(f"the transaction of {transactional_id} is being aborted")
            after = await self._initialized(current, expected, timeout_ms)
            await self._commit(entry, after)
            return after.identity

    async def _initialized(
        self, current: Transaction, expected: ProducerIdAndEpoch | None, timeout_ms: int
    ) -> Transaction:
        now_ms = self._clock.time_ms()
        if current.is_exhausted and (expected is None or expected.epoch == current.producer_epoch):
            producer_id = await self._new_producer_id()
            return current.rotated(producer_id, timeout_ms, now_ms, keep_last_epoch=expected is not None)
        return current.initialized(expected, timeout_ms, now_ms)

    async def _fence(self, entry: Entry, current: Transaction) -> None:
        """Abort an ongoing transaction under the next epoch, so that its producer is shut out."""
        after = current.prepared(
            commit=False,
            client_version=min(current.client_version, 1),
            next_producer_id=NO_PRODUCER_ID,
            now_ms=self._clock.time_ms(),
            fence=True,
        )
        await self._commit(entry, after._replace(client_version=current.client_version))
        self._finish_soon(entry)

    # Partitions

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[Partition], client_version: int
    ) -> None:
        """Let partitions take part in the transaction; it begins with the first ones."""
        entry = self._entry(transactional_id)
        added = frozenset(partitions)
        async with entry.lock:
            current = self._owned(entry, transactional_id, producer)
            if current.status is TransactionStatus.ONGOING and added <= current.partitions:
                return
            await self._commit(entry, current.with_partitions(added, client_version, self._clock.time_ms()))

    def verify(self, transactional_id: str, producer: ProducerIdAndEpoch, partition: Partition) -> None:
        """Check that a partition takes part in the producer's ongoing transaction.

        Synchronous: if it raises nothing, a record appended before the next await belongs to the transaction.
        """
        entry = self._entry(transactional_id)
        current = self._owned(entry, transactional_id, producer)
        if current.status is not TransactionStatus.ONGOING or partition not in current.partitions:
            raise TransactionAbortableError(f"{partition.topic}-{partition.partition} is not part of the transaction")

    def _owned(self, entry: Entry, transactional_id: str, producer: ProducerIdAndEpoch) -> Transaction:
        """The transaction, if this producer may go on with it."""
        current = entry.transaction
        if current is None or current.producer_id != producer.producer_id:
            raise InvalidProducerIdMappingError(
                f"{transactional_id} does not belong to producer {producer.producer_id}"
            )
        if current.producer_epoch != producer.epoch:
            raise ProducerFencedError(f"{transactional_id} is at epoch {current.producer_epoch}, not {producer.epoch}")
        if current.is_prepared:
            raise ConcurrentTransactionsError(f"the last transaction of {transactional_id} is being ended")
        return current

    # EndTxn

    async def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int
    ) -> ProducerIdAndEpoch:
        """Decide the outcome; returns when it is committed, with the identity for the next transaction.

        Before KIP-890 the identity stays, and ending again alike is answered alike. With it (`client_version` 2) every
        end raises the epoch, a retry is told by the epoch before, and an empty transaction may be aborted.
        """
        entry = self._entry(transactional_id)
        async with entry.lock:
            current = entry.transaction
            if current is None:
                raise InvalidProducerIdMappingError(f"nobody has initialized {transactional_id}")
            is_v2 = client_version >= TRANSACTION_V2
            retried = is_v2 and _is_retry(current, producer)
            if current.producer_id != producer.producer_id and not retried:
                raise InvalidProducerIdMappingError(
                    f"{transactional_id} does not belong to producer {producer.producer_id}"
                )
            if current.producer_epoch != producer.epoch and not retried:
                raise ProducerFencedError(
                    f"{transactional_id} is at epoch {current.producer_epoch}, not {producer.epoch}"
                )
            if not _needs_end(current, commit=commit, is_v2=is_v2, retried=retried):
                return _next_identity(current)
            next_producer_id = NO_PRODUCER_ID
            if is_v2 and current.producer_epoch >= EXHAUSTED_EPOCH:
                next_producer_id = await self._new_producer_id()
            after = current.prepared(
                commit=commit,
                client_version=client_version,
                next_producer_id=next_producer_id,
                now_ms=self._clock.time_ms(),
            )
            await self._commit(entry, after)
            self._finish_soon(entry)
            return _next_identity(after) if is_v2 else producer

    def _finish_soon(self, entry: Entry) -> None:
        if not entry.is_finishing:
            entry.is_finishing = True
            entry.scope = trio.CancelScope()
            self._nursery.start_soon(self._finish, entry)

    def _resume(self, shard: TransactionShard) -> None:
        """A shard is loaded: what was decided before is carried through."""
        for entry in shard.entries.values():
            if entry.transaction is not None and entry.transaction.is_prepared:
                self._finish_soon(entry)

    async def _finish(self, entry: Entry) -> None:
        """Write the markers of a decided transaction, then its completion."""
        prepared = entry.transaction
        assert prepared is not None
        assert prepared.is_prepared
        partition = self.partition_for(prepared.transactional_id)
        marker = EndTxnMarker(
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            coordinator_epoch=self._epochs.get(partition, 0),
            is_commit=prepared.status is TransactionStatus.PREPARE_COMMIT,
        )
        with entry.scope:
            await write_everywhere(self._markers, prepared.partitions, marker)
            async with entry.lock:
                try:
                    await self._commit(entry, prepared.completed(self._clock.time_ms()))
                except CoordinatorError as error:
                    # The markers are there; whoever loads the partition next writes them again, which is harmless.
                    keys = {"transactional_id": prepared.transactional_id, "error": str(error)}
                    logger.warning("%s is not marked as complete: %s", prepared.transactional_id, error, extra=keys)
                finally:
                    entry.is_finishing = False

    # Administration

    def describe(self, transactional_id: str) -> Transaction:
        """Raises TransactionalIdNotFoundError."""
        entry = self._shard(transactional_id).entries.get(transactional_id)
        if entry is None or entry.transaction is None:
            raise TransactionalIdNotFoundError(f"no transaction under {transactional_id}")
        return entry.transaction

    def list_transactions(self) -> list[Transaction]:
        """The state of every transactional id of this broker."""
        return [transaction for shard in self._runtime.shards() for transaction in shard.transactions()]

    # Timers

    async def _repeat(self, interval_ms: int, work: Callable[[TransactionShard], Awaitable[None]]) -> None:
        while True:
            await trio.sleep(interval_ms / 1000)
            try:
                for shard in self._runtime.shards():
                    await work(shard)
            except CoordinatorError as error:
                logger.info("transactions are looked after later: %s", error)

    async def _abort_timed_out(self, shard: TransactionShard) -> None:
        now_ms = self._clock.time_ms()
        for entry in list(shard.entries.values()):
            if not _is_timed_out(entry.transaction, now_ms):
                continue
            async with entry.lock:
                current = entry.transaction
                if current is not None and _is_timed_out(current, now_ms):
                    keys = {"transactional_id": current.transactional_id}
                    logger.info("the transaction of %s timed out and is aborted", current.transactional_id, extra=keys)
                    await self._fence(entry, current)

    async def _expire_ids(self, shard: TransactionShard) -> None:
        before_ms = self._clock.time_ms() - self.config.id_expiration_ms
        for transactional_id, entry in list(shard.entries.items()):
            async with entry.lock:
                current = entry.transaction
                idle = current is not None and current.status in (TransactionStatus.EMPTY, *_OVER)
                if current is not None and idle and current.update_ms <= before_ms:
                    await self._runtime.write(shard.partition, [records.tombstone(transactional_id)])


def _is_timed_out(transaction: Transaction | None, now_ms: int) -> bool:
    return (
        transaction is not None
        and transaction.status is TransactionStatus.ONGOING
        and transaction.start_ms + transaction.timeout_ms < now_ms
    )


def _is_retry(current: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer repeats an end whose answer, with its new epoch, was lost (KIP-890)."""
    if producer.producer_id == current.producer_id:
        return producer.epoch == current.producer_epoch - 1
    return (
        producer.producer_id == current.previous_producer_id
        and producer.epoch == EXHAUSTED_EPOCH
        and current.producer_epoch == 0
    )


def _needs_end(current: Transaction, *, commit: bool, is_v2: bool, retried: bool) -> bool:
    """Whether an end has to be written. False: it was already; raises if it contradicts what was."""
    wanted = TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT
    preparing = TransactionStatus.PREPARE_COMMIT if commit else TransactionStatus.PREPARE_ABORT
    refusal = InvalidTransactionStateError(
        f"{current.transactional_id} is in {current.status.title} and cannot {'commit' if commit else 'abort'}"
    )
    if current.status is TransactionStatus.ONGOING:
        if retried:
            raise ProducerFencedError(f"{current.transactional_id} has begun another transaction")
        return True
    if current.status is preparing and (retried or not is_v2):
        raise ConcurrentTransactionsError(f"the transaction of {current.transactional_id} is being ended")
    if current.status is wanted and (retried or not is_v2):
        return False
    if is_v2 and not commit and not retried and not current.is_prepared:
        return True  # nothing was written, but the epoch is to rise all the same
    raise refusal


def _next_identity(transaction: Transaction) -> ProducerIdAndEpoch:
    if transaction.next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(transaction.next_producer_id, 0)
    return transaction.identity
