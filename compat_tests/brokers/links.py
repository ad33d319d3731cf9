"""What lies between the nodes of a cluster, so that it can be cut: a proxy in front of each one's listener for brokers.

The way from a node to its metadata store can be made of links as well.

A cut is one of a network: nothing arrives, nothing is refused, and what was under way arrives when the link is mended.
A black hole swallows what is sent: connections that it has swallowed something of are of no use, and are reset when
it ends. A reset ends all connections at once. Clients may go by links of their own.
"""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from compat_tests.brokers.process import HOST, free_port

_PIECE_BYTES: Final = 1 << 16
_AT_ONCE: Final = struct.pack("ii", 1, 0)


class Link:
    """The way to one node for the other ones."""

    def __init__(self, target_port: int | None = None) -> None:
        #: Where the node listens for brokers, if nothing else is meant.
        self.target_port = free_port() if target_port is None else target_port
        self._server = socket.create_server((HOST, 0))
        #: Where brokers are told to go.
        self.port: int = self._server.getsockname()[1]
        self._is_whole = threading.Event()
        self._is_whole.set()
        #: Up to how long each piece takes that goes through.
        self.delay_s = 0.0
        self._is_hole = False
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        self._is_whole.clear()

    def swallow(self) -> None:
        """Be a black hole until `mend`."""
        self._is_hole = True

    def mend(self) -> None:
        self._is_whole.set()
        if self._is_hole:
            self._is_hole = False
            self.reset()

    def reset(self) -> None:
        """End all connections as they are."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with suppress(OSError):
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.close()
        self.mend()
        self.reset()

    def _accept(self) -> None:
        with suppress(OSError):  # it was closed
            while True:
                connection, _ = self._server.accept()
                threading.Thread(target=self._carry, args=(connection,), daemon=True).start()

    def _carry(self, near: socket.socket) -> None:
        self._is_whole.wait()
        with near:
            try:
                far = socket.create_connection((HOST, self.target_port))
            except OSError:
                return
            with far:
                with self._lock:
                    self._connections |= {near, far}
                back = threading.Thread(target=self._pump, args=(far, near), daemon=True)
                back.start()
                self._pump(near, far)
                back.join()
                with self._lock:
                    self._connections -= {near, far}

    def _pump(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while piece := source.recv(_PIECE_BYTES):
                if self._is_hole:
                    # Nothing of what comes later may get through either: there would be a gap.
                    while source.recv(_PIECE_BYTES):
                        pass
                    break
                if self.delay_s:
                    time.sleep(random.uniform(0, self.delay_s))
                self._is_whole.wait()
                self._pass_on(source, sink, piece)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _pass_on(self, source: socket.socket, sink: socket.socket, piece: bytes) -> None:
        sink.sendall(piece)


class Links:
    """The ways to all nodes. `node_config` are the settings by which they take them."""

    def __init__(self, node_ids: Iterable[int], *, with_clients: bool = False) -> None:
        #: The ways of brokers, and those of clients, which otherwise go straight to the nodes.
        self.to = {node_id: Link() for node_id in node_ids}
        self.of_clients = {node_id: Link() for node_id in self.to} if with_clients else {}

    @property
    def node_config(self) -> Mapping[int, Mapping[str, object]]:
        return {node_id: _settings(link, self.of_clients.get(node_id)) for node_id, link in self.to.items()}

    def close(self) -> None:
        for link in (*self.to.values(), *self.of_clients.values()):
            link.close()


def _settings(link: Link, of_clients: Link | None) -> dict[str, object]:
    port = free_port() if of_clients is None else of_clients.target_port
    told = port if of_clients is None else of_clients.port
    return {
        "listeners": f"PLAINTEXT://{HOST}:{port},BROKERS://{HOST}:{link.target_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{told},BROKERS://{HOST}:{link.port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
    }
