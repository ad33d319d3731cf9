"""Work that is done at once as far as nothing has to be waited for."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from ottla.runtime.stages import Stages, finish, go_on


class Log:
    """What happened, in order."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def stages(self, waits: int) -> Stages[str]:
        answers = []
        try:
            for number in range(waits):
                self.lines.append(f"before {number}")
                answers.append((yield partial(self._wait, number)))
        except ValueError as error:
            self.lines.append(str(error))
            raise
        finally:
            self.lines.append("end")
        return ", ".join(answers)

    async def _wait(self, number: int) -> str:
        await trio.lowlevel.checkpoint()
        if number == 7:
            raise ValueError("the wait failed")
        return f"waited {number}"


async def test_all_of_it_is_done_in_its_order() -> None:
    log = Log()
    assert await finish(log.stages(0)) == ""
    assert log.lines == ["end"]
    assert await finish(log.stages(2)) == "waited 0, waited 1"
    assert log.lines == ["end", "before 0", "before 1", "end"]


async def test_another_task_may_go_on_where_the_first_wait_is() -> None:
    log = Log()
    stages = log.stages(2)
    rest = go_on(stages, next(stages))
    assert log.lines == ["before 0"]
    assert await rest == "waited 0, waited 1"
    assert log.lines == ["before 0", "before 1", "end"]


async def test_what_a_wait_raises_is_raised_where_it_stands() -> None:
    log = Log()
    with pytest.raises(ValueError, match="the wait failed"):
        await finish(log.stages(9))
    assert log.lines[-2:] == ["the wait failed", "end"]


async def test_cancellation_ends_it_where_it_waits() -> None:
    log = Log()
    with trio.CancelScope() as scope:
        scope.cancel()
        await finish(log.stages(1))
    assert scope.cancelled_caught
    assert log.lines == ["before 0", "end"]


def test_a_rest_that_nobody_awaits_is_ended_when_it_is_closed() -> None:
    log = Log()
    stages = log.stages(1)
    rest = go_on(stages, next(stages))
    rest.close()
    del rest, stages
    assert log.lines == ["before 0", "end"]
