"""How what is served beside a broker is a client of it, and of the others of its cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.client.security import Security
from ottla.client.trio_connection import TrioConnection

if TYPE_CHECKING:
    from ottla.metadata.image import Endpoint
    from ottla.server.broker import Broker


def own_endpoint(broker: Broker) -> Endpoint:
    """The listener that brokers use among themselves; where none is named, the first one."""
    endpoints = broker.metadata.brokers[broker.node_id].endpoints
    wanted = broker.config.inter_broker_listener_name
    return next((endpoint for endpoint in endpoints if endpoint.listener == wanted), endpoints[0])


def connect_as_node(broker: Broker, own: Endpoint, client_id: str) -> Callable[[str, int], TrioConnection]:
    """A factory of connections to a broker's host and port, with this node's login at that listener; not open yet."""
    if own.security_protocol == "PLAINTEXT":
        return lambda host, port: TrioConnection(host, port, client_id=client_id)
    from ottla.security import between_brokers

    def connect(host: str, port: int) -> TrioConnection:
        endpoint = own._replace(host=host, port=port)
        return TrioConnection(
            host,
            port,
            client_id=client_id,
            open_stream=between_brokers.open_stream(broker.config, endpoint),
            security=Security(between_brokers.login(broker.config, endpoint)),
        )

    return connect


def own_host_names(broker: Broker) -> list[str]:
    """The names by which others may ask for a port beside the broker."""
    registered = broker.metadata.brokers.get(broker.node_id)
    advertised = [] if registered is None else [endpoint.host.lower() for endpoint in registered.endpoints]
    return [*(broker.config.ottla_console_allowed_hosts or ()), *advertised]
