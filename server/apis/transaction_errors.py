"""The errors of transactions in APIs that have their own codes for them."""

from typing import Final

from ottla.coordinator import errors as coordinator
from ottla.kproto.errors import ErrorCode
from ottla.server.apis.errors import error_code

# What a client from before transactions v2 takes for a temporary error, and tries again without looking for the leader.
_PASSING: Final = (
    coordinator.CoordinatorLoadInProgressError,
    coordinator.CoordinatorNotAvailableError,
    coordinator.NotCoordinatorError,
)
FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
FIRST_PRODUCE_OF_V2: Final = 12


def produce_refusal(error: coordinator.CoordinatorError, version: int) -> tuple[ErrorCode, str | None]:
    """The error of a Produce whose transactional batch the coordinator refuses (Kafka's ReplicaManager, KIP-890).

    Only where the code is another one than the coordinator's, a sentence stands beside it.
    """
    if isinstance(error, coordinator.ProducerFencedError):
        return ErrorCode.INVALID_PRODUCER_EPOCH, None
    if isinstance(error, coordinator.TransactionAbortableError) and version < FIRST_PRODUCE_WITH_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE, "Partition was not added to the transaction"
    is_early = isinstance(error, coordinator.ConcurrentTransactionsError) and version < FIRST_PRODUCE_OF_V2
    if is_early or isinstance(error, _PASSING):
        reason = f"Unable to verify the partition has been added to the transaction: {error}"
        return ErrorCode.NOT_ENOUGH_REPLICAS, reason
    return error_code(error), None


def fenced_before(error: coordinator.CoordinatorError, version: int, first_version: int) -> ErrorCode:
    """PRODUCER_FENCED only from `first_version` on: older clients know INVALID_PRODUCER_EPOCH (KIP-588)."""
    code = error_code(error)
    if code is ErrorCode.PRODUCER_FENCED and version < first_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if code is ErrorCode.TRANSACTION_ABORTABLE:
        return ErrorCode.INVALID_TXN_STATE
    return code
