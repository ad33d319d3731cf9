"""The servers that a node runs by HTTP beside its metrics and console, each on a port of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.server.network.endpoints import parse_http_address

if TYPE_CHECKING:
    from ottla.server.network.listener import ListenAddress
    from ottla.settings.config import BrokerConfig


class HttpPort(NamedTuple):
    """One of them. `module` has `mount(broker, login, listening, context)`; it builds on the server, which imports
    nothing of it, and is loaded by its name, only where its setting asks for it, when the broker already serves.
    """

    name: str
    setting: str
    value: Callable[[BrokerConfig], str | None]
    flag: str
    what: str
    module: str

    def text(self, config: BrokerConfig) -> str | None:
        """The configured host:port; None where it is not served."""
        return self.value(config) or None

    def address(self, config: BrokerConfig) -> ListenAddress | None:
        """The address to listen on; None where it is not served. Raises ConfigError."""
        text = self.text(config)
        return None if text is None else parse_http_address(text, self.setting)


REGISTRY: Final = HttpPort(
    "registry",
    "ottla.registry.listeners",
    lambda config: config.ottla_registry_listeners,
    "--registry",
    "schema registry",
    "ottla.registry.node",
)
REST: Final = HttpPort(
    "rest",
    "ottla.rest.listeners",
    lambda config: config.ottla_rest_listeners,
    "--rest",
    "REST proxy",
    "ottla.rest.node",
)

PORTS: Final = (REGISTRY, REST)


def configured(config: BrokerConfig) -> list[HttpPort]:
    """The ports that the configuration turns on."""
    return [port for port in PORTS if port.text(config) is not None]
