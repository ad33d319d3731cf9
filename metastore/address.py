"""The setting `ottla.metadata.store`: which store, and where."""

from __future__ import annotations

from typing import Final, NamedTuple

SQLITE: Final = "sqlite"
MEMORY: Final = "memory"

_SCHEMES: Final = {"etcd": "http", "etcds": "https"}
_DEFAULT_PORT: Final = 2379
_DEFAULT_PREFIX: Final = "ottla"


class EtcdAddress(NamedTuple):
    """An etcd cluster, and the part of its keys that belongs to one Ottla cluster."""

    #: `http://host:port` of each member; https if the connections are to be encrypted.
    endpoints: tuple[str, ...]
    #: A path without a slash at its end, as `/ottla`: all keys lie below it.
    root: str

    @property
    def is_encrypted(self) -> bool:
        return self.endpoints[0].startswith("https:")


def parse_metadata_address(text: str) -> EtcdAddress | None:
    """None for a store that needs no address. Raises ValueError with the reason."""
    if text in (SQLITE, MEMORY):
        return None
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in _SCHEMES:
        raise ValueError("It must be sqlite, memory, or etcd://host:port,…/prefix (etcds:// with TLS)")
    hosts, _, prefix = rest.partition("/")
    if "@" in hosts:
        raise ValueError("Name the user in ottla.metadata.store.user and ottla.metadata.store.password, not here")
    if any(character in prefix for character in "?#"):
        raise ValueError("The prefix of an etcd address must not contain ? or #")
    names = prefix.rstrip("/").split("/") if prefix.strip("/") else [_DEFAULT_PREFIX]
    if not all(names):
        raise ValueError("The prefix of an etcd address must not contain empty parts")
    endpoints = tuple(f"{_SCHEMES[scheme]}://{_host_and_port(part.strip())}" for part in hosts.split(","))
    return EtcdAddress(endpoints, "/" + "/".join(names))


def _host_and_port(text: str) -> str:
    host, separator, port = text.rpartition(":")
    if not separator or text.endswith("]"):
        host, port = text, str(_DEFAULT_PORT)
    if not host or (":" in host and not (host.startswith("[") and host.endswith("]"))):
        raise ValueError("Each member of an etcd address is host:port, with an IPv6 host in brackets")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"{port!r} is not a port; each member of an etcd address is host:port")
    return f"{host}:{port}"


def check_metadata_address(text: str) -> None:
    """Raises ValueError if the setting's text is wrong."""
    parse_metadata_address(text)
