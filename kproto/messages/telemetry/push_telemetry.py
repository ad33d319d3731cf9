"""PushTelemetry (API key 72): a client's metrics, in OTLP and perhaps compressed (KIP-714).

Promises: taken or refused: UNKNOWN_SUBSCRIPTION_ID when the subscription has changed, TELEMETRY_TOO_LARGE,
THROTTLING_QUOTA_EXCEEDED when it comes too soon.
"""

from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.schema import Request, Response, boolean, bytes_, int8, int16, int32, uuid


class PushTelemetryRequest(Request, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    client_instance_id: UUID = uuid("0+")
    subscription_id: int = int32("0+")
    terminating: bool = boolean("0+")
    compression_type: int = int8("0+")
    metrics: bytes = bytes_("0+")


class PushTelemetryResponse(Response, api_key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
