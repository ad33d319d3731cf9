"""The errors of tiered storage. Each docstring says what the caller may still do."""

from __future__ import annotations

from ottla.kproto.errors import ApiError, ErrorCode


class TierError(ApiError):
    """The base of all errors of tiered storage."""

    code = ErrorCode.KAFKA_STORAGE_ERROR


class ObjectStoreUnavailableError(TierError):
    """The object store did not answer, or answered that it cannot now (500, 503, a reset, a timeout).

    What was asked may have been done all the same. It may be asked again.
    """


class ObjectStoreRefusedError(TierError):
    """The object store will not do it, however often it is asked: credentials, rights, a bucket that is not there."""


class ObjectMissingError(TierError):
    """There is no object of this name."""


class PreconditionFailedError(TierError):
    """A conditional write was not made: the object is not the version that was named."""


class CorruptObjectError(TierError):
    """An object is shorter than it must be, or its bytes fail their checksum. None of them is used."""

    code = ErrorCode.CORRUPT_MESSAGE


class UnknownFormatError(TierError):
    """An object was written by a later version of Ottla, which knows what is in it."""


class FencedUploadError(TierError):
    """A leader with a later epoch has written to the manifest: this node must not any more."""

    code = ErrorCode.FENCED_LEADER_EPOCH


class OverlappingUploadError(TierError):
    """The manifest has these offsets already, by another upload: this one is left to the sweep."""


class NotContiguousError(TierError):
    """The upload does not begin where the manifest ends: what lies between would be lost."""


class DivergedManifestError(TierError):
    """The manifest and the leader's log have another history: they name different epochs for the same offset.

    Nothing is written or removed until an operator has decided which one counts.
    """


class StaleUploadError(TierError):
    """The log was cut, or this node does not lead it any more: what was uploaded of it is left to the sweep."""

    code = ErrorCode.NOT_LEADER_OR_FOLLOWER


class UploadExpiredError(TierError):
    """The upload took so long that the sweep may take its objects for orphans: it is not committed."""


class SupersededError(TierError):
    """A cluster was restored from these objects: they are that one's, and this one must not change them any more."""


class SnapshotTooLargeError(TierError):
    """The content is larger than a snapshot may be: the previous snapshot stays."""
