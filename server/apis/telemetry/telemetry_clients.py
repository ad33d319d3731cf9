"""By what subscriptions to clients' metrics can recognize a client (ClientMetricsInstanceMetadata)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.apis.context import RequestContext


def attributes_of(context: RequestContext) -> dict[str, str]:
    """The selectors of `match` except the instance id, with what they are for the request's sender."""
    name, version = context.connection.client.software
    return {
        "client_id": context.header.client_id or "",
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": context.connection.client.host,
        "client_source_port": str(context.connection.client.port),
    }
