"""Idle connections, all waited for in one place; their requests are served in the turn that finds them there.

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
from enum import Enum
from time import perf_counter
from typing import TYPE_CHECKING, Final

import trio

from ottla.server.network.io_wait import EVENTS_AT_ONCE, served_while_waiting

if TYPE_CHECKING:
    from ottla.server.network.io_wait import Ready
    from ottla.server.network.transport import Transport
    from ottla.storage.turn import Turn

TURN_SECONDS: Final = 0.001
"""For so long a turn serves connections that are ready before it ends. Each takes a small part of that.

A shorter turn gathers less for one write and one publishing: 0.2 ms costs a crowd of 300 a fifth more, and 5 ms gain
nothing. So a turn may hold up other tasks for longer than the 0.5 ms that nothing else may take. It does so only while
many clients are ready at the same time, which would otherwise hold up each other.
"""


class Served(Enum):
    """The state of a connection after it has served the requests that had arrived."""

    ALL = "all"  # wait until more comes
    BLOCKED = "blocked"  # wait until the peer takes more of its answer
    HAS_MORE = "has more"  # serve what is here already, when the others have had their turn
    NEEDS_TASK = "needs task"  # go on in its own task


# A member of an enumeration costs as much to look up as two calls, and these are asked for with every request.
_ALL: Final = Served.ALL
_BLOCKED: Final = Served.BLOCKED
_HAS_MORE: Final = Served.HAS_MORE
_NEEDS_TASK: Final = Served.NEEDS_TASK

Serve = Callable[[], Served]
"""Serves what has come, without waiting. Raises nothing."""


class Readiness:
    """Lets connections serve what comes while their tasks sleep, inside `running`, which outlasts them all.

    A transport without a descriptor (`Transport.descriptor`), or a system without epoll, is waited for by each task.
    """

    __slots__ = ("_blocked", "_by_themselves", "_epoll", "_registered", "_sleeping", "left", "more", "turn")

    def __init__(self, turn: Turn) -> None:
        #: What has gathered when those who are ready were served is written and answered then.
        self.turn = turn
        self._epoll: select.epoll | None = None
        #: Connections whose task sleeps, by descriptor.
        self._sleeping: dict[int, _Sleeper] = {}
        #: The descriptors that the epoll knows; those of `_blocked` it watches for room to send, the others for bytes.
        self._registered: set[int] = set()
        self._blocked: set[int] = set()
        #: Connections whose own task waits.
        self._by_themselves: dict[Transport, trio.CancelScope] = {}
        #: Connections that are ready and have not had their turn.
        self.left: deque[int] = deque()
        #: Connections that have had their turn and have more.
        self.more: dict[int, None] = {}

    async def serve(self, transport: Transport, serve: Serve, *, has_unsent: bool = False) -> None:
        """Call `serve` whenever there is something to receive, until it needs the calling task, or that is woken.

        Where it `has_unsent`, `serve` is called first when the peer takes some of it.
        """
        descriptor = transport.descriptor
        if self._epoll is None or descriptor is None:
            await self._serve_in_task(transport, serve, _BLOCKED if has_unsent else _ALL)
            return
        if descriptor not in self._registered:
            self._epoll.register(descriptor, select.EPOLLIN)
            self._registered.add(descriptor)
        if has_unsent:
            self._wait_for_room(descriptor)
        else:
            self._wait_for_bytes(descriptor)
        self._sleeping[descriptor] = _Sleeper(trio.lowlevel.current_task(), serve)

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            del self._sleeping[descriptor]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    async def _serve_in_task(self, transport: Transport, serve: Serve, served: Served) -> None:
        """`serve` where this task itself has to wait."""
        with trio.CancelScope() as self._by_themselves[transport]:
            try:
                while served is not _NEEDS_TASK:
                    if served is _ALL:
                        await transport.wait_readable()
                    elif served is _BLOCKED:
                        await transport.wait_writable()
                    else:
                        await trio.lowlevel.checkpoint()
                    served = serve()
            finally:
                del self._by_themselves[transport]

    def left_unsent(self, transport: Transport) -> bool:
        """Call `serve` when the peer takes some of what is unsent now. False if no task sleeps in it here."""
        descriptor = transport.descriptor
        if descriptor is None or descriptor not in self._sleeping:
            return False
        self._wait_for_room(descriptor)
        return True

    def wake(self, transport: Transport) -> None:
        """Let the task go on that is in `serve` for this transport, if it still is."""
        sleeper = None if transport.descriptor is None else self._sleeping.pop(transport.descriptor, None)
        if sleeper is not None:
            trio.lowlevel.reschedule(sleeper.task)
        elif transport in self._by_themselves:
            self._by_themselves[transport].cancel()

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
        with select.epoll() as self._epoll, served_while_waiting(self._epoll, self, self.turn) as is_served:
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
            self.serve_ready(epoll.poll(0, EVENTS_AT_ONCE))
            while self.left or self.more:
                await trio.lowlevel.checkpoint()
                self.serve_ready(() if self.left else epoll.poll(0, EVENTS_AT_ONCE))

    def serve_ready(self, ready: Ready) -> None:
        """Serve those who were left over and those who are ready, for as long as a turn may last, and end the turn."""
        self._put_in_order(ready)
        left, more, turn = self.left, self.more, self.turn
        began = perf_counter() if len(left) > 1 else 0.0
        while left:
            descriptor = left.popleft()
            sleeper = self._sleeping.get(descriptor)
            if sleeper is None:
                # Its task is at work, and looks by itself when it comes back: until then it would be told in vain.
                self._unregister(descriptor)
            else:
                served = sleeper.serve()
                if served is _NEEDS_TASK:
                    del self._sleeping[descriptor]
                    trio.lowlevel.reschedule(sleeper.task)
                elif served is _HAS_MORE:
                    more[descriptor] = None
                elif served is _BLOCKED:
                    self._wait_for_room(descriptor)
                elif self._blocked:
                    self._wait_for_bytes(descriptor)
            if left and (turn.is_full or perf_counter() - began > TURN_SECONDS):
                break
        if turn.is_begun:
            turn.end()

    def _put_in_order(self, ready: Ready) -> None:
        """Those who are left over come first, then those who have more, then those who are ready."""
        left, more = self.left, self.more
        if more and not left:
            left.extend(more)
            for descriptor, _ in ready:
                if descriptor not in more:
                    left.append(descriptor)
            more.clear()
        else:
            for descriptor, _ in ready:
                left.append(descriptor)

    def _wait_for_room(self, descriptor: int) -> None:
        if self._epoll is not None and descriptor not in self._blocked:
            self._epoll.modify(descriptor, select.EPOLLOUT)
            self._blocked.add(descriptor)

    def _wait_for_bytes(self, descriptor: int) -> None:
        if self._epoll is not None and descriptor in self._blocked:
            self._epoll.modify(descriptor, select.EPOLLIN)
            self._blocked.discard(descriptor)

    def _unregister(self, descriptor: int) -> None:
        if self._epoll is not None and descriptor in self._registered:
            self._registered.discard(descriptor)
            self._blocked.discard(descriptor)
            self._epoll.unregister(descriptor)


class _Sleeper:
    __slots__ = ("serve", "task")

    def __init__(self, task: trio.lowlevel.Task, serve: Serve) -> None:
        self.task = task
        self.serve = serve
