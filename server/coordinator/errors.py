"""What coordinators refuse, and why. Only `server/apis/` knows the wire codes that these become."""


class CoordinatorError(Exception):
    """A request that a coordinator refuses; nothing has changed."""

    member_id: str | None = None
    """The member that a refused JoinGroup names in its answer; None for the one that it came from."""


class GroupNotAuthorizedError(CoordinatorError):
    """The principal may not do this to the group."""


class CoordinatorNotAvailableError(CoordinatorError):
    """The state's partition has no leader, is offline, or the group is being removed: find the coordinator again."""


class CoordinatorLoadInProgressError(CoordinatorError):
    """The state is being replayed: try again shortly."""


class NotCoordinatorError(CoordinatorError):
    """Another broker leads the partition that holds this state."""


class InvalidGroupIdError(CoordinatorError):
    """The group id is empty where a group is needed."""


class InvalidRequestError(CoordinatorError):
    """The request contradicts itself."""


class InvalidSessionTimeoutError(CoordinatorError):
    """The session timeout lies outside what the broker allows."""


class UnknownMemberIdError(CoordinatorError):
    """No such member in the group."""


class IllegalGenerationError(CoordinatorError):
    """The member names a generation that is not the group's."""


class InconsistentGroupProtocolError(CoordinatorError):
    """The member and the group have no protocol type or protocol in common."""


class RebalanceInProgressError(CoordinatorError):
    """The group is rebalancing: the member has to rejoin."""


class MemberIdRequiredError(CoordinatorError):
    """KIP-394: the member must join again with the id that it is given here."""

    member_id: str

    def __init__(self, member_id: str) -> None:
        super().__init__(f"join again as {member_id}")
        self.member_id = member_id


class FencedInstanceIdError(CoordinatorError):
    """KIP-345: another member has taken over this static instance id."""


class UnreleasedInstanceIdError(CoordinatorError):
    """KIP-848: the static instance id is still held by a live member."""


class GroupMaxSizeReachedError(CoordinatorError):
    """The group has as many members as `group.max.size` (or `group.consumer.max.size`) allows."""


class GroupIdNotFoundError(CoordinatorError):
    """No such group, or not one of the type that the request needs."""


class NonEmptyGroupError(CoordinatorError):
    """The group has members, and the request needs it to be empty."""


class GroupSubscribedToTopicError(CoordinatorError):
    """The group reads this topic: its offsets cannot be deleted now."""


class FencedMemberEpochError(CoordinatorError):
    """KIP-848: the coordinator has moved on from the member's epoch: rejoin with epoch 0."""


class StaleMemberEpochError(CoordinatorError):
    """KIP-848: the member's epoch is behind: heartbeat first, then try again."""


class UnsupportedAssignorError(CoordinatorError):
    """The server-side assignor that the member names does not exist here."""


class InvalidRegularExpressionError(CoordinatorError):
    """The subscription's regular expression does not compile."""


class OffsetMetadataTooLargeError(CoordinatorError):
    """The metadata string of an offset commit is longer than `offset.metadata.max.bytes`."""


class StateTooLargeError(CoordinatorError):
    """What the request has to be stored as is more than `max.message.bytes` of the internal topic: no retry helps."""


class TopicDeletedError(CoordinatorError):
    """The topic of an offset was deleted while its commit was on its way."""


class UnsupportedCommitError(CoordinatorError):
    """KIP-848: a member commits with a version of the request that has no member epochs."""


class UnstableOffsetCommitError(CoordinatorError):
    """KIP-447: a transaction holds a pending offset for the partition."""


# Streams groups


class StreamsInvalidTopologyError(CoordinatorError):
    """KIP-1071: the topology can never run."""


class TopologyDescriptionError(CoordinatorError):
    """KIP-1331: the description of a topology is not kept."""


# Share groups


class FencedStateEpochError(CoordinatorError):
    """KIP-932: the share partition has been initialized again since; a write of an earlier state epoch is void."""


class FencedShareLeaderError(CoordinatorError):
    """KIP-932: a later leader of the partition has taken over its share state."""


class UninitializedShareError(CoordinatorError):
    """KIP-932: no state is kept for this share partition (any more)."""


class UnknownSharePartitionError(CoordinatorError):
    """KIP-932: the topic or partition of a share partition does not exist."""


# Transactions


class InvalidProducerIdMappingError(CoordinatorError):
    """The producer id is not the one that belongs to the transactional id now."""


class ProducerFencedError(CoordinatorError):
    """A newer producer has taken over the transactional id, or its transaction was ended for it."""


class ConcurrentTransactionsError(CoordinatorError):
    """The last transaction is still being ended: try again shortly."""


class LaterEpochError(CoordinatorError):
    """The log has seen a later epoch of the producer, or of its coordinator: what this one writes no longer counts."""


class InvalidTransactionStateError(CoordinatorError):
    """The request does not fit the state of the transaction."""


class InvalidTransactionTimeoutError(CoordinatorError):
    """The transaction timeout is not positive, or larger than `transaction.max.timeout.ms`."""


class TransactionAbortableError(CoordinatorError):
    """KIP-890: the partition is not part of the transaction; the producer has to abort it."""


class TransactionalIdNotFoundError(CoordinatorError):
    """There is no state for this transactional id."""
