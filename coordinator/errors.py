"""Errors of coordinators."""

from ottla.kproto.errors import ApiError, ErrorCode


class CoordinatorError(ApiError):
    """A request that a coordinator refuses; nothing has changed."""

    member_id: str | None = None
    """The member that a refused JoinGroup names in its answer; None for the one that it came from."""

    def name_no_member(self) -> None:
        """Have the answer name no member, unless the refusal has given it an id."""
        self.member_id = self.member_id or ""


class GroupNotAuthorizedError(CoordinatorError):
    """The principal may not do this to the group."""

    code = ErrorCode.GROUP_AUTHORIZATION_FAILED


class CoordinatorNotAvailableError(CoordinatorError):
    """The state's partition has no leader, is offline, or the group is being removed: find the coordinator again."""

    code = ErrorCode.COORDINATOR_NOT_AVAILABLE


class CoordinatorLoadInProgressError(CoordinatorError):
    """The state is being replayed: try again shortly."""

    code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class NotCoordinatorError(CoordinatorError):
    """Another broker leads the partition that holds this state."""

    code = ErrorCode.NOT_COORDINATOR


class InvalidGroupIdError(CoordinatorError):
    """The group id is empty where a group is needed."""

    code = ErrorCode.INVALID_GROUP_ID


class InvalidRequestError(CoordinatorError):
    """The request contradicts itself."""

    code = ErrorCode.INVALID_REQUEST


class InvalidSessionTimeoutError(CoordinatorError):
    """The session timeout lies outside what the broker allows."""

    code = ErrorCode.INVALID_SESSION_TIMEOUT


class UnknownMemberIdError(CoordinatorError):
    """No such member in the group. With a `member_id` a refused JoinGroup names that one, or none."""

    code = ErrorCode.UNKNOWN_MEMBER_ID

    def __init__(self, message: str, *, member_id: str | None = None) -> None:
        super().__init__(message)
        self.member_id = member_id


class IllegalGenerationError(CoordinatorError):
    """The member names a generation that is not the group's."""

    code = ErrorCode.ILLEGAL_GENERATION


class InconsistentGroupProtocolError(CoordinatorError):
    """The member and the group have no protocol type or protocol in common."""

    code = ErrorCode.INCONSISTENT_GROUP_PROTOCOL


class RebalanceInProgressError(CoordinatorError):
    """The group is rebalancing: the member has to rejoin."""

    code = ErrorCode.REBALANCE_IN_PROGRESS


class MemberIdRequiredError(CoordinatorError):
    """KIP-394: the member must join again with the id that it is given here."""

    code = ErrorCode.MEMBER_ID_REQUIRED

    member_id: str

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id}")
        self.member_id = member_id


class FencedInstanceIdError(CoordinatorError):
    """KIP-345: another member has taken over this static instance id."""

    code = ErrorCode.FENCED_INSTANCE_ID


class UnreleasedInstanceIdError(CoordinatorError):
    """KIP-848: the static instance id is still held by a live member."""

    code = ErrorCode.UNRELEASED_INSTANCE_ID


class GroupMaxSizeReachedError(CoordinatorError):
    """The group has as many members as `group.max.size` (or `group.consumer.max.size`) allows."""

    code = ErrorCode.GROUP_MAX_SIZE_REACHED


class GroupIdNotFoundError(CoordinatorError):
    """No such group, or not one of the type that the request needs."""

    code = ErrorCode.GROUP_ID_NOT_FOUND


class NonEmptyGroupError(CoordinatorError):
    """The group has members, and the request needs it to be empty."""

    code = ErrorCode.NON_EMPTY_GROUP


class GroupSubscribedToTopicError(CoordinatorError):
    """The group reads this topic: its offsets cannot be deleted now."""

    code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


class FencedMemberEpochError(CoordinatorError):
    """KIP-848: the coordinator has moved on from the member's epoch: rejoin with epoch 0."""

    code = ErrorCode.FENCED_MEMBER_EPOCH


class StaleMemberEpochError(CoordinatorError):
    """KIP-848: the member's epoch is behind: heartbeat first, then try again."""

    code = ErrorCode.STALE_MEMBER_EPOCH


class UnsupportedAssignorError(CoordinatorError):
    """The server-side assignor that the member names does not exist here."""

    code = ErrorCode.UNSUPPORTED_ASSIGNOR


class InvalidRegularExpressionError(CoordinatorError):
    """The subscription's regular expression does not compile."""

    code = ErrorCode.INVALID_REGULAR_EXPRESSION


class OffsetMetadataTooLargeError(CoordinatorError):
    """The metadata string of an offset commit is longer than `offset.metadata.max.bytes`."""

    code = ErrorCode.OFFSET_METADATA_TOO_LARGE


class StateTooLargeError(CoordinatorError):
    """The records of the request exceed `max.message.bytes` of the internal topic: no retry helps."""

    # As Kafka's CoordinatorOperationExceptionHelper and TransactionStateManager have it.
    code = ErrorCode.UNKNOWN_SERVER_ERROR


class TopicDeletedError(CoordinatorError):
    """The topic of an offset was deleted while its commit was on its way."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnsupportedCommitError(CoordinatorError):
    """KIP-848: a member commits with a version of the request that has no member epochs."""

    code = ErrorCode.UNSUPPORTED_VERSION


class UnstableOffsetCommitError(CoordinatorError):
    """KIP-447: a transaction holds a pending offset for the partition."""

    code = ErrorCode.UNSTABLE_OFFSET_COMMIT


# Streams groups


class StreamsInvalidTopologyError(CoordinatorError):
    """KIP-1071: the topology can never run."""

    code = ErrorCode.STREAMS_INVALID_TOPOLOGY


class TopologyDescriptionError(CoordinatorError):
    """KIP-1331: the description of a topology is not kept."""

    code = ErrorCode.STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED


# Share groups


class FencedStateEpochError(CoordinatorError):
    """KIP-932: the share partition has been initialized again since; a write of an earlier state epoch is void."""

    code = ErrorCode.FENCED_STATE_EPOCH


class FencedShareLeaderError(CoordinatorError):
    """KIP-932: a later leader of the partition has taken over its share state."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UninitializedShareError(CoordinatorError):
    """KIP-932: no state is kept for this share partition (any more)."""

    code = ErrorCode.INVALID_REQUEST


class UnknownSharePartitionError(CoordinatorError):
    """KIP-932: the topic or partition of a share partition does not exist."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# Transactions


class InvalidProducerIdMappingError(CoordinatorError):
    """The producer id is not the one that belongs to the transactional id now."""

    code = ErrorCode.INVALID_PRODUCER_ID_MAPPING


class ProducerFencedError(CoordinatorError):
    """A newer producer has taken over the transactional id, or its transaction was ended for it."""

    code = ErrorCode.PRODUCER_FENCED


class ConcurrentTransactionsError(CoordinatorError):
    """The last transaction is still being ended: try again shortly."""

    code = ErrorCode.CONCURRENT_TRANSACTIONS


class LaterEpochError(CoordinatorError):
    """The log has seen a later epoch of the producer, or of its coordinator: what this one writes no longer counts."""

    code = ErrorCode.INVALID_PRODUCER_EPOCH


class InvalidTransactionStateError(CoordinatorError):
    """The request does not fit the state of the transaction."""

    code = ErrorCode.INVALID_TXN_STATE


class InvalidTransactionTimeoutError(CoordinatorError):
    """The transaction timeout is not positive, or larger than `transaction.max.timeout.ms`."""

    code = ErrorCode.INVALID_TRANSACTION_TIMEOUT


class TransactionAbortableError(CoordinatorError):
    """KIP-890: the partition is not part of the transaction; the producer has to abort it."""

    code = ErrorCode.TRANSACTION_ABORTABLE


class TransactionalIdNotFoundError(CoordinatorError):
    """There is no state for this transactional id."""

    code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
