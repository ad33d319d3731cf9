"""The end of a turn: its four steps in order, how much of each, and what a fault in one of them costs."""

from __future__ import annotations

from functools import partial

import pytest

from ottla.storage.turn import Turn


def test_the_steps_are_taken_in_order_and_what_comes_too_late_waits_for_the_next_end() -> None:
    turn, done = Turn(), list[str]()

    def answer() -> None:
        done.append("answer")
        turn.note(partial(done.append, "late note"))

    turn.answer(answer)
    turn.note(partial(done.append, "note"))
    turn.write(partial(done.append, "write"))
    turn.commit(partial(turn.write, partial(done.append, "write of a commit")))
    turn.end()
    assert done == ["write", "write of a commit", "note", "answer"]
    assert turn.is_begun
    turn.end()
    assert done[4:] == ["late note"]
    assert not turn.is_begun


def test_who_waited_for_the_same_is_answered_by_several_turns() -> None:
    turn, done = Turn(), list[int]()
    turn.answer(lambda: turn.answer(partial(done.append, 1000)))
    for number in range(150):
        turn.answer(partial(done.append, number))
    turn.end()
    assert done == list(range(63))
    assert turn.is_begun
    turn.end()
    assert len(done) == 127
    turn.end()
    assert done == [*range(150), 1000]
    assert not turn.is_begun


def test_a_fault_of_one_step_is_logged_and_costs_no_other(caplog: pytest.LogCaptureFixture) -> None:
    turn, done = Turn(), list[str]()
    turn.write(lambda: done.append(str(1 / 0)))
    turn.write(partial(done.append, "write"))
    turn.answer(partial(done.append, "answer"))
    turn.end()
    assert done == ["write", "answer"]
    assert "ZeroDivisionError" in caplog.text
