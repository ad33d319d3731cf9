"""Who can reach a broker: what listens beyond this machine without asking who is there."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.server.metadata.image import Endpoint
    from ottla.server.network.listener import ListenAddress

WHAT_ANYBODY_CAN_DO = "anybody who can connect may read, write and delete everything, for there is no authentication"


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to a listener on `host`; an empty host is every address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_exposed(host: str, protocol: str) -> bool:
    """Whether others than this machine's users may connect, and nobody is asked for credentials."""
    return not protocol.startswith("SASL_") and not is_loopback(host)


def exposed(listening: Iterable[ListenAddress], endpoints: Iterable[Endpoint]) -> list[str]:
    """The addresses, as `host:port`, on which anybody can do anything."""
    return [
        f"{address.host or '*'}:{address.port}"
        for address, endpoint in zip(listening, endpoints, strict=True)
        if is_exposed(address.host, endpoint.security_protocol)
    ]
