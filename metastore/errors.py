"""Errors of a metadata store, and the base of all errors about the metadata."""

from __future__ import annotations

from ottla.kproto.errors import ApiError, ErrorCode


class MetadataError(ApiError):
    """Base of everything that the metadata layer raises on purpose. The text is fit for a client."""


class StoreUnavailableError(MetadataError):
    """The metadata store could not be reached or refused to write; nothing is known to have changed."""

    code = ErrorCode.REQUEST_TIMED_OUT


class MetadataDamagedError(StoreUnavailableError):
    """The metadata store returned something that was never written to it."""


class WatchLaggedError(MetadataError):
    """A watcher fell behind its bound or its revision is gone: list again, then watch from there."""


class LeaseExpiredError(MetadataError):
    """The lease is unknown or has ended; its keys are gone."""


class PolicyViolationError(MetadataError):
    """A limit of this cluster forbids it."""

    code = ErrorCode.POLICY_VIOLATION


class ConflictError(MetadataError):
    """Somebody else changed the same keys in between, repeatedly."""

    code = ErrorCode.REQUEST_TIMED_OUT
