"""Everything the storage layer raises.

Each docstring says when the error is raised and what the caller may still do; `code` is what a client is answered. If
an append raises, nothing has changed: no offset was assigned, no byte was queued.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.kproto.errors import ApiError, ErrorCode


class StorageError(ApiError):
    """The base of all storage errors; never raised itself."""


class StoreOfflineError(StorageError):
    """The store has failed (a write, a sync or a read of the disk) and has stopped for good.

    Nothing that was waiting for it will be acknowledged. The caller answers KAFKA_STORAGE_ERROR; other stores
    still work. Only a restart, which recovers from what the disk holds, brings the store back.
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR


class DiskFullError(StorageError):
    """There is no room on the disk for now.

    The caller answers KAFKA_STORAGE_ERROR, after which clients try again. An append that raises it has changed nothing.
    One that is waiting is not acknowledged, but stays in memory, and is in the log if the disk has room before the node
    stops. Meanwhile, what was acknowledged is served.
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR


class LogClosedError(StorageError):
    """The log was closed or its partition deleted while the operation was waiting, or before it began.

    The caller forgets the log; the partition may exist again under another topic id.
    """

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class OffsetOutOfRangeError(StorageError):
    """The offset lies below the log start offset or above the readable end.

    Nothing is wrong with the log; the caller may read again from within the range.
    """

    code = ErrorCode.OFFSET_OUT_OF_RANGE

    def __init__(self, offset: int, log_start_offset: int, end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside the log's range [{log_start_offset}, {end_offset}]")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class CorruptLogError(StorageError):
    """Bytes on disk fail their checksum, contradict each other or are missing, outside the tail that recovery may cut.

    No byte of the damaged piece is served. The caller answers CORRUPT_MESSAGE and may read other offsets; `ottla fsck`
    names the damage. If a read has found it, `path` and `position` say at which byte of which file, and sound records
    may follow from the offset `resumes_at` on; otherwise these are empty and -1.
    """

    code = ErrorCode.CORRUPT_MESSAGE

    def __init__(self, message: str, *, path: str = "", position: int = -1, resumes_at: int = -1) -> None:
        super().__init__(message)
        self.path = path
        self.position = position
        self.resumes_at = resumes_at


class DataDirLockedError(StorageError):
    """Another process holds the data directory's lock. Nothing was opened; the caller gives up."""


class DataDirUnusableError(StorageError):
    """The data directory cannot be written to: it belongs to another user, or is on a read-only file system."""


class UnsupportedFormatError(StorageError):
    """A file was written in a format version that this release does not read.

    Nothing was changed; a release that knows the version can still open it.
    """


class RefusedRecordsError(StorageError):
    """The base of the errors by which records are refused; `refused` says what is wrong with which record, if known.

    A record is named by its index in the batch. Naming a few of them is enough: the whole batch is refused.
    """

    def __init__(self, message: str = "", refused: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(message)
        self.refused = refused


class InvalidRecordError(RefusedRecordsError):
    """The batch breaks a rule, so no retry helps.

    Among them: a wrong record count, a missing key on a compacted topic, a marker from a client. The append
    is refused whole; the caller answers INVALID_RECORD.
    """

    code = ErrorCode.INVALID_RECORD


class CorruptBatchError(StorageError):
    """A batch offered for append fails its CRC or its lengths.

    The append is refused whole; the producer may send the batch again (CORRUPT_MESSAGE is retriable).
    """

    code = ErrorCode.CORRUPT_MESSAGE


class RecordTooLargeError(StorageError):
    """The batch is larger than `max.message.bytes` of the topic (MESSAGE_TOO_LARGE).

    The append is refused whole; the producer may split the batch.
    """

    code = ErrorCode.MESSAGE_TOO_LARGE


class ChecksTakeLongError(StorageError):
    """The records must be checked, which takes longer than an event loop can wait. Nothing has changed.

    The caller calls `PartitionLog.check_ahead`, and appends with its result.
    """


class ChecksOutdatedError(StorageError):
    """The topic's settings have changed since a batch was checked that cannot be checked again. Nothing has changed.

    The producer sends the batch again (KAFKA_STORAGE_ERROR is retriable).
    """

    code = ErrorCode.KAFKA_STORAGE_ERROR


class InvalidTimestampError(RefusedRecordsError):
    """The batch's timestamp is outside what `message.timestamp.before.max.ms` and `.after.max.ms` allow."""

    code = ErrorCode.INVALID_TIMESTAMP


class UnexpectedAppendOffsetError(StorageError):
    """A follower's append does not continue at its log end offset.

    The caller truncates or fetches again from the log end offset.
    """

    def __init__(self, base_offset: int, expected_offset: int) -> None:
        super().__init__(f"batch begins at offset {base_offset}, the log ends at {expected_offset}")
        self.base_offset = base_offset
        self.expected_offset = expected_offset


class ProducerStateError(StorageError):
    """The base of the errors by which a producer's batch or marker is refused; the log is unchanged."""


class OutOfOrderSequenceError(ProducerStateError):
    """The batch's first sequence does not follow the producer's last one: a batch before it is missing.

    The producer may send the missing batch, or bump its epoch (KIP-360).
    """

    code = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


class InvalidProducerEpochError(ProducerStateError):
    """The batch or marker carries an older epoch than the partition has seen: a fenced producer (a zombie).

    The producer may request a new epoch with InitProducerId.
    """

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(ProducerStateError):
    """The write does not fit the producer's open transaction (Kafka: InvalidTxnStateException).

    A plain batch inside a transaction, or a transactional one that the coordinator has not verified
    (KIP-890).
    """

    code = ErrorCode.INVALID_TXN_STATE


class TransactionCoordinatorFencedError(ProducerStateError):
    """The marker comes from a transaction coordinator with an older epoch than one seen before.

    The sender is no longer the coordinator and must stop.
    """

    code = ErrorCode.TRANSACTION_COORDINATOR_FENCED
