"""TCP to peers on the same machine, without a timer for each packet.

A congestion control that paces, as BBR does, sets a timer of the kernel whenever it sends. Within one machine that
protects nothing, and in a virtual machine these timers took a quarter of the CPU of a broker that is read from
(docs/decisions/0045).
"""

from __future__ import annotations

import socket
from typing import Final

__all__ = ["Pacing"]

_PACES: Final = b"bbr"
# Part of every Linux, and open to every user.
_NEVER_PACES: Final = b"reno"
_LONGEST_NAME: Final = 16
# Linux and FreeBSD have it.
_OPTION: Final = getattr(socket, "TCP_CONGESTION", None)


class Pacing:
    """Whether the connections that a socket accepts are paced: those to other machines, where the system does so.

    They begin without, because what has once begun to pace takes more CPU under any other congestion control as well.
    """

    __slots__ = ("_systems",)

    def __init__(self, listening: socket.socket) -> None:
        """Let the connections begin without pacing. `listening` has not accepted any."""
        self._systems = b""  # congestion control, if it is not used at first
        if _OPTION is None:
            return
        try:
            name = listening.getsockopt(socket.IPPROTO_TCP, _OPTION, _LONGEST_NAME).rstrip(b"\0")
            if name.startswith(_PACES):
                listening.setsockopt(socket.IPPROTO_TCP, _OPTION, _NEVER_PACES)
                self._systems = name
        except OSError:
            return  # a sandbox forbids it: all are paced

    def begin(self, accepted: socket.socket) -> None:
        """Pace a connection from now on, unless its peer is on this machine."""
        if not self._systems or _OPTION is None:
            return
        try:
            if accepted.getpeername()[0] != accepted.getsockname()[0]:
                accepted.setsockopt(socket.IPPROTO_TCP, _OPTION, self._systems)
        except OSError:
            return  # the peer is gone, or this is forbidden: it is not paced
