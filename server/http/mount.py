"""The server of one of `http_ports`, as its module creates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol


class Service(Protocol):
    """What answers requests stands on."""

    async def run(self) -> None:
        """Run it until cancelled."""

    async def end(self) -> None:
        """Let what it has begun in the cluster come to its end: the broker stops, and all of it still serves."""


class Mounted(NamedTuple):
    """The server of an `http_ports` module: `serve` answers, until cancelled."""

    service: Service
    serve: Callable[[], Awaitable[None]]
