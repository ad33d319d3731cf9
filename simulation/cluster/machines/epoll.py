"""A stand-in for epoll: a node learns in one place which of its connections have something to receive, or have room for
what it sends.
"""

from __future__ import annotations

import errno
import math
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING
from unittest import mock

import trio

from ottla.server.network import readiness
from ottla.simulation.harness.alarms import Alarm
from ottla.simulation.harness.threads import Divided, replaced

if TYPE_CHECKING:
    from ottla.simulation.cluster.machines.network import Network, _End

__all__ = ["Epoll", "simulated_epoll"]


class Epoll:
    """`select.epoll`, level-triggered, for the ends of simulated connections. One task at a time waits for it."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._descriptor = network.next_descriptor()
        self._ends: dict[int, _End] = {}
        #: Those of which it is awaited that they have room.
        self._awaits_room: set[int] = set()
        #: Rings when the first of its ends is ready.
        self.alarm = Alarm()
        network.epolls[self._descriptor] = self

    def __enter__(self) -> Epoll:
        return self

    def __exit__(self, *_: object) -> None:
        for descriptor in list(self._ends):
            self.unregister(descriptor)
        del self._network.epolls[self._descriptor]

    def fileno(self) -> int:
        return self._descriptor

    def register(self, descriptor: int, events: int) -> None:
        assert events == select.EPOLLIN
        assert descriptor not in self._ends
        end = self._network.ends[descriptor]
        self._ends[descriptor] = end
        end.watched_by = self
        self.alarm.bring_forward(end.readable_at())

    def modify(self, descriptor: int, events: int) -> None:
        assert events in {select.EPOLLIN, select.EPOLLOUT}
        if events == select.EPOLLOUT:
            self._awaits_room.add(descriptor)
        else:
            self._awaits_room.discard(descriptor)
        self.alarm.bring_forward(self._ready_at(descriptor, self._ends[descriptor]))

    def unregister(self, descriptor: int) -> None:
        end = self._ends.pop(descriptor, None)
        if end is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        self._awaits_room.discard(descriptor)
        end.watched_by = None

    def room_came(self, descriptor: int) -> None:
        """The peer of an end has taken something."""
        if descriptor in self._awaits_room:
            self.alarm.ring()

    def _ready_at(self, descriptor: int, end: _End) -> float:
        if descriptor not in self._awaits_room:
            return end.readable_at()
        return -math.inf if end.has_room else math.inf

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        assert timeout == 0
        now = trio.current_time()
        ready = [descriptor for descriptor, end in self._ends.items() if self._ready_at(descriptor, end) <= now]
        self._network.rng.shuffle(ready)
        return [
            (descriptor, select.EPOLLOUT if descriptor in self._awaits_room else select.EPOLLIN)
            for descriptor in ready[:maxevents]
        ]

    async def wait(self) -> None:
        """Until an end is ready, or is over."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while (at := self._first_ready_at()) > trio.current_time():
            await self.alarm.wait(at)

    def _first_ready_at(self) -> float:
        return min((self._ready_at(descriptor, end) for descriptor, end in self._ends.items()), default=math.inf)


@contextmanager
def simulated_epoll(network: Network) -> Iterator[None]:
    """While this is open, nodes on a network that has epoll wait for their connections with `Epoll`."""

    async def wait_readable(descriptor: int) -> None:
        await network.epolls[descriptor].wait()

    system = SimpleNamespace(epoll=lambda: Epoll(network), EPOLLIN=select.EPOLLIN, EPOLLOUT=select.EPOLLOUT)
    with (
        mock.patch.object(readiness, "select", Divided(system if network.has_epoll else SimpleNamespace(), select)),
        replaced(trio.lowlevel, "wait_readable", wait_readable),
    ):
        yield
