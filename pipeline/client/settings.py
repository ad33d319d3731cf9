"""How a client connects and how much it asks for at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.client.addresses import parse_addresses
from ottla.client.errors import AddressError, SecurityConfigError
from ottla.client.security import NO_SECURITY, Security, from_properties
from ottla.pipeline.errors import OptionError

__all__ = ["ClientSettings", "parse_bootstrap_servers", "security_of"]

_MIB = 1024 * 1024


class ClientSettings(NamedTuple):
    """The few consumer properties that this client heeds, by Kafka's names.

    `default_api_timeout_ms` bounds how long it looks for a broker or a leader before it gives up. The fetch sizes are
    larger than a consumer's own defaults: a scan wants few and large answers. A `receive_buffer_bytes` of 0 leaves the
    socket's buffer to the system.
    """

    bootstrap_servers: tuple[tuple[str, int], ...]
    client_id: str = "ottla-spark"
    read_committed: bool = False
    check_crcs: bool = True
    fetch_max_bytes: int = 16 * _MIB
    max_partition_fetch_bytes: int = 8 * _MIB
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    receive_buffer_bytes: int = 0
    request_timeout_ms: int = 30_000
    default_api_timeout_ms: int = 30_000
    security: Security = NO_SECURITY

    @property
    def servers(self) -> str:
        """The bootstrap servers as text, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap_servers)


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read `host:port,host:port`; IPv6 addresses are in brackets. OptionError for anything else."""
    try:
        return tuple(parse_addresses(text, default_port=None))
    except AddressError as error:
        raise OptionError(f"kafka.bootstrap.servers: {error}.") from None


def security_of(properties: Mapping[str, str]) -> Security:
    """How to connect, as a client's properties say by Kafka's names. Reads files; OptionError says what is wrong."""
    try:
        return from_properties(properties)
    except SecurityConfigError as error:
        raise OptionError(f"kafka.{error}.") from None
