"""What a handler returns if its answer is not there yet: its two phases, a change of it, and its end without one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing

from ottla.kproto.messages.groups.heartbeat import HeartbeatResponse
from ottla.kproto.schema import Response
from ottla.runtime.stages import Stages
from ottla.server.apis.pending import Answer, Changed, InTask, Pending, begin, finish, handler_of
from tests.flags import Flag


class Flush(Pending):
    """Has only a second phase."""

    def __init__(self) -> None:
        self.written = Flag()
        self.is_given_up = False

    @property
    def is_ready(self) -> bool:
        return self.written.is_set()

    def watch(self, ready: Callable[[], None]) -> None:
        self.written.watch(ready)

    def response(self) -> Response:
        return HeartbeatResponse(throttle_time_ms=1)

    def give_up(self) -> None:
        self.is_given_up = True


def later(response: Any) -> Response:
    return HeartbeatResponse(throttle_time_ms=response.throttle_time_ms + 10)


async def dispatched(answer: Answer, waits: trio.Event) -> Answer:
    await waits.wait()
    return answer


@asynccontextmanager
async def finishing(answer: Answer, results: list[Any]) -> AsyncIterator[None]:
    async def run() -> None:
        results.append(await finish(answer))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(run)
        yield


@pytest.mark.parametrize("is_changed", [False, True])
async def test_the_second_phase_begins_when_the_first_is_over(is_changed: bool) -> None:
    room, flush = trio.Event(), Flush()
    answer: Pending = InTask(dispatched(flush, room))
    if is_changed:
        answer = Changed(answer, later)
    assert (answer.is_dispatched, answer.is_ready) == (False, False)
    room.set()
    left = await answer.dispatch()
    assert isinstance(left, Pending)
    assert (left.is_dispatched, left.is_ready) == (True, False)
    flush.written.set()
    assert left.is_ready
    response: Any = left.response()
    assert response.throttle_time_ms == (11 if is_changed else 1)


async def test_a_first_phase_may_end_with_another_one() -> None:
    free = trio.Event()
    free.set()
    response = HeartbeatResponse()
    inner = Changed(InTask(dispatched(response, free)), later)
    left = await InTask(dispatched(inner, free)).dispatch()
    assert isinstance(left, Changed)
    assert left.is_ready
    assert await finish(left) == HeartbeatResponse(throttle_time_ms=10)


async def test_finish_waits_for_both_phases() -> None:
    room, flush = trio.Event(), Flush()
    results: list[Any] = []
    async with finishing(InTask(dispatched(flush, room)), results):
        await trio.testing.wait_all_tasks_blocked()
        assert not results
        room.set()
        await trio.testing.wait_all_tasks_blocked()
        assert not results
        flush.written.set()
    assert results == [HeartbeatResponse(throttle_time_ms=1)]


async def test_an_answer_that_is_there_needs_no_wait() -> None:
    response = HeartbeatResponse()
    assert await finish(response) is response
    assert await finish(None) is None
    changed = Changed(response, later)
    assert (changed.is_dispatched, changed.is_ready) == (True, True)
    assert changed.response() == HeartbeatResponse(throttle_time_ms=10)


@pytest.mark.filterwarnings("error")  # a coroutine that is dropped without being closed is warned of
def test_whoever_gives_up_ends_what_was_to_run() -> None:
    coroutine = dispatched(None, trio.Event())
    Changed(InTask(coroutine), later).give_up()
    with pytest.raises(RuntimeError, match="cannot reuse"):
        coroutine.send(None)
    flush = Flush()
    Changed(flush, later).give_up()
    assert flush.is_given_up
    Changed(HeartbeatResponse(), later).give_up()


async def test_stages_are_pending_from_their_first_wait_on() -> None:
    def handle(waits: int) -> Stages[Response]:
        for _ in range(waits):
            yield trio.lowlevel.checkpoint
        return HeartbeatResponse()

    assert begin(handle(0)) == HeartbeatResponse()
    answer = begin(handle(2))
    assert isinstance(answer, Pending)
    assert await answer.dispatch() == HeartbeatResponse()


async def test_a_coroutine_function_needs_a_task_for_all_it_does() -> None:
    async def slow(request: Any, context: Any) -> Any:
        await trio.lowlevel.checkpoint()
        return request, context

    def quick(request: Any, context: Any) -> Any:
        return request, context

    context: Any = "context"
    answer: Any = handler_of(slow)("request", context)
    assert not isinstance(answer, Coroutine)
    assert not answer.is_dispatched
    assert await answer.dispatch() == ("request", "context")
    assert handler_of(quick) is quick
