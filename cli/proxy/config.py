"""The configuration of `ottla proxy`: its flags, which override its TOML file, checked before anything starts."""

from __future__ import annotations

import argparse
import os
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.cli import CommandError
from ottla.client.addresses import parse_address
from ottla.client.errors import AddressError
from ottla.proxy.errors import ProxyError
from ottla.proxy.filters.chain import Named
from ottla.proxy.shared import CacheSettings, Settings
from ottla.settings.units import duration_ms, size_bytes

if TYPE_CHECKING:
    from ottla.cli.proxy.security import Securities, Source

DEFAULT_LISTEN: Final = "127.0.0.1:19092"
DEFAULT_CACHE_DIR: Final = "/var/tmp"
MIN_CACHE_BYTES: Final = 64 * 1024 * 1024
_MAX_CACHE_BYTES: Final = 1 << 50

_FILTERS: Final = "filter"
_OF_UPSTREAM: Final = "upstream"
_ASK_SECONDS: Final = 10.0
_LISTEN_CONFIG: Final = "listen-config"
_UPSTREAM_CONFIG: Final = "upstream-config"
_NAMES: Final = (
    "upstream",
    "listen",
    "advertise",
    "http",
    "max-connections",
    "max-frame",
    "memory",
    "idle",
    "cache",
    "cache-dir",
    "cache-topics",
    _LISTEN_CONFIG,
    _UPSTREAM_CONFIG,
)


class Chosen(NamedTuple):
    """The choices: how to forward, where the HTTP port is, and TLS and SASL if they are used."""

    settings: Settings
    filters: Sequence[Named]
    http: tuple[str, int] | None
    securities: Securities | None = None


def load(arguments: argparse.Namespace) -> Chosen:
    """Read the file, let the flags override it, and check everything. CommandError says in a sentence what is wrong."""
    values = {} if arguments.config is None else _read(arguments.config)
    for name in _NAMES:
        given = getattr(arguments, name.replace("-", "_"))
        if given is not None:
            values[name] = given
    upstream = values.get("upstream")
    if not upstream:
        raise CommandError("say where the cluster is: --upstream HOST:PORT")
    names = upstream if isinstance(upstream, list) else _text("upstream", upstream).split(",")
    addresses = [_address("upstream", name, may_be_free=False) for name in names]
    listen = _address("listen", values.get("listen", DEFAULT_LISTEN), may_be_free=True)
    if listen in addresses:
        raise CommandError(f"--listen {listen[0]}:{listen[1]} is an address of --upstream: the proxy needs its own")
    options: dict[str, Any] = {}
    if "advertise" in values:
        options["advertise"] = _advertise(values["advertise"])
    if "max-connections" in values:
        options["max_connections"] = _count("max-connections", values["max-connections"])
    for name, option in (("max-frame", "max_frame_bytes"), ("memory", "memory_bytes")):
        if name in values:
            options[option] = _size(name, values[name])
    if "idle" in values:
        options["idle_seconds"] = _seconds("idle", values["idle"])
    options["cache"] = _cache(values)
    http = _address("http", values["http"], may_be_free=True) if "http" in values else None
    settings = Settings(addresses, listen, **options)
    tables = _with_registry(values.get(_FILTERS, []), addresses, values)
    return Chosen(settings, _filters(tables, arguments.config), http, _securities(values))


def _read(path: Path) -> dict[str, Any]:
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CommandError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} is not TOML: {error}") from None
    unknown = sorted(found.keys() - {*_NAMES, _FILTERS})
    if unknown:
        raise CommandError(f"{path}: {unknown[0]!r} is unknown; known are {', '.join((*_NAMES, _FILTERS))}")
    return found


def _securities(values: Mapping[str, Any]) -> Securities | None:
    """TLS and SASL, from the files for both sides, or from tables in their place."""
    sources: list[Source | None] = []
    for name in (_LISTEN_CONFIG, _UPSTREAM_CONFIG):
        value = values.get(name)
        sources.append(value if value is None or isinstance(value, dict) else Path(_text(name, value)))
    if sources == [None, None]:
        return None
    from ottla.cli.proxy.security import Securities

    return Securities(*sources)


def _cache(values: Mapping[str, Any]) -> CacheSettings | None:
    """The settings of the cache; None if there is none."""
    if "cache" not in values:
        for name in ("cache-dir", "cache-topics"):
            if name in values:
                raise CommandError(f"{name} needs a cache: say how large it may be with --cache, like 10GiB")
        return None
    size = _size("cache", values["cache"], limit=_MAX_CACHE_BYTES)
    if size < MIN_CACHE_BYTES:
        raise CommandError(f"cache: {values['cache']!r} is less than 64MiB, which is too little to keep anything")
    folder = Path(_text("cache-dir", values.get("cache-dir", DEFAULT_CACHE_DIR)))
    if not os.access(folder, os.W_OK | os.X_OK) or not folder.is_dir():
        raise CommandError(f"cache-dir: {folder} is not a directory that can be written to")
    vouched = None
    if "cache-topics" in values:
        try:
            vouched = re.compile(_text("cache-topics", values["cache-topics"]))
        except re.error as error:
            raise CommandError(
                f"cache-topics: {values['cache-topics']!r} is not a regular expression: {error}"
            ) from None
    return CacheSettings(size, str(folder), vouched)


def _with_registry(tables: Any, addresses: list[tuple[str, int]], values: Mapping[str, Any]) -> Any:
    """The tables of filters with the address of the upstream's schema registry where one asks for it."""
    if not isinstance(tables, list) or not any(_asks_upstream(table) for table in tables):
        return tables
    from ottla.cli.records.registry_address import own_registry
    from ottla.client.client import Client
    from ottla.client.errors import ClientError
    from ottla.client.security import NO_SECURITY, from_properties, read_properties

    given = values.get(_UPSTREAM_CONFIG)
    try:
        properties = given if isinstance(given, dict) else None if given is None else read_properties(str(given))
        security = NO_SECURITY if properties is None else from_properties(properties)
        with Client(addresses, _ASK_SECONDS, "ottla-proxy", security=security) as client:
            found, _ = own_registry(client)
    except (ClientError, CommandError) as error:
        raise CommandError(f'registry = "{_OF_UPSTREAM}": {error}') from None
    return [{**table, "registry": found} if _asks_upstream(table) else table for table in tables]


def _asks_upstream(table: Any) -> bool:
    return isinstance(table, dict) and table.get("type") == "validation" and table.get("registry") == _OF_UPSTREAM


def _filters(tables: Any, file: Path | None) -> Sequence[Named]:
    """The filters of a file, whose folder may hold modules with filters of one's own."""
    if not tables:
        return ()
    if file is not None and (folder := str(file.absolute().parent)) not in sys.path:
        sys.path.append(folder)  # behind all others: a file in it must not take a library's place
    from ottla.proxy.filters.catalog import make_filters

    try:
        return make_filters(tables)
    except ProxyError as error:
        raise CommandError(str(error)) from None


def _address(name: str, value: Any, *, may_be_free: bool) -> tuple[str, int]:
    text = _text(name, value).strip()
    host, _, port = text.rpartition(":")
    if may_be_free and port == "0":
        return host.strip("[]"), 0
    if may_be_free and not host and port.isdecimal():
        return "", int(port)
    try:
        return parse_address(text)
    except AddressError as error:
        raise CommandError(f"{name}: {error}") from None


def _advertise(value: Any) -> str:
    text = _text("advertise", value)
    if ":" in text and not text.startswith("["):
        raise CommandError(f"advertise: {text!r} has a port; write only the host, because each broker has its own port")
    return text.strip("[]")


def _count(name: str, value: Any) -> int:
    if not str(value).isdecimal() or not int(value):
        raise CommandError(f"{name}: {value!r} is not a number above 0")
    return int(value)


def _size(name: str, value: Any, limit: int = 1 << 31) -> int:
    size = value if isinstance(value, int) and not isinstance(value, bool) else size_bytes(_text(name, value))
    if size is None and str(value).isdecimal():
        size = int(value)
    if size is None or not 0 < size < limit:
        largest = "2GiB" if limit == 1 << 31 else "1024TiB"
        raise CommandError(f"{name}: {value!r} is not a size below {largest}: write one like 100MiB")
    return size


def _seconds(name: str, value: Any) -> float:
    duration = duration_ms(_text(name, value))
    if not duration:
        raise CommandError(f"{name}: {value!r} is not a time: write one like 90s or 11m")
    return duration / 1000


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise CommandError(f"{name}: {value!r} is not a text")
    return value
