"""What the replica manager refuses and why. `server/apis/errors.py` gives each its wire code.

What storage raises (ottla.storage.errors) passes through unchanged.
"""


class ReplicaError(Exception):
    """The base of the replica manager's errors; never raised itself. Where an append raises, nothing has changed."""


class UnknownTopicOrPartitionError(ReplicaError):
    """There is no such topic, or it has no such partition."""


class UnknownTopicIdError(UnknownTopicOrPartitionError):
    """No topic has this id (any more)."""


class NotLeaderError(ReplicaError):
    """This node does not lead the partition, or holds no replica of it: the client asks for metadata again."""


class FencedLeaderEpochError(ReplicaError):
    """The client's leader epoch is older than the partition's."""


class UnknownLeaderEpochError(ReplicaError):
    """The client's leader epoch is newer than the partition's."""


class NotEnoughReplicasError(ReplicaError):
    """Fewer replicas are in sync than `min.insync.replicas` asks for; nothing was appended."""


class NotEnoughReplicasAfterAppendError(ReplicaError):
    """The records are in the log, but the in-sync set shrank below `min.insync.replicas` before they were committed."""


class RequestTimedOutError(ReplicaError):
    """The operation was not complete by its deadline; what was appended stays and may still be committed."""


class InternalTopicError(ReplicaError):
    """A client may not write to a coordinator's topic (Kafka: InvalidTopicException)."""


class MirroredTopicError(ReplicaError):
    """The topic is a mirror of another cluster's: clients may only read it."""


class DeletionNotAllowedError(ReplicaError):
    """DeleteRecords on a topic whose `cleanup.policy` lacks `delete` (Kafka: PolicyViolationException)."""


class OffsetNotAvailableError(ReplicaError):
    """A new leader does not know its high watermark for its own epoch yet (KIP-207): ask again."""


class FetchSessionError(ReplicaError):
    """The request does not fit its session; the client starts a new one."""


class SessionNotFoundError(FetchSessionError):
    """The session was evicted, or never was."""


class InvalidSessionEpochError(FetchSessionError):
    """The request is not the next one of its session: one was lost, or came twice."""


class SessionTopicIdError(FetchSessionError):
    """The session began with topic names and goes on with ids (Fetch v13), or the other way."""
