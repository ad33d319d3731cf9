"""Runs a registry's application on a socket, by the server that the node's HTTP port has."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.registry.http.app import RegistryApp
from ottla.server.http.hosts import host_name, is_local
from ottla.server.http.server import prepare

if TYPE_CHECKING:
    from ssl import SSLContext

DEFAULT_PORT: Final = 8081
"""Confluent's, which clients and tools expect."""


def served(
    app: RegistryApp, listening: socket.socket, context: SSLContext | None = None
) -> Callable[[], Awaitable[None]]:
    """What serves an application until it is cancelled. Imports much: call it in a worker thread."""
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


@cache
def _machine() -> str:
    return socket.gethostname().lower()
