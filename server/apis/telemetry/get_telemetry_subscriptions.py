"""GetTelemetrySubscriptions (71): which metrics a client is to push, how often and how (KIP-714).

- A client without an instance id is given one. It asks once in each interval; asking sooner is
  THROTTLING_QUOTA_EXCEEDED, except after a push was refused because its subscription had changed.
- Sums are requested as deltas since the last push.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.messages.telemetry.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.server.apis.declaration import Api
from ottla.server.apis.errors import error_code
from ottla.server.apis.rules import ANYBODY
from ottla.server.apis.telemetry.telemetry_clients import attributes_of
from ottla.server.client_metrics.errors import ClientMetricsError
from ottla.server.client_metrics.manager import COMPRESSIONS

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext

API = Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ANYBODY)


def handle(request: GetTelemetrySubscriptionsRequest, context: RequestContext) -> GetTelemetrySubscriptionsResponse:
    manager = context.broker.client_metrics
    try:
        client_id, client = manager.ask(request.client_instance_id, attributes_of(context))
    except ClientMetricsError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error_code(error))
    context.connection.on_close(manager, partial(manager.forget, client_id, client))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client_id,
        subscription_id=client.subscription_id,
        accepted_compression_types=list(COMPRESSIONS),
        push_interval_ms=client.interval_ms,
        telemetry_max_bytes=context.broker.config.telemetry_max_bytes,
        delta_temporality=True,
        requested_metrics=sorted(client.metrics),
    )
