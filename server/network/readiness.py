"""Who waits for bytes: all idle connections at one place, whose requests are served in the turn that finds them there.

Trio registers a socket again for each wait, and wakes and steps a task for each that has something. Here the sockets
stay registered with an epoll of our own, and every connection that has something serves what needs no waiting in the
event loop's wait itself (`io_wait`); or, where that cannot be, in a task that waits for the epoll. A connection's own
task sleeps meanwhile, and is woken for what does need it. So a small request costs no task a step
(docs/decisions/0029).
"""

from __future__ import annotations

import select
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from time import perf_counter
from typing import TYPE_CHECKING

import trio

from ottla.server.event_loop.pace import SLICE_SECONDS
from ottla.server.network.io_wait import EVENTS_AT_ONCE, served_while_waiting

if TYPE_CHECKING:
    from ottla.server.network.io_wait import Ready
    from ottla.server.network.transport import Transport

Serve = Callable[[], bool]
"""Serves what has come, without waiting; False when the connection's task has to go on. Raises nothing."""


class Readiness:
    """Lets connections serve what comes while their tasks sleep, inside `running`, which outlasts them all.

    A transport without a descriptor (`Transport.descriptor`), or a system without epoll, is waited for by each task.
    """

    __slots__ = ("_epoll", "_left", "_registered", "_sleeping")

    def __init__(self) -> None:
        self._epoll: select.epoll | None = None
        #: Those whose task sleeps, by descriptor.
        self._sleeping: dict[int, _Sleeper] = {}
        self._registered: set[int] = set()
        #: Those who are ready and have not had their turn.
        self._left: deque[tuple[int, int]] = deque()

    async def serve(self, transport: Transport, serve: Serve, *, first_by_itself: bool) -> None:
        """Call `serve` whenever there is something to receive, until it returns False.

        `first_by_itself` has the calling task do so the first time: it will be needed, and is spared being woken twice.
        """
        descriptor = transport.descriptor
        while first_by_itself or self._epoll is None or descriptor is None:
            await transport.wait_readable()
            if not serve():
                return
            first_by_itself = False
        if descriptor not in self._registered:
            self._epoll.register(descriptor, select.EPOLLIN)
            self._registered.add(descriptor)
        self._sleeping[descriptor] = _Sleeper(trio.lowlevel.current_task(), serve)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            del self._sleeping[descriptor]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def forget(self, transport: Transport) -> None:
        """The transport is about to be closed; its task does not sleep here."""
        if transport.descriptor is not None:
            self._unregister(transport.descriptor)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the block is left, when nobody sleeps here any more."""
        if not hasattr(select, "epoll"):
            yield
            return
        with select.epoll() as self._epoll, served_while_waiting(self._epoll, self._serve_ready) as is_served:
            async with trio.open_nursery() as nursery:
                if not is_served:
                    nursery.start_soon(self._run, self._epoll)
                yield
                assert not self._sleeping
                nursery.cancel_scope.cancel()

    async def _run(self, epoll: select.epoll) -> None:
        descriptor = epoll.fileno()
        while True:
            await trio.lowlevel.wait_readable(descriptor)
            are_left = self._serve_ready(epoll.poll(0, EVENTS_AT_ONCE))
            while are_left:
                await trio.lowlevel.checkpoint()
                are_left = self._serve_ready(())

    def _serve_ready(self, ready: Ready) -> bool:
        """Serve for a slice of time those who were left over and those who are ready; whether any are left now."""
        left = self._left
        left.extend(ready)
        began = perf_counter() if len(left) > 1 else 0.0
        while left:
            descriptor, _ = left.popleft()
            sleeper = self._sleeping.get(descriptor)
            if sleeper is None:
                # Its task is at work, and looks by itself when it comes back: until then it would be told in vain.
                self._unregister(descriptor)
            elif not sleeper.serve():
                del self._sleeping[descriptor]
                trio.lowlevel.reschedule(sleeper.task)
            if left and perf_counter() - began > SLICE_SECONDS:
                break
        return bool(left)

    def _unregister(self, descriptor: int) -> None:
        if self._epoll is not None and descriptor in self._registered:
            self._registered.discard(descriptor)
            self._epoll.unregister(descriptor)


class _Sleeper:
    __slots__ = ("serve", "task")

    def __init__(self, task: trio.lowlevel.Task, serve: Serve) -> None:
        self.task = task
        self.serve = serve
