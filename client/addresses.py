"""Addresses as people write them."""

from __future__ import annotations

import re
from typing import Final

from ottla.client.errors import AddressError

DEFAULT_PORT: Final = 9092

_HOST: Final = re.compile(r"[\w.%-]+|\[[\w.:%]+\]")


def parse_address(text: str, default_port: int | None = DEFAULT_PORT) -> tuple[str, int]:
    """`host:port`, or `[v6]:port`; without a port the default one, if there is one. AddressError for anything else."""
    host, colon, port = text.rpartition(":")
    if default_port is not None and (not colon or text.endswith("]")):
        host, port = text, str(default_port)
    if not (_HOST.fullmatch(host) and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise AddressError(f"{text!r} is not an address: write host:port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_addresses(text: str, default_port: int | None = DEFAULT_PORT) -> list[tuple[str, int]]:
    """Several addresses, separated by commas; AddressError if there is none."""
    found = [parse_address(part.strip(), default_port) for part in text.split(",") if part.strip()]
    if not found:
        raise AddressError("there is no address: write host:port, several separated by commas")
    return found
