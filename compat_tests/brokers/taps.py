"""A link that hears which requests a client sends: APIs and versions, connection by connection."""

from __future__ import annotations

import socket
import struct

from compat_tests.brokers.links import Link
from ottla.kproto.api_keys import ApiKey

_SIZE = struct.Struct(">i")
_BEGINNING = struct.Struct(">hh")


class Tap(Link):
    """Clients connect to `port`, and `target_port` is the broker's."""

    def __init__(self) -> None:
        super().__init__()
        #: For each connection the requests that came by it, in order.
        self.heard: list[list[tuple[ApiKey, int]]] = []
        self._unread: dict[socket.socket, tuple[bytearray, list[tuple[ApiKey, int]]]] = {}

    def versions(self, key: ApiKey) -> set[int]:
        """In which versions requests of an API were sent."""
        return {version for requests in self.heard for sent, version in requests if sent is key}

    def _carry(self, near: socket.socket) -> None:
        requests: list[tuple[ApiKey, int]] = []
        self.heard.append(requests)
        self._unread[near] = bytearray(), requests
        super()._carry(near)
        del self._unread[near]

    def _pass_on(self, source: socket.socket, sink: socket.socket, piece: bytes) -> None:
        if source in self._unread:
            unread, requests = self._unread[source]
            unread += piece
            while len(unread) >= _SIZE.size and len(unread) >= (end := _SIZE.size + _SIZE.unpack_from(unread)[0]):
                key, version = _BEGINNING.unpack_from(unread, _SIZE.size)
                requests.append((ApiKey(key), version))
                del unread[:end]
        super()._pass_on(source, sink, piece)
