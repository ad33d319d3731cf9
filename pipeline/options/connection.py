"""The options by which sources and sinks connect, by the names of Kafka's clients with `kafka.` before them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from ottla.client.security import SETTINGS
from ottla.pipeline.client import ClientSettings, parse_bootstrap_servers, security_of
from ottla.pipeline.errors import OptionError

__all__ = ["BOOLEANS", "MAX_INT32", "connection_settings", "refuse_unknown"]

BOOLEANS: Final = {"true": True, "false": False}
MAX_INT32: Final = (1 << 31) - 1

_KAFKA: Final = "kafka."


def connection_settings(given: Mapping[str, str]) -> ClientSettings:
    """Where and how to connect; reads the files that options name. The options' names are in lower case."""
    servers = given.get("kafka.bootstrap.servers")
    if servers is None:
        raise OptionError(
            "Option kafka.bootstrap.servers is missing: write .option('kafka.bootstrap.servers', 'host:port')."
        )
    return ClientSettings(parse_bootstrap_servers(servers))._replace(
        client_id=given.get("kafka.client.id", "ottla-spark"),
        security=security_of(
            {name.removeprefix(_KAFKA): value for name, value in given.items() if name.startswith(_KAFKA)}
        ),
    )


def refuse_unknown(given: Collection[str], options: Collection[str], settings: Collection[str]) -> None:
    """OptionError for what is neither one of the options, nor of the clients' settings, nor says how to connect."""
    known = {name.lower() for name in options} | {name.lower() for name in settings}
    known |= {"kafka.bootstrap.servers", "kafka.client.id"} | {f"{_KAFKA}{name}" for name in SETTINGS}
    for name in sorted(set(given) - known):
        if name.startswith(("kafka.sasl.", "kafka.ssl.", "kafka.security.")):
            raise OptionError(f"Option {name} is not known to format('ottla'): use format('kafka') for this broker.")
        if name.startswith(_KAFKA):
            raise OptionError(f"Option {name} does not apply to format('ottla'): leave it out.")
        raise OptionError(f"There is no option {name}. There are kafka.bootstrap.servers, {', '.join(options)}.")
