"""Checks of requests against the state of a transactional id: decisions alone, without any waiting.

The order of Apache Kafka 4.3's checks shows in its answers (TransactionCoordinator):

- InitProducerId, AddPartitionsToTxn and, under transactions v2, EndTxn first check whether the last transaction is
  still being completed. If so they answer CONCURRENT_TRANSACTIONS to every request: the producer id and epoch to
  compare with are about to change.
- EndTxn before v2 and the verification of a partition check the producer's identity first.
"""

from typing import Final

from ottla.coordinator.errors import (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
    TransactionAbortableError,
)
from ottla.coordinator.transaction.state import (
    EXHAUSTED_EPOCH,
    TRANSACTION_V2,
    Partition,
    ProducerIdAndEpoch,
    Transaction,
    TransactionStatus,
)

OVER: Final = (TransactionStatus.COMPLETE_COMMIT, TransactionStatus.COMPLETE_ABORT)
REFUSALS: Final = (
    ConcurrentTransactionsError,
    InvalidProducerIdMappingError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
"""Refusals that follow from the state of a transactional id alone."""


def require_settled(current: Transaction) -> None:
    """Raise ConcurrentTransactionsError while the last transaction is being ended."""
    if current.is_prepared:
        raise ConcurrentTransactionsError(f"the last transaction of {current.transactional_id} is being ended")


def require_owner(current: Transaction, producer: ProducerIdAndEpoch) -> None:
    """Raise unless the transactional id belongs to exactly this producer."""
    _require_id(current, producer)
    if current.producer_epoch != producer.epoch:
        raise _fenced(current, producer)


def require_part(current: Transaction, producer: ProducerIdAndEpoch, partition: Partition) -> None:
    """Raise unless a partition takes part in the producer's ongoing transaction."""
    require_owner(current, producer)
    require_settled(current)
    if current.status is not TransactionStatus.ONGOING or partition not in current.partitions:
        raise TransactionAbortableError(f"{partition.topic}-{partition.partition} is not part of the transaction")


def needs_end(current: Transaction, producer: ProducerIdAndEpoch, *, commit: bool, client_version: int) -> bool:
    """Whether an EndTxn has to be written. False: it already was. Raises if it must not be."""
    if client_version >= TRANSACTION_V2:
        return _needs_end(current, producer, commit=commit)
    require_owner(current, producer)
    require_settled(current)
    if current.status is TransactionStatus.ONGOING:
        return True
    if current.status is _ended(commit=commit):
        return False
    raise _refusal(current, commit=commit)


def _needs_end(current: Transaction, producer: ProducerIdAndEpoch, *, commit: bool) -> bool:
    """Under transactions v2, where every end raises the epoch (KIP-890): a retry is recognized by the previous epoch.

    | state           | abort, retry | abort         | commit, retry | commit        |
    |-----------------|--------------|---------------|---------------|---------------|
    | ONGOING         | fenced       | end           | fenced        | end           |
    | EMPTY           | fenced       | end           | fenced        | invalid state |
    | COMPLETE_ABORT  | done already | end           | invalid state | invalid state |
    | COMPLETE_COMMIT | invalid state| end           | done already  | invalid state |

    Aborting when there is nothing to abort raises the epoch all the same.
    """
    require_settled(current)
    has_former_id = _is_retry_with_former_id(current, producer)
    if not has_former_id:
        _require_id(current, producer)
    is_retry = has_former_id or current.producer_epoch == producer.epoch + 1
    if is_retry:
        if current.status not in OVER:
            raise _fenced(current, producer)
        if current.status is _ended(commit=commit):
            return False
        raise _refusal(current, commit=commit)
    if current.producer_epoch != producer.epoch:
        raise _fenced(current, producer)
    if commit and current.status is not TransactionStatus.ONGOING:
        raise _refusal(current, commit=commit)
    return True


def _is_retry_with_former_id(current: Transaction, producer: ProducerIdAndEpoch) -> bool:
    """Whether the producer repeats an end that used up its epochs, and has not heard of its new id yet."""
    return (
        producer.producer_id == current.previous_producer_id
        and producer.epoch == EXHAUSTED_EPOCH
        and current.producer_epoch == 0
    )


def _ended(*, commit: bool) -> TransactionStatus:
    return TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT


def _require_id(current: Transaction, producer: ProducerIdAndEpoch) -> None:
    if current.producer_id != producer.producer_id:
        raise InvalidProducerIdMappingError(
            f"{current.transactional_id} does not belong to producer {producer.producer_id}"
        )


def _fenced(current: Transaction, producer: ProducerIdAndEpoch) -> ProducerFencedError:
    return ProducerFencedError(f"{current.transactional_id} is at epoch {current.producer_epoch}, not {producer.epoch}")


def _refusal(current: Transaction, *, commit: bool) -> InvalidTransactionStateError:
    return InvalidTransactionStateError(
        f"{current.transactional_id} is in {current.status.title} and cannot {'commit' if commit else 'abort'}"
    )
