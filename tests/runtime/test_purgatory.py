"""The purgatory by itself: it completes an operation once and keeps nothing of those that have left."""

import math
from collections.abc import Callable, Hashable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from ottla.runtime.purgatory import Purgatory, Watch


@pytest.fixture
def purgatory() -> Purgatory:
    return Purgatory("test")


class Operation:
    """An operation that completes when its `result` is set, and counts its tries."""

    def __init__(self) -> None:
        self.result: str | None = None
        self.tries = 0

    def try_complete(self) -> str | None:
        self.tries += 1
        return self.result


def assert_empty(purgatory: Purgatory) -> None:
    assert purgatory.watching == 0
    assert purgatory.watched_keys == 0


async def test_an_operation_that_can_complete_is_never_watched(purgatory: Purgatory) -> None:
    operation = Operation()
    operation.result = "done"
    assert await purgatory.wait(["a"], operation.try_complete, 1000) == "done"
    assert operation.tries == 1
    assert_empty(purgatory)


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_timeout_of_zero_or_less_does_not_wait(purgatory: Purgatory, timeout_ms: int) -> None:
    operation = Operation()
    assert await purgatory.wait(["a"], operation.try_complete, timeout_ms) is None
    assert operation.tries == 1
    assert purgatory.expired == 1
    assert_empty(purgatory)


async def test_a_signal_of_any_key_completes_it_and_it_leaves_every_key(
    purgatory: Purgatory, nursery: trio.Nursery
) -> None:
    operation = Operation()
    results: list[str | None] = []

    async def run() -> None:
        results.append(await purgatory.wait(["a", "b", "c"], operation.try_complete, math.inf))

    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    assert purgatory.watched_keys == 3
    operation.result = "done"
    purgatory.signal("b")
    await wait_all_tasks_blocked()
    assert results == ["done"]
    assert purgatory.completed_later == 1
    assert_empty(purgatory)


async def test_a_signal_without_completion_tries_again_and_waits_on(
    purgatory: Purgatory, nursery: trio.Nursery
) -> None:
    operation = Operation()
    nursery.start_soon(purgatory.wait, ["a"], operation.try_complete, math.inf)
    await wait_all_tasks_blocked()
    assert operation.tries == 2  # before and after it watches
    purgatory.signal("a")
    await wait_all_tasks_blocked()
    assert operation.tries == 3
    assert purgatory.watching == 1
    nursery.cancel_scope.cancel()


async def test_many_signals_are_one_wake_up(purgatory: Purgatory, nursery: trio.Nursery) -> None:
    operation = Operation()
    nursery.start_soon(purgatory.wait, ["a", "b"], operation.try_complete, math.inf)
    await wait_all_tasks_blocked()
    for _ in range(10):
        purgatory.signal("a")
        purgatory.signal("b")
    await wait_all_tasks_blocked()
    assert operation.tries == 3
    assert purgatory.wake_ups == 1
    nursery.cancel_scope.cancel()


async def test_other_keys_wake_nobody(purgatory: Purgatory, nursery: trio.Nursery) -> None:
    operation = Operation()
    nursery.start_soon(purgatory.wait, ["a"], operation.try_complete, math.inf)
    await wait_all_tasks_blocked()
    purgatory.signal("z")
    await wait_all_tasks_blocked()
    assert operation.tries == 2
    assert purgatory.wake_ups == 0
    nursery.cancel_scope.cancel()


async def test_a_signal_from_within_the_try_is_not_lost(purgatory: Purgatory) -> None:
    tries = 0

    def try_complete() -> str | None:
        nonlocal tries
        tries += 1
        purgatory.signal("a")
        return "done" if tries == 3 else None

    assert await purgatory.wait(["a"], try_complete, math.inf) == "done"
    assert_empty(purgatory)


async def test_it_expires_at_its_deadline(purgatory: Purgatory, autojump_clock: MockClock) -> None:
    operation = Operation()
    started = trio.current_time()
    assert await purgatory.wait(["a"], operation.try_complete, 250) is None
    assert trio.current_time() - started == pytest.approx(0.250)
    assert purgatory.expired == 1
    assert_empty(purgatory)


async def test_it_is_tried_a_last_time_at_the_deadline(purgatory: Purgatory, autojump_clock: MockClock) -> None:
    operation = Operation()

    async def complete_unheard() -> None:
        await trio.sleep(0.1)
        operation.result = "done"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(complete_unheard)
        assert await purgatory.wait(["a"], operation.try_complete, 250) == "done"
    assert purgatory.expired == 0


async def test_a_cancelled_waiter_leaves_every_key(purgatory: Purgatory) -> None:
    operation = Operation()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(purgatory.wait, ["a", "b"], operation.try_complete, math.inf)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert_empty(purgatory)
    assert (purgatory.completed_later, purgatory.expired) == (0, 0)


async def test_what_the_operation_raises_ends_the_wait(purgatory: Purgatory) -> None:
    tries = 0

    def try_complete() -> str | None:
        nonlocal tries
        tries += 1
        if tries == 2:
            raise LookupError("gone")
        return None

    with pytest.raises(LookupError, match="gone"):
        await purgatory.wait(["a"], try_complete, math.inf)
    assert_empty(purgatory)


async def test_close_ends_every_wait_now_and_later(purgatory: Purgatory, nursery: trio.Nursery) -> None:
    results: list[str | None] = []

    async def run(key: str) -> None:
        results.append(await purgatory.wait([key], Operation().try_complete, math.inf))

    nursery.start_soon(run, "a")
    nursery.start_soon(run, "b")
    await wait_all_tasks_blocked()
    purgatory.close()
    await wait_all_tasks_blocked()
    assert results == [None, None]
    await run("c")
    assert results == [None, None, None]
    assert_empty(purgatory)


async def test_signalled_keys_are_told_to_the_operation(purgatory: Purgatory, nursery: trio.Nursery) -> None:
    signalled: set[Hashable] = set()
    seen: list[set[Hashable]] = []

    def try_complete() -> str | None:
        seen.append(set(signalled))
        signalled.clear()
        return None

    async def run() -> None:
        await purgatory.wait(["a", "b", "c"], try_complete, math.inf, signalled=signalled)

    nursery.start_soon(run)
    await wait_all_tasks_blocked()
    purgatory.signal("b")
    purgatory.signal("c")
    purgatory.signal("c")
    await wait_all_tasks_blocked()
    assert seen == [set(), set(), {"b", "c"}]
    nursery.cancel_scope.cancel()


async def test_a_key_named_twice_is_left_once(purgatory: Purgatory, autojump_clock: MockClock) -> None:
    assert await purgatory.wait(["a", "a"], Operation().try_complete, 10) is None
    assert_empty(purgatory)


@given(
    st.lists(st.tuples(st.sets(st.integers(0, 4), min_size=1), st.integers(1, 50)), min_size=1, max_size=8),
    st.lists(st.integers(0, 4), max_size=20),
)
def test_every_operation_completes_exactly_once_whatever_the_order(
    waits: list[tuple[set[int], int]], signals: list[int]
) -> None:
    """An operation completes with the first signal of one of its keys, or else expires."""

    async def main() -> None:
        purgatory = Purgatory("property")
        fired: set[int] = set()
        outcomes: dict[int, list[bool]] = {index: [] for index in range(len(waits))}

        def try_complete_of(keys: set[int]) -> Callable[[], bool | None]:
            return lambda: True if fired & keys else None

        async def run(index: int, keys: set[int], timeout_ms: int) -> None:
            outcomes[index].append(bool(await purgatory.wait(keys, try_complete_of(keys), timeout_ms)))

        async with trio.open_nursery() as nursery:
            for index, (keys, timeout_ms) in enumerate(waits):
                nursery.start_soon(run, index, keys, timeout_ms)
            for key in signals:
                await trio.sleep(0.003)
                fired.add(key)
                purgatory.signal(key)
        for index, (keys, timeout_ms) in enumerate(waits):
            signalled_at = [3 * (n + 1) for n, key in enumerate(signals) if key in keys]
            expected = bool(signalled_at) and signalled_at[0] <= timeout_ms
            if not signalled_at or signalled_at[0] != timeout_ms:  # at the same instant both answers are right
                assert outcomes[index] == [expected]
        assert_empty(purgatory)

    trio.run(main, clock=MockClock(autojump_threshold=0))


class Watched:
    """A purgatory without tasks: what it does soon is done when the test says so."""

    def __init__(self) -> None:
        self.later: list[Callable[[], None]] = []
        self.purgatory = Purgatory("test", self.later.append)
        self.operation = Operation()
        self.calls: list[int] = []
        self.may_expire = True

    def watch(self, timeout_ms: float = math.inf) -> Watch:
        return self.purgatory.watch(
            ["a", "b"], self.operation.try_complete, timeout_ms, self._complete, may_expire=lambda: self.may_expire
        )

    def _complete(self) -> None:
        assert_empty(self.purgatory)
        self.calls.append(self.operation.tries)

    def run(self) -> None:
        """Do what is to be done soon."""
        later = self.later.copy()
        self.later.clear()
        for step in later:
            step()


async def test_who_watches_is_called_once_and_after_the_change() -> None:
    it = Watched()
    it.watch()
    assert (it.purgatory.watched_keys, it.operation.tries, it.later) == (2, 1, [])
    for key in ("a", "b", "a", "z"):
        it.purgatory.signal(key)
    it.run()
    assert (it.operation.tries, it.calls, it.purgatory.wake_ups) == (2, [], 1)
    it.operation.result = "done"
    it.purgatory.signal("b")
    assert it.operation.tries == 2, "a signal runs none of the operation's code"
    it.run()
    it.purgatory.signal("b")
    it.run()
    assert it.calls == [3]
    assert it.purgatory.completed_later == 1


async def test_what_is_complete_already_is_told_after_the_call_that_watches() -> None:
    it = Watched()
    it.operation.result = "done"
    it.watch()
    assert it.calls == []
    it.run()
    assert it.calls == [2]


async def test_a_watch_ends_at_its_deadline_if_it_may(autojump_clock: MockClock) -> None:
    it = Watched()
    it.may_expire = False
    it.watch(250)
    await trio.sleep(0.2)
    it.run()
    assert it.operation.tries == 1
    await trio.sleep(0.1)
    it.run()
    assert (it.operation.tries, it.calls) == (2, [])
    it.may_expire = True
    it.purgatory.signal("a")
    it.run()
    assert it.calls == [3]
    assert it.purgatory.expired == 1
    assert len(it.purgatory.deadlines) == 0


@pytest.mark.parametrize("timeout_ms", [0, -1])
async def test_a_watch_without_time_ends_soon(timeout_ms: int) -> None:
    it = Watched()
    it.watch(timeout_ms)
    it.run()
    assert it.calls == [2]


async def test_a_purgatory_that_is_closed_ends_every_watch() -> None:
    it = Watched()
    it.may_expire = False
    it.watch()
    it.purgatory.close()
    it.run()
    it.watch()
    it.run()
    assert len(it.calls) == 2


async def test_who_leaves_is_not_called(autojump_clock: MockClock) -> None:
    it = Watched()
    watch = it.watch(100)
    it.operation.result = "done"
    it.purgatory.signal("a")
    watch.leave()
    watch.leave()
    assert_empty(it.purgatory)
    it.run()
    await trio.sleep(1)
    it.run()
    assert it.calls == []


async def test_what_a_try_raises_ends_the_wait_and_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    it = Watched()
    watch = it.watch()

    def fail() -> bool:
        raise ZeroDivisionError("a bug")

    watch._try_complete = fail
    it.purgatory.signal("a")
    it.run()
    assert it.calls == [1]
    assert "ZeroDivisionError: a bug" in caplog.text


async def test_who_watches_learns_which_keys_were_signalled() -> None:
    it = Watched()
    signalled: set[Hashable] = set()
    it.purgatory.watch(["a", "b"], it.operation.try_complete, math.inf, it._complete, signalled=signalled)
    it.purgatory.signal("b")
    it.purgatory.signal("z")
    assert signalled == {"b"}
