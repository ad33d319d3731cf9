"""Which connections are paced, with sockets that say what the system uses."""

from __future__ import annotations

import errno
import socket
from typing import Any

import pytest

from ottla.runtime.pacing import Pacing

pytestmark = pytest.mark.skipif(not hasattr(socket, "TCP_CONGESTION"), reason="the system has no such option")


class System:
    """A listening socket, and the ones that it accepts, which begin with its congestion control."""

    def __init__(self, name: bytes, *, here: str = "10.0.0.1", peer: str = "10.0.0.1") -> None:
        self.name = name
        self._here = here
        self._peer = peer

    def getsockopt(self, level: int, option: int, size_bytes: int) -> bytes:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        return self.name.ljust(size_bytes, b"\0")

    def setsockopt(self, level: int, option: int, name: bytes) -> None:
        assert (level, option) == (socket.IPPROTO_TCP, socket.TCP_CONGESTION)
        self.name = name

    def accept(self, peer: str) -> Any:
        return System(self.name, here=self._here, peer=peer)

    def getsockname(self) -> tuple[str, int]:
        return self._here, 9092

    def getpeername(self) -> tuple[str, int]:
        return self._peer, 50000


@pytest.mark.parametrize(
    ("system", "peer", "used"),
    [
        (b"bbr", "10.0.0.1", b"reno"),
        (b"bbr", "10.0.0.2", b"bbr"),
        (b"bbr3", "10.0.0.2", b"bbr3"),
        (b"cubic", "10.0.0.1", b"cubic"),
        (b"cubic", "10.0.0.2", b"cubic"),
    ],
)
def test_only_connections_to_other_machines_are_paced(system: bytes, peer: str, used: bytes) -> None:
    listening: Any = System(system)
    pacing = Pacing(listening)
    accepted = listening.accept(peer)
    pacing.begin(accepted)
    assert accepted.name == used


def test_a_system_that_refuses_keeps_what_it_has() -> None:
    class Refusing(System):
        def setsockopt(self, level: int, option: int, name: bytes) -> None:
            raise OSError(errno.EPERM, "not permitted")

    listening: Any = Refusing(b"bbr")
    pacing = Pacing(listening)
    accepted = listening.accept("10.0.0.2")
    pacing.begin(accepted)
    assert accepted.name == b"bbr"


def test_a_peer_that_is_gone_raises_nothing() -> None:
    class Gone(System):
        def getpeername(self) -> tuple[str, int]:
            raise OSError(errno.ENOTCONN, "not connected")

    listening: Any = System(b"bbr")
    pacing = Pacing(listening)
    gone: Any = Gone(b"reno")
    pacing.begin(gone)
    assert gone.name == b"reno"


def test_connections_within_this_machine_do_not_begin_to_pace() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        pacing = Pacing(listening)
        with socket.create_connection(listening.getsockname()) as connected:
            accepted, _ = listening.accept()
            with accepted:
                pacing.begin(accepted)
                used = accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
                assert not used.startswith(b"bbr")
                connected.sendall(b"x")
                assert accepted.recv(1) == b"x"
