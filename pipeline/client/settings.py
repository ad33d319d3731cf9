"""How a client connects and how much it asks for at once."""

from __future__ import annotations

import re
from typing import NamedTuple

from ottla.pipeline.errors import OptionError

__all__ = ["ClientSettings", "parse_bootstrap_servers"]

_MIB = 1024 * 1024
_HOST = re.compile(r"[\w.:%-]+")


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

    @property
    def servers(self) -> str:
        """The bootstrap servers as text, for messages."""
        return ",".join(f"{host}:{port}" for host, port in self.bootstrap_servers)


def parse_bootstrap_servers(text: str) -> tuple[tuple[str, int], ...]:
    """Read `host:port,host:port`; IPv6 addresses stand in brackets. OptionError for anything else."""
    servers = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = part.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        if not (colon and _HOST.fullmatch(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise OptionError(f"kafka.bootstrap.servers has {part!r}: write host:port, several separated by commas.")
        servers.append((host, int(port)))
    if not servers:
        raise OptionError("Option kafka.bootstrap.servers is empty: write host:port, several separated by commas.")
    return tuple(servers)
