"""The server of one of `http_ports`, as its module creates it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


async def _nothing() -> None:
    """There is nothing to be brought to an end."""


class Mounted(NamedTuple):
    """The server of an `http_ports` module: `run` runs its dependencies, `serve` answers, both until cancelled.

    `end` is awaited before the broker stops, as long as all of it still serves.
    """

    run: Callable[[], Awaitable[None]]
    serve: Callable[[], Awaitable[None]]
    end: Callable[[], Awaitable[None]] = _nothing
