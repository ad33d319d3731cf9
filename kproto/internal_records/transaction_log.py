"""Transactions in `__transaction_state`.

One key a transactional id; the topic's partition is the id's Java hash modulo the number of partitions. The
value is the whole state of the transaction, rewritten at each step. `transaction_status` is 0 Empty, 1
Ongoing, 2 PrepareCommit, 3 PrepareAbort, 4 CompleteCommit, 5 CompleteAbort, 6 Dead, 7 PrepareEpochFence.
The partitions are null in no state but empty outside of a transaction. Version 1 is flexible, and its
tagged fields serve transactions v2 (KIP-890): the producer id and epoch before and after the epoch bump
that ends each transaction, and which transaction version the client speaks.
"""

from ottla.kproto.internal_records.coordinator import CoordinatorKey, CoordinatorValue
from ottla.kproto.schema import Struct, array, int8, int16, int32, int64, string


class TransactionLogKey(CoordinatorKey, record_type=0, versions="0"):
    transactional_id: str = string("0")


class PartitionsSchema(Struct):
    topic: str = string("0+")
    partition_ids: list[int] = array(int32, "0+")


class TransactionLogValue(CoordinatorValue, record_type=0, versions="0-1", flexible="1+"):
    producer_id: int = int64("0+")
    previous_producer_id: int = int64("1+", tag=0, tagged="1+", default=-1)
    next_producer_id: int = int64("1+", tag=1, tagged="1+", default=-1)
    producer_epoch: int = int16("0+")
    next_producer_epoch: int = int16("1+", tag=3, tagged="1+", default=-1)
    transaction_timeout_ms: int = int32("0+")
    transaction_status: int = int8("0+")
    transaction_partitions: list[PartitionsSchema] | None = array(PartitionsSchema, "0+", nullable="0+")
    transaction_last_update_timestamp_ms: int = int64("0+")
    transaction_start_timestamp_ms: int = int64("0+")
    client_transaction_version: int = int16("1+", tag=2, tagged="1+")
