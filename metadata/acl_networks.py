"""Networks as the hosts of access control entries (KIP-1276): `10.0.0.0/8`, `2001:db8::/32`.

Kafka's counterpart is CidrUtils with SubnetUtils of Apache Commons Net. All addresses of a network belong to it, the
first and the last included, and bits behind the prefix are ignored. `0.0.0.0` is in none, and neither is an IPv4
address in a network of IPv6.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, NamedTuple

_IPV4: Final = re.compile(r"(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})/(\d{1,2})", re.ASCII)
_IPV4_BITS: Final = 32
_IPV6_BITS: Final = 128
_MOST_OF_BYTE: Final = 255
_PREFIX_LENGTH: Final = re.compile(r"[+-]?\d+")
_INT32: Final = range(-(2**31), 2**31)


def parse_address(host: str) -> IPv4Address | IPv6Address | None:
    """An address in the form that is compared, None for anything else: without the zone, and mapped IPv4 as IPv4."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


class Network(NamedTuple):
    """A network of IPv4 (32 bits) or IPv6 (128 bits). `prefix` is an address without its `rest_bits`."""

    bits: int
    prefix: int
    rest_bits: int

    def has(self, address: IPv4Address | IPv6Address) -> bool:
        """Whether an address belongs to it."""
        number = int(address)
        if address.max_prefixlen != self.bits or (not number and self.bits == _IPV4_BITS):
            return False
        return number >> self.rest_bits == self.prefix

    @classmethod
    def parse(cls, text: str) -> Network:
        """Raises ValueError with Kafka's words."""
        return _ipv6(text) if ":" in text else _ipv4(text)


def network_of(host: str) -> Network | None:
    """The network that the host of an entry stands for; None if it is an address, or a network that nobody can read."""
    if "/" not in host:
        return None
    try:
        return Network.parse(host)
    except ValueError:
        return None


def _ipv4(text: str) -> Network:
    matched = _IPV4.fullmatch(text)
    if matched is None:
        raise ValueError(f"Could not parse [{text}]")
    *octets, prefix_bits = map(int, matched.groups())
    for octet in octets:
        _require_in(octet, _MOST_OF_BYTE)
    _require_in(prefix_bits, _IPV4_BITS)
    rest_bits = _IPV4_BITS - prefix_bits
    return Network(_IPV4_BITS, int.from_bytes(bytes(octets), "big") >> rest_bits, rest_bits)


def _require_in(value: int, most: int) -> None:
    if value > most:
        raise ValueError(f"Value [{value}] not in range [0,{most}]")


def _ipv6(text: str) -> Network:
    written, _, length = text.partition("/")
    prefix_bits = int(length) if _PREFIX_LENGTH.fullmatch(length) else None
    if prefix_bits is None or prefix_bits not in _INT32:
        raise ValueError(f"Could not parse [{text}] - invalid prefix length")
    if not 0 <= prefix_bits <= _IPV6_BITS:
        raise ValueError(f"Could not parse [{text}] - prefix length must be between 0 and {_IPV6_BITS}")
    inner = written[1:-1] if written.startswith("[") and written.endswith("]") else written
    inner, percent, zone = inner.partition("%")
    try:
        address = IPv6Address(inner)
    except ValueError:
        address = None
    if address is None or (percent and not zone):
        raise ValueError(f"Could not parse [{written}]")
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{written}] - not an IPv6 address")
    rest_bits = _IPV6_BITS - prefix_bits
    return Network(_IPV6_BITS, int(address) >> rest_bits, rest_bits)
