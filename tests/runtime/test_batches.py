"""What comes while a request is under way leaves with the next; who sends for others may be cancelled, or fail."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
import trio.testing

from ottla.runtime.batches import Batches

pytestmark = pytest.mark.frozen_clock


class Sender:
    """Answers with the double, when it is let."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.go = trio.Event()
        self.failures: list[Exception] = []

    async def send(self, batch: Sequence[int]) -> Sequence[int]:
        self.batches.append(list(batch))
        await self.go.wait()
        if self.failures:
            raise self.failures.pop(0)
        return [2 * value for value in batch]


async def call(batches: Batches[int, int], value: int, answers: dict[int, object]) -> None:
    try:
        answers[value] = await batches.call(value)
    except OSError as error:
        answers[value] = str(error)


async def test_what_comes_meanwhile_leaves_together_in_batches_of_a_size(nursery: trio.Nursery) -> None:
    sender, answers = Sender(), dict[int, object]()
    batches = Batches(sender.send, max_items=3)
    for value in range(6):
        nursery.start_soon(call, batches, value, answers)
        await trio.testing.wait_all_tasks_blocked()
    assert sender.batches == [[0]]
    sender.go.set()
    await trio.testing.wait_all_tasks_blocked()
    assert sender.batches == [[0], [1, 2, 3], [4, 5]]
    assert answers == {value: 2 * value for value in range(6)}


async def test_who_was_taken_along_by_one_that_is_cancelled_sends_again(nursery: trio.Nursery) -> None:
    sender, answers = Sender(), dict[int, object]()
    batches = Batches(sender.send, max_items=9)
    scopes = [trio.CancelScope(), trio.CancelScope()]

    async def cancellable(value: int) -> None:
        with scopes[value]:
            await call(batches, value, answers)

    nursery.start_soon(cancellable, 0)
    await trio.testing.wait_all_tasks_blocked()
    for start, value in ((cancellable, 1), (None, 2), (None, 3)):
        nursery.start_soon(start, value) if start else nursery.start_soon(call, batches, value, answers)
        await trio.testing.wait_all_tasks_blocked()
    scopes[0].cancel()  # 1 sends for all
    await trio.testing.wait_all_tasks_blocked()
    scopes[1].cancel()
    await trio.testing.wait_all_tasks_blocked()
    sender.go.set()
    await trio.testing.wait_all_tasks_blocked()
    assert sender.batches[:2] == [[0], [1, 2, 3]]
    assert sorted(value for batch in sender.batches[2:] for value in batch) == [2, 3]
    assert answers == {2: 4, 3: 6}


async def test_a_failure_is_told_to_who_sent_and_the_others_try_themselves(nursery: trio.Nursery) -> None:
    sender, answers = Sender(), dict[int, object]()
    batches = Batches(sender.send, max_items=9)
    sender.failures = [OSError("a"), OSError("b")]
    for value in range(3):
        nursery.start_soon(call, batches, value, answers)
        await trio.testing.wait_all_tasks_blocked()
    sender.go.set()
    await trio.testing.wait_all_tasks_blocked()
    assert answers == {0: "a", 1: "b", 2: 4}


async def test_who_waits_and_is_cancelled_is_not_sent(nursery: trio.Nursery) -> None:
    sender, answers = Sender(), dict[int, object]()
    batches = Batches(sender.send, max_items=9)
    nursery.start_soon(call, batches, 0, answers)
    await trio.testing.wait_all_tasks_blocked()
    with trio.move_on_after(0):
        await batches.call(1)
    sender.go.set()
    await trio.testing.wait_all_tasks_blocked()
    assert (sender.batches, answers) == ([[0]], {0: 0})
