"""TCP's keepalive: how soon it is noticed that a peer's machine is gone."""

from __future__ import annotations

import socket

SocketOption = tuple[int, int, int]

#: When the first probe is sent. macOS has it under another name.
_IDLE_NAMES = ("TCP_KEEPIDLE", "TCP_KEEPALIVE")


def keepalive_options(idle_s: int, interval_s: int, count: int) -> list[SocketOption]:
    """Options for `setsockopt`: the peer is given up `count` probes, every `interval_s`, after `idle_s` of silence.

    What a system cannot be told is left out, and stays as it is set there.
    """
    idle_name = next((name for name in _IDLE_NAMES if hasattr(socket, name)), "")
    wanted = ((idle_name, idle_s), ("TCP_KEEPINTVL", interval_s), ("TCP_KEEPCNT", count))
    return [
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        *((socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)),
    ]
