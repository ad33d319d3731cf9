"""Transactions as records of `__transaction_state`, in Kafka's own format."""

from typing import Final

from ottla.coordinator.replay import CoordinatorRecord, SkippedRecordError
from ottla.coordinator.transaction.state import Partition, Transaction, TransactionStatus
from ottla.kproto.errors import DecodeError
from ottla.kproto.internal_records import record_types
from ottla.kproto.internal_records.coordinator import (
    UnknownRecordTypeError,
    UnknownValueVersionError,
    build_key,
    build_value,
)
from ottla.kproto.internal_records.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue

VALUE_VERSION: Final = 1  # flexible: what transaction.version 2 writes


def build(transaction: Transaction) -> CoordinatorRecord:
    """The record of a transactional id's whole state."""
    topics: dict[str, list[int]] = {}
    for partition in sorted(transaction.partitions):
        topics.setdefault(partition.topic, []).append(partition.partition)
    partitions = [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()]
    value = TransactionLogValue(
        producer_id=transaction.producer_id,
        previous_producer_id=transaction.previous_producer_id,
        next_producer_id=transaction.next_producer_id,
        producer_epoch=transaction.producer_epoch,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_status=transaction.status,
        transaction_partitions=None if transaction.status is TransactionStatus.EMPTY else partitions,
        transaction_last_update_timestamp_ms=transaction.update_ms,
        transaction_start_timestamp_ms=transaction.start_ms,
        client_transaction_version=transaction.client_version,
    )
    return CoordinatorRecord(_key(transaction.transactional_id), build_value(value, VALUE_VERSION))


def tombstone(transactional_id: str) -> CoordinatorRecord:
    """The record that forgets a transactional id."""
    return CoordinatorRecord(_key(transactional_id), None)


def _key(transactional_id: str) -> bytes:
    return build_key(TransactionLogKey(transactional_id=transactional_id))


def parse(record: CoordinatorRecord) -> tuple[str, Transaction | None]:
    """The transactional id and its state, None for a tombstone.

    Raises SkippedRecordError for what a newer broker wrote, which Kafka's TransactionLog.read passes over too, and
    DecodeError for damage.
    """
    try:
        key, value = record_types("__transaction_state").parse(record.key, record.value)
    except (UnknownRecordTypeError, UnknownValueVersionError) as error:
        raise SkippedRecordError(str(error)) from None
    assert isinstance(key, TransactionLogKey)
    if value is None:
        return key.transactional_id, None
    assert isinstance(value, TransactionLogValue)
    try:
        status = TransactionStatus(value.transaction_status)
    except ValueError:
        raise DecodeError(f"there is no transaction status {value.transaction_status}") from None
    return key.transactional_id, Transaction(
        transactional_id=key.transactional_id,
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        status=status,
        partitions=frozenset(
            Partition(topic.topic, index)
            for topic in value.transaction_partitions or ()
            for index in topic.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
