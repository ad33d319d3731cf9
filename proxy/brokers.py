"""The brokers of upstream and their addresses here: one local port for each, kept for as long as the proxy runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Protocol

from ottla.proxy.errors import ProxyError

if TYPE_CHECKING:
    pass

logger = logging.getLogger(__name__)

MAX_BROKERS: Final = 1000


class Broker:
    """A broker of upstream. Its address may change; its port here does not."""

    __slots__ = ("host", "local_port", "node_id", "port")

    def __init__(self, node_id: int, host: str, port: int, local_port: int) -> None:
        self.node_id = node_id
        self.host = host
        self.port = port
        self.local_port = local_port


class Ports(Protocol):
    """The ports of a proxy; `ottla.proxy.listeners.Listeners`."""

    def listen_for(self, broker: Broker) -> int:
        """Listen on a new port for a broker, and return the port. Raises ProxyError if none is free."""


class BrokerTable:
    """Which broker has which port."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._brokers: dict[int, Broker] = {}

    def __len__(self) -> int:
        return len(self._brokers)

    def port_of(self, node_id: int, host: str, port: int) -> int:
        """The port here of a broker that, according to upstream, is at this address. It gets one if it has none.

        Raises ProxyError if there are too many brokers, or no port is free.
        """
        broker = self._brokers.get(node_id)
        if broker is None:
            if len(self._brokers) >= MAX_BROKERS:
                raise ProxyError(f"broker {node_id} is one too many: only {MAX_BROKERS} can have a port here")
            broker = Broker(node_id, host, port, 0)
            broker.local_port = self._ports.listen_for(broker)
            self._brokers[node_id] = broker
            logger.info("broker %d at %s:%d has port %d here", node_id, host, port, broker.local_port)
        elif (host, port) != (broker.host, broker.port):
            logger.info("broker %d has moved from %s:%d to %s:%d", node_id, broker.host, broker.port, host, port)
            broker.host, broker.port = host, port
        return broker.local_port


class LocalAddresses:
    """How one client reaches the brokers: all at the same host, each at its port."""

    def __init__(self, brokers: BrokerTable, host: str) -> None:
        self._brokers = brokers
        self._host = host

    def localize(self, node_id: int, host: str, port: int) -> tuple[str, int]:
        """The address through the proxy of a broker. Raises ProxyError as `BrokerTable.port_of` does."""
        return self._host, self._brokers.port_of(node_id, host, port)
