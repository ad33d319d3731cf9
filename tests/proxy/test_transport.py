"""A TCP connection as the proxy has it."""

from __future__ import annotations

import socket

import pytest

from ottla.proxy.transport import SocketTransport


@pytest.mark.skipif(not hasattr(socket, "SO_RCVLOWAT"), reason="this system wakes for each packet")
async def test_it_is_woken_for_a_good_part_of_what_is_to_come_and_lets_the_peer_send_ahead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        transport = SocketTransport(accepted)

        def awaited() -> int:
            return accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT)

        before = accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        transport.expect(10_000)
        assert awaited() == 1
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) == before

        transport.expect(1_000_000)
        assert awaited() == 128 * 1024
        assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) >= 1024 * 1024
        transport.expect(100_000)
        assert awaited() == 100_000
        transport.expect(0)
        assert awaited() == 1
        transport.close()
