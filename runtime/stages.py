"""Work that is done at once where nothing has to be waited for, and goes on in a task where something has.

The task that begins it need not be the one that goes on with it: a request is begun where it was received, in the event
loop's wait, and its own connection's task takes over at the first wait, unless that one calls when it is over
(`CalledWait`). So nothing in it but a wait may touch a task: this is why it is a generator and not a coroutine, in
which any `await` could.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any, TypeVar

R = TypeVar("R")

Wait = Callable[[], Awaitable[Any]]
"""A wait; called by the task that waits."""


class TurnWait:
    """A `Wait` that the end of the turn usually ends: the caller that steps `Stages` may check it then."""

    __slots__ = ()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        raise NotImplementedError

    def __call__(self) -> Awaitable[Any]:
        """Wait, and return what is sent into the stages. Where it is over already None is sent instead."""
        raise NotImplementedError


class CalledWait:
    """A `Wait` that needs no task: the caller that steps `Stages` may have itself called at its end, and sends None."""

    __slots__ = ()

    @property
    def is_over(self) -> bool:
        """Whether there is nothing to wait for any more."""
        raise NotImplementedError

    def watch(self, over: Callable[[], None]) -> None:
        """Have `over` called, in no task, when it is over, and not before this returns."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Nobody is called from now on."""
        raise NotImplementedError

    def __call__(self) -> Awaitable[Any]:
        """Wait in a task after all, which ends `watch`."""
        raise NotImplementedError


Stages = Generator[Wait, Any, R]
"""Yields a wait, is sent its result, and returns its own."""

Rest = Coroutine[Any, Any, R]
"""Everything from the first wait on. The task that gets it awaits it at once, without another wait before."""


async def finish(stages: Stages[R]) -> R:
    """Go through all of it in this task."""
    try:
        wait = next(stages)
    except StopIteration as end:
        result: R = end.value
        return result
    return await go_on(stages, wait)


async def go_on(stages: Stages[R], wait: Wait) -> R:
    """Go through the rest in this task, from a wait on."""
    try:
        while True:
            try:
                waited = await wait()
            except BaseException as error:  # noqa: BLE001 - it comes out again, or is dealt with, where the wait stands
                wait = stages.throw(error)
            else:
                wait = stages.send(waited)
    except StopIteration as end:
        result: R = end.value
        return result
