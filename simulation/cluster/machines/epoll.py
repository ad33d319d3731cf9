"""A stand-in for epoll: a node learns in one place which of its connections have something to receive."""

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
        #: Rings when the first of its ends has something.
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

    def unregister(self, descriptor: int) -> None:
        end = self._ends.pop(descriptor, None)
        if end is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        end.watched_by = None

    def poll(self, timeout: float, maxevents: int) -> list[tuple[int, int]]:
        assert timeout == 0
        now = trio.current_time()
        ready = [descriptor for descriptor, end in self._ends.items() if end.readable_at() <= now]
        self._network.rng.shuffle(ready)
        return [(descriptor, select.EPOLLIN) for descriptor in ready[:maxevents]]

    async def wait(self) -> None:
        """Until an end has something, or is over."""
        await trio.lowlevel.checkpoint_if_cancelled()
        while (at := min((end.readable_at() for end in self._ends.values()), default=math.inf)) > trio.current_time():
            await self.alarm.wait(at)


@contextmanager
def simulated_epoll(network: Network) -> Iterator[None]:
    """While this is open, nodes on a network that has epoll wait for their connections with `Epoll`."""

    async def wait_readable(descriptor: int) -> None:
        await network.epolls[descriptor].wait()

    system = SimpleNamespace(epoll=lambda: Epoll(network), EPOLLIN=select.EPOLLIN)
    with (
        mock.patch.object(readiness, "select", Divided(system if network.has_epoll else SimpleNamespace(), select)),
        replaced(trio.lowlevel, "wait_readable", wait_readable),
    ):
        yield
