"""What the replica manager refuses and why.

What storage raises (ottla.storage.errors) passes through unchanged.
"""

from ottla.kproto.errors import ApiError, ErrorCode


class ReplicaError(ApiError):
    """The base of the replica manager's errors; never raised itself. Where an append raises, nothing has changed."""


class UnknownTopicOrPartitionError(ReplicaError):
    """There is no such topic, or it has no such partition."""

    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class UnknownTopicIdError(UnknownTopicOrPartitionError):
    """No topic has this id (any more)."""

    code = ErrorCode.UNKNOWN_TOPIC_ID


class NotLeaderError(ReplicaError):
    """This node does not lead the partition, or holds no replica of it: the client asks for metadata again."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class NotOpenYetError(NotLeaderError):
    """The log has not been opened since the start, and nobody has waited for it (`ottla.replica.unopened`)."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class FencedLeaderEpochError(ReplicaError):
    """The client's leader epoch is older than the partition's."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class UnknownLeaderEpochError(ReplicaError):
    """The client's leader epoch is newer than the partition's."""

    code = ErrorCode.UNKNOWN_LEADER_EPOCH


class NotEnoughReplicasError(ReplicaError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was appended."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS


class NotEnoughReplicasAfterAppendError(ReplicaError):
    """The records are in the log, but the in-sync set shrank below `min.insync.replicas` before they were committed."""

    code = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


class RequestTimedOutError(ReplicaError):
    """The operation was not complete by its deadline; what was appended stays and may still be committed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class InternalTopicError(ReplicaError):
    """A client may not write to a coordinator's topic (Kafka: InvalidTopicException)."""

    code = ErrorCode.INVALID_TOPIC_EXCEPTION


class MirroredTopicError(ReplicaError):
    """The topic is a mirror of another cluster's: clients may only read it."""

    code = ErrorCode.INVALID_REQUEST


class DeletionNotAllowedError(ReplicaError):
    """DeleteRecords on a topic whose `cleanup.policy` lacks `delete` (Kafka: PolicyViolationException)."""

    code = ErrorCode.POLICY_VIOLATION


class OffsetNotAvailableError(ReplicaError):
    """A new leader does not know its high watermark for its own epoch yet (KIP-207): ask again."""

    code = ErrorCode.OFFSET_NOT_AVAILABLE


class FetchSessionError(ReplicaError):
    """The request does not fit its session; the client starts a new one."""


class SessionNotFoundError(FetchSessionError):
    """The session was evicted, or never was."""

    code = ErrorCode.FETCH_SESSION_ID_NOT_FOUND


class InvalidSessionEpochError(FetchSessionError):
    """The request is not the next one of its session: one was lost, or came twice."""

    code = ErrorCode.INVALID_FETCH_SESSION_EPOCH


class SessionTopicIdError(FetchSessionError):
    """The session began with topic names and goes on with ids (Fetch v13), or the other way."""

    code = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
