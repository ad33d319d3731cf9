"""Why clients that push metrics are refused (KIP-714)."""

from __future__ import annotations

from ottla.kproto.errors import ApiError, ErrorCode


class ClientMetricsError(ApiError):
    """A telemetry request that is refused."""


class InvalidTelemetryRequestError(ClientMetricsError):
    """The client has no valid instance id, or has said before that it is ending."""

    code = ErrorCode.INVALID_REQUEST


class TelemetryTooEarlyError(ClientMetricsError):
    """The client's interval has not passed."""

    code = ErrorCode.THROTTLING_QUOTA_EXCEEDED


class UnknownSubscriptionError(ClientMetricsError):
    """The client's subscription has changed: it asks for it again."""

    code = ErrorCode.UNKNOWN_SUBSCRIPTION_ID


class UnsupportedTelemetryCompressionError(ClientMetricsError):
    """No such compression."""

    code = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


class TelemetryTooLargeError(ClientMetricsError):
    """More than `telemetry.max.bytes`."""

    code = ErrorCode.TELEMETRY_TOO_LARGE


class UnreadableTelemetryError(ClientMetricsError):
    """The metrics cannot be decompressed or decoded."""

    code = ErrorCode.INVALID_RECORD
