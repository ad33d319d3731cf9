"""Turns exceptions into wire error codes. `kproto.error_responses` makes whole responses that carry only a code.

The layers below raise their own exceptions and know no codes; this is the only place where the two meet.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.kproto.error_responses import error_response as error_response
from ottla.kproto.error_responses import error_response_in_steps as error_response_in_steps
from ottla.kproto.errors import DecodeError, ErrorCode
from ottla.kproto.records import errors as records
from ottla.server.client_metrics import errors as client_metrics
from ottla.server.coordinator import errors as coordinator
from ottla.server.metadata import errors as metadata
from ottla.server.replica import errors as replica
from ottla.server.share import errors as share
from ottla.storage import errors as storage

if TYPE_CHECKING:
    from collections.abc import Mapping


ERROR_CODES: Final[Mapping[type[BaseException], ErrorCode]] = {
    DecodeError: ErrorCode.INVALID_REQUEST,
    # Record batches
    records.CorruptRecordError: ErrorCode.CORRUPT_MESSAGE,
    records.InvalidRecordError: ErrorCode.INVALID_RECORD,
    records.UnsupportedMagicError: ErrorCode.INVALID_RECORD,
    records.UnsupportedCompressionError: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    records.DecompressedSizeError: ErrorCode.MESSAGE_TOO_LARGE,
    # Storage
    storage.StoreOfflineError: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.DiskFullError: ErrorCode.KAFKA_STORAGE_ERROR,
    storage.LogClosedError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    storage.OffsetOutOfRangeError: ErrorCode.OFFSET_OUT_OF_RANGE,
    storage.CorruptLogError: ErrorCode.CORRUPT_MESSAGE,
    storage.InvalidRecordError: ErrorCode.INVALID_RECORD,
    storage.CorruptBatchError: ErrorCode.CORRUPT_MESSAGE,
    storage.RecordTooLargeError: ErrorCode.MESSAGE_TOO_LARGE,
    storage.InvalidTimestampError: ErrorCode.INVALID_TIMESTAMP,
    storage.OutOfOrderSequenceError: ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    storage.InvalidProducerEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    storage.InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    storage.TransactionCoordinatorFencedError: ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    # The disk could not be read.
    OSError: ErrorCode.KAFKA_STORAGE_ERROR,
    # Metadata
    metadata.StoreUnavailableError: ErrorCode.REQUEST_TIMED_OUT,
    metadata.ConflictError: ErrorCode.REQUEST_TIMED_OUT,
    metadata.TopicNotAuthorizedError: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    metadata.InvalidTopicError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    metadata.TopicAlreadyExistsError: ErrorCode.TOPIC_ALREADY_EXISTS,
    metadata.UnknownTopicError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    metadata.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    metadata.InvalidPartitionsError: ErrorCode.INVALID_PARTITIONS,
    metadata.InvalidReplicationFactorError: ErrorCode.INVALID_REPLICATION_FACTOR,
    metadata.InvalidReplicaAssignmentError: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    metadata.InvalidConfigError: ErrorCode.INVALID_CONFIG,
    metadata.InvalidRequestError: ErrorCode.INVALID_REQUEST,
    metadata.InvalidPrincipalTypeError: ErrorCode.INVALID_PRINCIPAL_TYPE,
    metadata.DelegationTokensDisabledError: ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED,
    metadata.DelegationTokenRequestNotAllowedError: ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
    metadata.DelegationTokenAuthorizationError: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    metadata.DelegationTokenNotFoundError: ErrorCode.DELEGATION_TOKEN_NOT_FOUND,
    metadata.DelegationTokenExpiredError: ErrorCode.DELEGATION_TOKEN_EXPIRED,
    metadata.DelegationTokenOwnerMismatchError: ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH,
    metadata.PolicyViolationError: ErrorCode.POLICY_VIOLATION,
    metadata.TopicDeletionDisabledError: ErrorCode.TOPIC_DELETION_DISABLED,
    metadata.InvalidUpdateVersionError: ErrorCode.INVALID_UPDATE_VERSION,
    metadata.UnsupportedFeatureLevelError: ErrorCode.UNSUPPORTED_VERSION,
    metadata.ThrottlingQuotaExceededError: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    metadata.DuplicateResourceError: ErrorCode.DUPLICATE_RESOURCE,
    metadata.ResourceNotFoundError: ErrorCode.RESOURCE_NOT_FOUND,
    metadata.UnacceptableCredentialError: ErrorCode.UNACCEPTABLE_CREDENTIAL,
    metadata.UnsupportedSaslMechanismError: ErrorCode.UNSUPPORTED_SASL_MECHANISM,
    metadata.UnsupportedEntityTypeError: ErrorCode.UNSUPPORTED_VERSION,
    metadata.PreferredLeaderNotAvailableError: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    metadata.NoReassignmentInProgressError: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    metadata.ElectionNotNeededError: ErrorCode.ELECTION_NOT_NEEDED,
    metadata.EligibleLeadersNotAvailableError: ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    metadata.NotPartitionLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    metadata.BrokerIdNotRegisteredError: ErrorCode.BROKER_ID_NOT_REGISTERED,
    metadata.ControllerIdNotRegisteredError: ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
    # Replica manager
    replica.UnknownTopicOrPartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    replica.UnknownTopicIdError: ErrorCode.UNKNOWN_TOPIC_ID,
    replica.NotLeaderError: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    replica.FencedLeaderEpochError: ErrorCode.FENCED_LEADER_EPOCH,
    replica.UnknownLeaderEpochError: ErrorCode.UNKNOWN_LEADER_EPOCH,
    replica.NotEnoughReplicasError: ErrorCode.NOT_ENOUGH_REPLICAS,
    replica.NotEnoughReplicasAfterAppendError: ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    replica.RequestTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
    replica.InternalTopicError: ErrorCode.INVALID_TOPIC_EXCEPTION,
    replica.MirroredTopicError: ErrorCode.INVALID_REQUEST,
    replica.DeletionNotAllowedError: ErrorCode.POLICY_VIOLATION,
    replica.OffsetNotAvailableError: ErrorCode.OFFSET_NOT_AVAILABLE,
    replica.SessionNotFoundError: ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    replica.InvalidSessionEpochError: ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    replica.SessionTopicIdError: ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    # Coordinators
    coordinator.GroupNotAuthorizedError: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    coordinator.CoordinatorNotAvailableError: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    coordinator.CoordinatorLoadInProgressError: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    coordinator.NotCoordinatorError: ErrorCode.NOT_COORDINATOR,
    coordinator.InvalidGroupIdError: ErrorCode.INVALID_GROUP_ID,
    coordinator.InvalidRequestError: ErrorCode.INVALID_REQUEST,
    coordinator.InvalidSessionTimeoutError: ErrorCode.INVALID_SESSION_TIMEOUT,
    coordinator.UnknownMemberIdError: ErrorCode.UNKNOWN_MEMBER_ID,
    coordinator.IllegalGenerationError: ErrorCode.ILLEGAL_GENERATION,
    coordinator.InconsistentGroupProtocolError: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
    coordinator.RebalanceInProgressError: ErrorCode.REBALANCE_IN_PROGRESS,
    coordinator.MemberIdRequiredError: ErrorCode.MEMBER_ID_REQUIRED,
    coordinator.FencedInstanceIdError: ErrorCode.FENCED_INSTANCE_ID,
    coordinator.UnreleasedInstanceIdError: ErrorCode.UNRELEASED_INSTANCE_ID,
    coordinator.GroupMaxSizeReachedError: ErrorCode.GROUP_MAX_SIZE_REACHED,
    coordinator.GroupIdNotFoundError: ErrorCode.GROUP_ID_NOT_FOUND,
    coordinator.NonEmptyGroupError: ErrorCode.NON_EMPTY_GROUP,
    coordinator.GroupSubscribedToTopicError: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
    coordinator.FencedMemberEpochError: ErrorCode.FENCED_MEMBER_EPOCH,
    coordinator.StaleMemberEpochError: ErrorCode.STALE_MEMBER_EPOCH,
    coordinator.UnsupportedAssignorError: ErrorCode.UNSUPPORTED_ASSIGNOR,
    coordinator.InvalidRegularExpressionError: ErrorCode.INVALID_REGULAR_EXPRESSION,
    coordinator.OffsetMetadataTooLargeError: ErrorCode.OFFSET_METADATA_TOO_LARGE,
    # As Kafka's CoordinatorOperationExceptionHelper and TransactionStateManager have it.
    coordinator.StateTooLargeError: ErrorCode.UNKNOWN_SERVER_ERROR,
    coordinator.UnstableOffsetCommitError: ErrorCode.UNSTABLE_OFFSET_COMMIT,
    coordinator.TopicDeletedError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    coordinator.UnsupportedCommitError: ErrorCode.UNSUPPORTED_VERSION,
    coordinator.StreamsInvalidTopologyError: ErrorCode.STREAMS_INVALID_TOPOLOGY,
    coordinator.TopologyDescriptionError: ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED,
    coordinator.FencedStateEpochError: ErrorCode.FENCED_STATE_EPOCH,
    coordinator.FencedShareLeaderError: ErrorCode.FENCED_LEADER_EPOCH,
    coordinator.UninitializedShareError: ErrorCode.INVALID_REQUEST,
    coordinator.UnknownSharePartitionError: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    # Metrics of clients
    client_metrics.InvalidTelemetryRequestError: ErrorCode.INVALID_REQUEST,
    client_metrics.TelemetryTooEarlyError: ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    client_metrics.UnknownSubscriptionError: ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    client_metrics.UnsupportedTelemetryCompressionError: ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    client_metrics.TelemetryTooLargeError: ErrorCode.TELEMETRY_TOO_LARGE,
    client_metrics.UnreadableTelemetryError: ErrorCode.INVALID_RECORD,
    # Share partitions
    share.InvalidRecordStateError: ErrorCode.INVALID_RECORD_STATE,
    share.InvalidAcknowledgementError: ErrorCode.INVALID_REQUEST,
    share.ShareSessionNotFoundError: ErrorCode.SHARE_SESSION_NOT_FOUND,
    share.InvalidShareSessionEpochError: ErrorCode.INVALID_SHARE_SESSION_EPOCH,
    share.ShareSessionLimitReachedError: ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    # Transactions
    coordinator.InvalidProducerIdMappingError: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    coordinator.ProducerFencedError: ErrorCode.PRODUCER_FENCED,
    coordinator.LaterEpochError: ErrorCode.INVALID_PRODUCER_EPOCH,
    coordinator.ConcurrentTransactionsError: ErrorCode.CONCURRENT_TRANSACTIONS,
    coordinator.InvalidTransactionStateError: ErrorCode.INVALID_TXN_STATE,
    coordinator.InvalidTransactionTimeoutError: ErrorCode.INVALID_TRANSACTION_TIMEOUT,
    coordinator.TransactionAbortableError: ErrorCode.TRANSACTION_ABORTABLE,
    coordinator.TransactionalIdNotFoundError: ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
}


def error_code(error: BaseException) -> ErrorCode:
    """The code of an exception, or of its nearest base class; UNKNOWN_SERVER_ERROR for the unforeseen."""
    for cls in type(error).__mro__:
        code = ERROR_CODES.get(cls)
        if code is not None:
            return code
    return ErrorCode.UNKNOWN_SERVER_ERROR


#: Longer texts could not be sent: a string holds 32,767 bytes, and names in it come from clients.
MAX_MESSAGE_LENGTH: Final = 4_000


def error_message(error: BaseException) -> str:
    """What a client is told about an error: its text, cut to a length that every client accepts."""
    return str(error)[:MAX_MESSAGE_LENGTH]
