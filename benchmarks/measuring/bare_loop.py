"""The least that a server in Python can do for a request: receive it, write its bytes to a file, answer.

    python -m benchmarks.measuring.bare_loop FILE WRITTEN_BYTES ANSWER_BYTES

Listens on 127.0.0.1 and prints the port. A request is a length of four bytes and as many bytes, as Kafka's; of each,
WRITTEN_BYTES are written to FILE, and ANSWER_BYTES of zeros, with their length in front, are the answer. One loop on
epoll, with one `recv_into`, one `pwritev` and one `send` for a request that has come whole; nothing is looked at.
"""

from __future__ import annotations

import os
import select
import socket
import sys
from typing import Final

_MAX_REQUEST_BYTES: Final = 1 << 17
_EVENTS: Final = 256
_LENGTH_BYTES: Final = 4


class Peer:
    """A connection, and what has come of its request under way."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.receive_into = connection.recv_into
        self.send = connection.send
        self._connection = connection
        self.view = memoryview(bytearray(_MAX_REQUEST_BYTES))
        self.arrived = 0

    def close(self) -> None:
        self._connection.close()


def serve(path: str, written_bytes: int, answer_bytes: int) -> None:
    """Serve until the process is killed."""
    answer = answer_bytes.to_bytes(_LENGTH_BYTES, "big") + bytes(answer_bytes)
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    position = 0
    peers: dict[int, Peer] = {}
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener, select.epoll() as epoll:
        epoll.register(listener, select.EPOLLIN)
        print(listener.getsockname()[1], flush=True)
        while True:
            for descriptor, _ in epoll.poll(-1, _EVENTS):
                peer = peers.get(descriptor)
                if peer is None:
                    connection, _ = listener.accept()
                    epoll.register(connection, select.EPOLLIN)
                    peers[connection.fileno()] = Peer(connection)
                    continue
                view, arrived = peer.view, peer.arrived
                try:
                    count = peer.receive_into(view[arrived:] if arrived else view)
                    arrived += count
                    if not count:
                        peers.pop(descriptor).close()  # which also ends its registration
                    elif arrived < _LENGTH_BYTES or arrived - _LENGTH_BYTES < int.from_bytes(
                        view[:_LENGTH_BYTES], "big"
                    ):
                        peer.arrived = arrived
                    else:
                        peer.arrived = 0
                        position += os.pwritev(file, [view[:written_bytes]], position)
                        peer.send(answer)
                except ConnectionError:
                    peers.pop(descriptor).close()


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
