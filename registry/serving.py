"""Runs a registry's application on a socket, by the server that the node's HTTP port has."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.registry.http.app import RegistryApp
from ottla.registry.writer.identity import Identity
from ottla.server.http.hosts import host_name, is_local
from ottla.server.http.server import prepare

if TYPE_CHECKING:
    from ssl import SSLContext

_EVERYWHERE: Final = ("", "0.0.0.0", "::")


def served(
    app: RegistryApp, listening: socket.socket, context: SSLContext | None = None
) -> Callable[[], Awaitable[None]]:
    """A function that serves an application until it is cancelled. Imports much: call it in a worker thread."""
    application: Any = app
    return prepare(application, listening, context)


def known_host(allowed: Callable[[], Iterable[str]]) -> Callable[[str], bool]:
    """Whether a Host header has a name that no other site can own: with DNS rebinding, a page of one could otherwise
    read and change schemas through a visitor's browser.
    """

    def knows(header: str) -> bool:
        name = host_name(header)
        return "." not in name or is_local(name, allowed()) or name == _machine()

    return knows


def identity_of(listening: socket.socket, scheme: str, host: str) -> Identity:
    """How other registries reach the one on a socket: by the machine's `host`, unless it listens on one address.

    On a loopback address none on another machine reaches it; but that is no reason to take two for one.
    """
    own, port = listening.getsockname()[:2]
    is_general = own in _EVERYWHERE or (is_loopback(own) and not is_loopback(host))
    return Identity(scheme, host if is_general else str(own), int(port))


def is_loopback(host: str) -> bool:
    """Whether an address is a loopback address."""
    return host == "localhost" or host == "::1" or host.startswith("127.")


@cache
def _machine() -> str:
    return socket.gethostname().lower()
