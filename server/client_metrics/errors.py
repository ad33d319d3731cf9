"""Why clients that push metrics are refused (KIP-714)."""

from __future__ import annotations


class ClientMetricsError(Exception):
    """A telemetry request that is refused."""


class InvalidTelemetryRequestError(ClientMetricsError):
    """The client has no valid instance id, or has said before that it is ending."""


class TelemetryTooEarlyError(ClientMetricsError):
    """The client's interval has not passed."""


class UnknownSubscriptionError(ClientMetricsError):
    """What the client was told to push has changed: it asks again."""


class UnsupportedTelemetryCompressionError(ClientMetricsError):
    """No such compression."""


class TelemetryTooLargeError(ClientMetricsError):
    """More than `telemetry.max.bytes`."""


class UnreadableTelemetryError(ClientMetricsError):
    """The metrics cannot be decompressed or decoded."""
