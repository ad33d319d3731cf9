"""What share partitions refuse, and why.

What the replica manager, the coordinators and storage raise passes through unchanged.
"""

from ottla.kproto.errors import ApiError, ErrorCode


class ShareError(ApiError):
    """The base of these errors; never raised itself."""


class InvalidRecordStateError(ShareError):
    """A record is not this member's (any more), or a change of its state is being stored."""

    code = ErrorCode.INVALID_RECORD_STATE


class InvalidAcknowledgementError(ShareError):
    """An acknowledgement contradicts itself, or names records that were never acquired."""

    code = ErrorCode.INVALID_REQUEST


class ShareSessionNotFoundError(ShareError):
    """The member has no share session here (any more)."""

    code = ErrorCode.SHARE_SESSION_NOT_FOUND


class InvalidShareSessionEpochError(ShareError):
    """The request is not the next one of its session."""

    code = ErrorCode.INVALID_SHARE_SESSION_EPOCH


class ShareSessionLimitReachedError(ShareError):
    """There are as many share sessions as `group.share.max.share.sessions` allows."""

    code = ErrorCode.SHARE_SESSION_LIMIT_REACHED
