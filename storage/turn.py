"""The end of the event loop's turn: what has gathered in it is written at once, and then answered.

In a turn many requests are served. What they append gathers, and at the turn's end each store that was appended to
writes one block, for all of them. So there is no timer, nobody asks whether more will come, and no append is treated
differently because it came alone: then its turn is over at once. Redis does the same in `beforeSleep`.

The end has four steps, in this order: coordinators append what was submitted to them, stores write, coordinators take
note of what is written, and connections answer. Each has its own list; what a step adds to a list whose turn has passed
waits for the next end, so that an end is always bounded by what the turn has brought.

`ottla.server.network.io_wait` serves the sockets: it calls `end` when it has served those that were ready, and before
the loop waits. Where it is not in place, the task of `run` ends each turn in the one that follows. (Trio's
instrument `before_io_wait` comes too late for that: how long the loop will wait is decided before.)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

__all__ = ["Turn"]

logger = logging.getLogger(__name__)

# Who waited for the same records may be more than one turn should answer; the others are answered by the next ones.
_ANSWERED_AT_ONCE: Final = 64

Step = Callable[[], None]
"""Does its part at the end of the turn, and neither waits nor raises."""


class Turn:
    """What one event loop's turn has brought. There is one for each node."""

    __slots__ = ("_answers", "_commits", "_is_served", "_lists", "_notes", "_task", "_writes", "is_begun", "is_full")

    def __init__(self) -> None:
        self._commits: list[Step] = []
        self._writes: list[Step] = []
        self._notes: list[Step] = []
        self._answers: list[Step] = []
        self._lists = (self._commits, self._writes, self._notes, self._answers)
        #: Whether there is something for its end to do.
        self.is_begun = False
        #: Whether so much has gathered that it should be written before more is served.
        self.is_full = False
        self._is_served = False
        self._task: trio.lowlevel.Task | None = None

    def fill(self) -> None:
        """A store has gathered nearly as much as it writes at the end of a turn: that should come before more is
        served.
        """
        self.is_full = True

    def commit(self, step: Step) -> None:
        """Have a coordinator append, before the stores write."""
        self._commits.append(step)
        if not self.is_begun:
            self._begin()

    def write(self, step: Step) -> None:
        """Have a store write what has gathered."""
        self._writes.append(step)
        if not self.is_begun:
            self._begin()

    def note(self, step: Step) -> None:
        """Have a coordinator take note of what is written, before anybody is answered."""
        self._notes.append(step)
        if not self.is_begun:
            self._begin()

    def answer(self, step: Step) -> None:
        """Have a connection answer, after all the others."""
        self._answers.append(step)
        if not self.is_begun:
            self._begin()

    def _begin(self) -> None:
        self.is_begun = True
        if not self._is_served:
            self._wake()

    def _wake(self) -> None:
        """Have the task of `run` end the turn, if it waits."""
        task, self._task = self._task, None
        if task is not None:
            trio.lowlevel.reschedule(task)

    async def run(self) -> None:
        """End the turns that nobody else ends, until it is cancelled."""
        task = trio.lowlevel.current_task()

        def abort(_raise_cancel: object) -> trio.lowlevel.Abort:
            self._task = None
            return trio.lowlevel.Abort.SUCCEEDED

        while True:
            if self.is_begun and not self._is_served:
                await trio.lowlevel.checkpoint()
            else:
                self._task = task
                await trio.lowlevel.wait_task_rescheduled(abort)
            self.end()

    def end(self) -> None:
        """Write and answer what the turn has brought. Raises nothing: a step that does has a bug, which is logged.

        If it has brought something new, such as the next batch of a coordinator, the next turn has begun (`is_begun`).
        """
        for steps in self._lists:
            if steps:
                taken = steps.copy()
                steps.clear()
                if len(taken) > _ANSWERED_AT_ONCE and steps is self._answers:
                    steps += taken[_ANSWERED_AT_ONCE:]
                    del taken[_ANSWERED_AT_ONCE:]
                for step in taken:
                    try:
                        step()
                    except Exception:
                        logger.exception("an error in the broker at the end of a turn of the event loop")
        self.is_full = False
        # What a step has begun may already be done, by a step after it.
        self.is_begun = bool(self._commits or self._writes or self._notes or self._answers)
        if self.is_begun:
            self._begin()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Inside the block somebody calls `end` whenever the turn `is_begun` and the loop would wait."""
        assert not self._is_served
        self._is_served = True
        try:
            yield
        finally:
            self._is_served = False
            if self.is_begun:
                self._wake()
