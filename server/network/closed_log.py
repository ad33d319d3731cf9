"""The log lines about connections that the broker has closed, so that one address cannot fill the log with them."""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import Final

import trio

logger = logging.getLogger(__name__)

WINDOW_SECONDS: Final = 60.0
LINES_PER_WINDOW: Final = 5
"""For each address; further ones are counted, and the next window begins with how many there were."""

_SHOWN: Final = 100
"""Characters of a client id: it is the client's own text, of up to 32 KiB."""

_MAX_HOSTS: Final = 1_000
"""Addresses that are counted; the one that was seen first is forgotten for another."""


class ClosedLog:
    """Says why connections were closed: a few lines a minute for each address."""

    def __init__(self) -> None:
        #: By address: when its window began, and how many lines it had.
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def say(self, host: str, port: int, client_id: str | None, error: Exception, keys: dict[str, object]) -> None:
        """One connection was closed over an error. `keys` are what the line can be found by."""
        now = trio.current_time()
        began, count = self._windows.get(host, (now, 0))
        if now - began >= WINDOW_SECONDS:
            self._sum_up(host, count)
            began, count = now, 0
            self._windows.pop(host, None)
        self._windows[host] = (began, count + 1)
        if len(self._windows) > _MAX_HOSTS:
            self._sum_up(*self._forget_oldest())
        if count < LINES_PER_WINDOW:
            who = f"{host}:{port}" if client_id is None else f"{host}:{port} (client.id {client_id[:_SHOWN]!r})"
            logger.warning("closed the connection from %s: %s", who, error, extra=keys)
            if count == LINES_PER_WINDOW - 1:
                logger.warning("further lines about connections from %s are left out for a minute", host)

    def _sum_up(self, host: str, count: int) -> None:
        left_out = count - LINES_PER_WINDOW
        if left_out > 0:
            keys = {"host": host, "count": left_out}
            logger.warning("closed %d more connections from %s, without a line for each", left_out, host, extra=keys)

    def _forget_oldest(self) -> tuple[str, int]:
        host, (_, count) = self._windows.popitem(last=False)
        return host, count
