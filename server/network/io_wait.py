"""Serving in the event loop's own wait: a request that needs no task costs none, not even to wake one.

Trio waits for all its descriptors at one place, its I/O manager. Here another stands in that place, which waits for
Trio's descriptors and ours in one call, and has those of ours served that have something before Trio goes on with its
tasks. Trio offers no way to do so, so this looks inside it; where it is not found as expected, nothing is put in place.
"""

from __future__ import annotations

import math
import select
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

if TYPE_CHECKING:
    from ottla.storage.turn import Turn

Ready = Sequence[tuple[int, int]]
"""Descriptors and their events, as epoll reports them."""

EVENTS_AT_ONCE: Final = 256
# What an I/O manager reports is false only where the time has passed; otherwise it is iterated over.
_SERVED: Final = iter(())
_MAX_WAIT_SECONDS: Final = 24 * 3600


class Serving(Protocol):
    """Serves connections that are ready. It runs in no task and raises nothing."""

    @property
    def left(self) -> Collection[int]:
        """Connections that were ready and have not had their turn: the others are not polled before they have."""

    @property
    def more(self) -> Collection[int]:
        """Connections whose next request is here already: they need not be waited for."""

    def serve_ready(self, ready: Ready) -> None:
        """Serve what is left over and what is ready, for as long as a turn may last, and end the turn."""


@contextmanager
def served_while_waiting(epoll: select.epoll, serving: Serving, turn: Turn) -> Iterator[bool]:
    """Have those served, inside the block, whom `epoll` reports, and end the turns. Yields whether this is possible.

    It is not where an instrument wants to see each step of a task, where another epoll stands in this place already, or
    with a Trio that is made differently.
    """
    runner = _runner() if type(epoll) is select.epoll else None
    if runner is None:
        yield False
        return
    manager = runner.io_manager
    runner.io_manager = _IOManager(runner, epoll, serving, turn)
    try:
        with turn.served():
            yield True
    finally:
        runner.io_manager = manager


def _runner() -> Any:
    """Trio's runner, if its I/O manager can be replaced."""
    try:
        from trio._core._io_epoll import EpollIOManager
        from trio._core._run import GLOBAL_RUN_CONTEXT

        runner: Any = GLOBAL_RUN_CONTEXT.runner
        is_as_expected = (
            type(runner.io_manager) is EpollIOManager
            and type(runner.io_manager._epoll) is select.epoll  # noqa: SLF001 - Trio has no public way
            and not runner.is_guest
            and "before_task_step" not in runner.instruments
        )
    except (ImportError, AttributeError):
        return None
    return runner if is_as_expected else None


class _IOManager:
    """Trio's, but for the wait."""

    def __init__(self, runner: Any, epoll: select.epoll, serving: Serving, turn: Turn) -> None:
        manager = runner.io_manager
        self._runner = runner
        self._runnable = runner.runq
        self._their_events = manager.get_events
        self._their_descriptor = manager._epoll.fileno()  # noqa: SLF001
        epoll.register(self._their_descriptor, select.EPOLLIN)
        self._epoll = epoll
        self._serving = serving
        self._turn = turn
        self.process_events = manager.process_events
        self.wait_readable = manager.wait_readable
        self.wait_writable = manager.wait_writable
        self.notify_closing = manager.notify_closing
        self.force_wakeup = manager.force_wakeup
        self.statistics = manager.statistics
        self.close = manager.close

    def get_events(self, timeout: float) -> Any:
        """The events of Trio's descriptors, after at most `timeout` seconds, or when Trio has something to do."""
        serving, turn = self._serving, self._turn
        while True:
            if turn.is_begun:
                # What tasks have appended in this turn, or its own end. A task that waited for it can run now, and a
                # task that goes on waiting may have brought the next deadline forward.
                turn.end()
                timeout = 0 if turn.is_begun else min(timeout, self._idle_seconds())
            events: Any = ()
            if serving.left:
                events = self._their_events(0)
                serving.serve_ready(())
            else:
                ready = self._epoll.poll(0 if serving.more else timeout, EVENTS_AT_ONCE)
                if not ready and not serving.more:
                    return ready
                for index, (descriptor, _) in enumerate(ready):
                    if descriptor == self._their_descriptor:
                        events = self._their_events(0)
                        del ready[index]
                        break
                if ready or serving.more:
                    serving.serve_ready(ready)
            if events:
                return events
            # The connections that were served did not need Trio. It goes on only when it has something to do.
            timeout = self._idle_seconds()
            if timeout <= 0:
                return _SERVED

    def _idle_seconds(self) -> float:
        """For how long Trio has nothing to do, as far as is known now; 0 if it has, or if only it can tell."""
        runner = self._runner
        if self._runnable or runner.waiting_for_idle or runner.clock_autojump_threshold != math.inf:
            return 0
        seconds: float = runner.clock.deadline_to_sleep_time(runner.deadlines.next_deadline())
        return min(seconds, _MAX_WAIT_SECONDS)
