"""How a node listens over TCP."""

from __future__ import annotations

import socket

import pytest

from ottla.runtime import pacing
from ottla.server.network.network import TcpNetwork

_SIZE = 16


@pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system has no such option")
async def test_a_connection_from_this_machine_is_not_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as any_socket:
        systems = any_socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _SIZE).rstrip(b"\0")
    # Whatever the system has, as if it paced.
    monkeypatch.setattr(pacing, "_PACES", systems)
    listening = TcpNetwork().listen("127.0.0.1", 0, 5, "--port")
    with socket.create_connection(("127.0.0.1", listening.port)):
        await listening.wait()
        accepted, _ = listening.accept()
        used = accepted._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _SIZE)  # type: ignore[attr-defined]
        accepted.close()
    listening.close()
    assert used.rstrip(b"\0") == b"reno"
