"""The addresses that a node listens on, and those that it advertises to clients."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Mapping
from typing import Final

from ottla.metadata.image import Endpoint
from ottla.server.network.listener import ListenAddress
from ottla.settings.config import BrokerConfig, ConfigError

#: The name by which the HTTP port is configured as a listener is.
HTTP_LISTENER: Final = "HTTP"

_MAX_PORT: Final = 65_535
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})
_SUPPORTED_PROTOCOLS: Final = frozenset({"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"})


def parse_listener(text: str) -> ListenAddress:
    """`NAME://host:port`; an empty host is every address."""
    name, separator, address = text.partition("://")
    host, colon, port = address.rpartition(":")
    if not (separator and name and colon and port.isdecimal()):
        raise ConfigError(f"{text!r} is not a listener: write NAME://host:port.")
    if int(port) > _MAX_PORT:
        raise ConfigError(f"{text!r} is not a listener: ports go from 0 to {_MAX_PORT}.")
    return ListenAddress(name.upper(), host.strip("[]"), int(port))


def parse_http_address(text: str, setting: str = "ottla.http.listen") -> ListenAddress:
    """`host:port`, or a port of 127.0.0.1; `:port` is every address."""
    host, colon, port = text.strip().rpartition(":")
    if not (port.isdecimal() and int(port) <= _MAX_PORT):
        raise ConfigError(f"{setting} is {text!r}: write host:port, with a port from 0 to {_MAX_PORT}.")
    return ListenAddress(HTTP_LISTENER, host.strip("[]") if colon else "127.0.0.1", int(port))


def client_listeners(config: BrokerConfig) -> list[ListenAddress]:
    """The listeners without those of `controller.listener.names`: a KRaft controller's port serves no clients."""
    return _for_clients(config, config.listeners)


def _for_clients(config: BrokerConfig, listeners: Iterable[str]) -> list[ListenAddress]:
    controllers = {name.upper() for name in config.controller_listener_names}
    return [address for address in map(parse_listener, listeners) if address.name not in controllers]


def listen_addresses(config: BrokerConfig) -> list[ListenAddress]:
    """The listeners of a configuration, checked for what this broker can serve."""
    addresses = client_listeners(config)
    if not addresses:
        raise ConfigError("listeners has none for clients: add one that is not in controller.listener.names.")
    if len({address.name for address in addresses}) != len(addresses):
        raise ConfigError("Each listener needs a name of its own.")
    protocols = security_protocols(config)
    for address in addresses:
        protocol = protocols.get(address.name)
        if protocol is None:
            raise ConfigError(f"listener.security.protocol.map does not say which protocol {address.name} speaks.")
        if protocol not in _SUPPORTED_PROTOCOLS:
            raise ConfigError(f"The listener {address.name} asks for {protocol}, which is not supported.")
    return addresses


def security_protocols(config: BrokerConfig) -> Mapping[str, str]:
    """Which protocol each listener name speaks."""
    protocols = {}
    for entry in config.listener_security_protocol_map.split(","):
        name, _, protocol = entry.strip().partition(":")
        protocols[name.upper()] = protocol.upper()
    return protocols


def listener_protocols(config: BrokerConfig) -> dict[str, str]:
    """The protocol of each listener that the node has."""
    protocols = security_protocols(config)
    return {name: protocols.get(name, "PLAINTEXT") for name in (address.name for address in client_listeners(config))}


def advertised_endpoints(config: BrokerConfig, bound: Iterable[ListenAddress]) -> tuple[Endpoint, ...]:
    """The advertised address of each listener, given the ports that are really bound.

    Without `advertised.listeners` it is where the listener listens: a wildcard becomes the machine's name, and
    localhost becomes 127.0.0.1, which some clients would else resolve to ::1. An advertised port 0
    is the listener's own.
    """
    advertised = {address.name: address for address in _for_clients(config, config.advertised_listeners or ())}
    protocols = security_protocols(config)
    endpoints = []
    for address in bound:
        own = advertised.pop(address.name, None)
        host = own.host if own is not None else _reachable(address.host)
        if host in _WILDCARDS:
            raise ConfigError(f"{host or 'An empty host'} cannot be advertised: name a host that clients can reach.")
        port = own.port if own is not None and own.port else address.port
        endpoints.append(Endpoint(address.name, host, port, protocols[address.name]))
    if advertised:
        raise ConfigError(f"advertised.listeners names {', '.join(advertised)}, which is not in listeners.")
    return tuple(endpoints)


def _reachable(host: str) -> str:
    if host in _WILDCARDS:
        return socket.gethostname()
    return "127.0.0.1" if host == "localhost" else host
