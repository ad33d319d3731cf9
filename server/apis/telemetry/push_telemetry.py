"""PushTelemetry (72): a client's metrics, which then appear on `/metrics` (KIP-714).

- UNKNOWN_SUBSCRIPTION_ID if the client's subscription has changed: it asks again.
- What cannot be decompressed or decoded is INVALID_RECORD; more than `telemetry.max.bytes` TELEMETRY_TOO_LARGE.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.telemetry.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import ANYBODY
from ottla.server.apis.telemetry.telemetry_clients import attributes_of
from ottla.server.client_metrics.errors import ClientMetricsError

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.PUSH_TELEMETRY, ANYBODY)


async def handle(request: PushTelemetryRequest, context: RequestContext) -> PushTelemetryResponse:
    manager = context.broker.client_metrics
    client_id = request.client_instance_id
    try:
        client = await manager.push(
            client_id,
            attributes_of(context),
            subscription_id=request.subscription_id,
            is_last=request.terminating,
            compression=request.compression_type,
            metrics=bytes(request.metrics),
        )
    except ClientMetricsError as error:
        return PushTelemetryResponse(error_code=error_code(error))
    context.connection.on_close(manager, partial(manager.forget, client_id, client))
    return PushTelemetryResponse()
