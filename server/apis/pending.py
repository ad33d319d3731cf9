"""Answers that are not there yet when a handler returns.

A request has two phases, as in Redpanda (`process_result_stages`). In the first it keeps its place among the requests
of its connection; in the second, which only pipelined requests have (`Api.pipelined`), the next one
is taken meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar, Union

import trio

from ottla.runtime.stages import CalledWait, go_on

if TYPE_CHECKING:
    from ottla.kproto.schema import Response
    from ottla.runtime.stages import Stages, Wait

Change = Callable[[Any], "Response | None"]
"""Makes an answer of an answer; None is none at all."""

Answer = Union["Response", "Pending", None]

A = TypeVar("A", bound=Answer)


class Pending:
    """An answer that is not there yet. Its holder calls `dispatch`, unless it `is_dispatched`, and goes on with what
    that returns; then `watch` or `wait`, unless it `is_ready`; then `response`. Or `give_up`, at any time.

    (No ABC: every response is asked whether it is one, and an ABC answers that in Python.)
    """

    __slots__ = ()

    #: Whether the first phase is over.
    is_dispatched: bool = True

    async def dispatch(self) -> Answer:
        """Go through the first phase, in this task: the response, or what is pending in the second phase."""
        return self

    @property
    def is_ready(self) -> bool:
        """Whether the response is ready."""
        raise NotImplementedError

    def watch(self, ready: Callable[[], None]) -> None:
        """Have `ready` called, in no task, when it is ready, and not before this returns. State may be half changed
        then, so it only notes that. Called once; after `give_up` it may come and mean nothing.
        """
        raise NotImplementedError

    async def wait(self) -> None:
        """Wait, in this task, until it is ready, which it is not yet."""
        ready = trio.Event()
        self.watch(ready.set)
        await ready.wait()

    def response(self) -> Response | None:
        """The response. Called once, when it is ready."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Nobody will be answered."""


class _Unbegun(Pending):
    __slots__ = ()

    is_dispatched = False

    @property
    def is_ready(self) -> bool:
        return False


UNBEGUN: Final = _Unbegun()
"""The answer to a request whose handler was not called."""


class InTask(Pending):
    """A first phase that is a coroutine, of which nothing has run yet that needs a task."""

    __slots__ = ("_coroutine",)

    is_dispatched = False

    def __init__(self, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self._coroutine = coroutine

    async def dispatch(self) -> Answer:
        answer = await self._coroutine
        while isinstance(answer, Pending) and not answer.is_dispatched:
            answer = await answer.dispatch()
        return answer

    @property
    def is_ready(self) -> bool:
        return False

    def give_up(self) -> None:
        self._coroutine.close()


class InStages(Pending):
    """A first phase in stages that has come to a wait. A wait that calls when it is over (`is_called`) needs no task:
    its watcher takes the next `step` then. Otherwise a task has to go on.
    """

    __slots__ = ("_wait", "_work")

    is_dispatched = False

    def __init__(self, work: Stages[Answer], wait: Wait) -> None:
        self._work = work
        self._wait: Wait | None = wait

    async def dispatch(self) -> Answer:
        wait, self._wait = self._wait, None  # from now on it is this task's
        assert wait is not None
        answer = await go_on(self._work, wait)
        while isinstance(answer, Pending) and not answer.is_dispatched:
            answer = await answer.dispatch()
        return answer

    @property
    def is_called(self) -> bool:
        return isinstance(self._wait, CalledWait)

    @property
    def is_over(self) -> bool:
        """Whether it was called, and no task has taken it over meanwhile."""
        return isinstance(self._wait, CalledWait) and self._wait.is_over

    @property
    def is_ready(self) -> bool:
        return False

    def watch(self, ready: Callable[[], None]) -> None:
        assert isinstance(self._wait, CalledWait)
        self._wait.watch(ready)

    def step(self) -> Answer:
        """Go on after a wait that is over: the answer, or this if there is another one."""
        try:
            self._wait = next(self._work)
        except StopIteration as end:
            answer: Answer = end.value
            return answer
        return self

    def give_up(self) -> None:
        if isinstance(self._wait, CalledWait):
            self._wait.give_up()
        if self._wait is not None:
            self._work.close()


class Changed(Pending):
    """An answer that is changed when it is sent."""

    __slots__ = ("_answer", "_change", "is_dispatched")

    def __init__(self, answer: Answer, change: Change) -> None:
        self.is_dispatched = not isinstance(answer, Pending) or answer.is_dispatched
        self._answer = answer
        self._change = change

    async def dispatch(self) -> Answer:
        assert isinstance(self._answer, Pending)
        return Changed(await self._answer.dispatch(), self._change)

    @property
    def is_ready(self) -> bool:
        return not isinstance(self._answer, Pending) or self._answer.is_ready

    def watch(self, ready: Callable[[], None]) -> None:
        assert isinstance(self._answer, Pending)
        self._answer.watch(ready)

    def response(self) -> Response | None:
        answer = self._answer
        return self._change(answer.response() if isinstance(answer, Pending) else answer)

    def give_up(self) -> None:
        if isinstance(self._answer, Pending):
            self._answer.give_up()


def begin(work: Stages[A]) -> A | Pending:
    """The answer that a handler makes in stages, pending from the first wait on."""
    try:
        wait = next(work)
    except StopIteration as end:
        answer: A = end.value
        return answer
    return InStages(work, wait)


async def finish(answer: Answer) -> Response | None:
    """Go through all that is pending, in this task."""
    if isinstance(answer, Pending) and not answer.is_dispatched:
        answer = await answer.dispatch()
    if not isinstance(answer, Pending):
        return answer
    if not answer.is_ready:
        await answer.wait()
    return answer.response()


def handler_of(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Answer]:
    """The handler that a module's `handle` is, from a request and its context to the answer. It touches no task: a
    coroutine function needs one for all it does.
    """
    if not iscoroutinefunction(function):
        return function

    @wraps(function)
    def handle(request: Any, context: Any) -> Pending:
        return InTask(function(request, context))

    return handle
