"""Exposure of a broker: which listeners are open to other machines without authentication."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ottla.server.network.endpoints import HTTP_LISTENER, parse_http_address
from ottla.server.network.http_ports import PORTS

if TYPE_CHECKING:
    from ottla.metadata.image import Endpoint
    from ottla.server.network.listener import ListenAddress
    from ottla.settings.config import BrokerConfig

WHAT_ANYBODY_CAN_DO = "there is no authentication, so anyone who can connect may read, write and delete everything"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a listener on `host`; an empty host is every address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_exposed(host: str, protocol: str, listener: str, config: BrokerConfig) -> bool:
    """Whether users of other machines may connect without credentials or a certificate."""
    if protocol.startswith("SASL_") or is_loopback(host):
        return False
    return protocol != "SSL" or config.for_listener(listener).ssl_client_auth != "required"


def exposed_console(config: BrokerConfig) -> list[str]:
    """The address of a console on which anybody can do anything."""
    if not (config.ottla_http_listen and config.ottla_console_enable) or config.authorizer_class_name:
        return []
    if not _is_http_exposed(parse_http_address(config.ottla_http_listen).host, config):
        return []
    return [f"{config.ottla_http_listen} (the web console)"]


def exposed_ports(config: BrokerConfig) -> list[str]:
    """The addresses of a schema registry and a REST proxy on which anybody can do anything."""
    if config.authorizer_class_name:
        return []
    return [
        f"{port.text(config)} (the {port.what})"
        for port in PORTS
        if (address := port.address(config)) is not None and _is_http_exposed(address.host, config)
    ]


def _is_http_exposed(host: str, config: BrokerConfig) -> bool:
    return is_exposed(host, config.ottla_http_security_protocol, HTTP_LISTENER, config)


def exposed(listening: Iterable[ListenAddress], endpoints: Iterable[Endpoint], config: BrokerConfig) -> list[str]:
    """The addresses, as `host:port`, on which anybody can do anything."""
    return [
        f"{address.host or '*'}:{address.port}"
        for address, endpoint in zip(listening, endpoints, strict=True)
        if is_exposed(address.host, endpoint.security_protocol, address.name, config)
    ]
