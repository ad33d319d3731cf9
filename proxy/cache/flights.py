"""Requests under way at upstream, by their records: a client that wants the same records waits for them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import trio

from ottla.proxy.cache.topics import Key

Route = tuple[Key, int, int, int]
"""The records of a flight: a partition's, in one leader epoch, from an offset on, for one isolation level."""


class Flight(NamedTuple):
    """A request at upstream for records that others may want, too."""

    min_bytes: int
    landed: trio.Event


class Flights:
    """The flights under way, by their routes."""

    def __init__(self) -> None:
        self._by_route: dict[Route, Flight] = {}

    def find(self, routes: Collection[Route], min_bytes: int) -> Flight | None:
        """The flight that brings all of these, and waits for no more than this many bytes; None if there is none."""
        found = {self._by_route.get(route) for route in routes}
        flight = next(iter(found))
        if len(found) > 1 or flight is None or flight.min_bytes > max(1, min_bytes):
            return None
        return flight

    @contextmanager
    def flying(self, routes: Collection[Route], min_bytes: int) -> Iterator[None]:
        """Within the block, other clients find those of the routes that had no flight. At its end these land."""
        flight = Flight(min_bytes, trio.Event())
        mine = [route for route in dict.fromkeys(routes) if route not in self._by_route]
        self._by_route.update(dict.fromkeys(mine, flight))
        try:
            yield
        finally:
            for route in mine:
                del self._by_route[route]
            flight.landed.set()
