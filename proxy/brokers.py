"""The brokers of upstream and their addresses here: one local port for each, kept for as long as the proxy runs."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from ottla.proxy.errors import ProxyError

if TYPE_CHECKING:
    from collections.abc import Callable

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


class BrokerTable:
    """The ports of the brokers. `open_door(broker)` listens on a new port for a broker and returns the port."""

    def __init__(self, open_door: Callable[[Broker], int]) -> None:
        self._open_door = open_door
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
            broker.local_port = self._open_door(broker)
            self._brokers[node_id] = broker
            logger.info("broker %d at %s:%d has port %d here", node_id, host, port, broker.local_port)
        elif (host, port) != (broker.host, broker.port):
            logger.info("broker %d has moved from %s:%d to %s:%d", node_id, broker.host, broker.port, host, port)
            broker.host, broker.port = host, port
        return broker.local_port
