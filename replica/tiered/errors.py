"""What a tiered partition refuses beside what any partition does."""

from __future__ import annotations

from ottla.kproto.errors import ErrorCode
from ottla.replica.errors import ReplicaError


class RemoteStorageError(ReplicaError):
    """The object store does not give what it should have. Kafka has no code for that, and answers this one
    (`Errors.forException` of a RemoteStorageException): consumers ask again.
    """

    code = ErrorCode.UNKNOWN_SERVER_ERROR


class OffsetMovedToTieredStorageError(ReplicaError):
    """What a follower asks for is in the object store only: it begins where its leader's log begins on the disk."""

    code = ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE
