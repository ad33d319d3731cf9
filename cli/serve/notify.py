"""Telling systemd how the broker is doing (sd_notify(3)): one datagram to the socket that it names."""

from __future__ import annotations

import os
import socket

READY = "READY=1"
STOPPING = "STOPPING=1"


def notify(*states: str) -> None:
    """Does nothing unless a service manager has started this process and listens."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    # An @ stands for the zero byte of Linux's abstract names.
    place = "\0" + address[1:] if address.startswith("@") else address
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.sendto("\n".join(states).encode(), place)
