"""PushTelemetry (API key 72)."""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Request, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """The request of PushTelemetry."""

    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = bytes_("0+")


class PushTelemetryResponse(Response, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    """The answer to PushTelemetry."""

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
