"""What share partitions refuse, and why. `server/apis/errors.py` gives each its wire code.

What the replica manager, the coordinators and storage raise passes through unchanged.
"""


class ShareError(Exception):
    """The base of these errors; never raised itself."""


class InvalidRecordStateError(ShareError):
    """A record is not this member's (any more), or a change of its state is being stored."""


class InvalidAcknowledgementError(ShareError):
    """An acknowledgement contradicts itself, or names records that were never acquired."""


class ShareSessionNotFoundError(ShareError):
    """The member has no share session here (any more)."""


class InvalidShareSessionEpochError(ShareError):
    """The request is not the next one of its session."""


class ShareSessionLimitReachedError(ShareError):
    """There are as many share sessions as `group.share.max.share.sessions` allows."""
