"""The purgatory: where an operation that cannot complete yet waits for the events that may complete it.

It is the seed's and Kafka's `DelayedOperationPurgatory`. A task awaits (`wait`): its next line is what Kafka has in
callbacks. What waits in no task is told by a call (`watch`). Every event that can change the answer of a waiting
operation must signal one of its keys. This is the table of them; each line has a test for append and one for fetch
(`tests/replica/test_triggers.py`).

| event                                      | who signals                                | append | fetch |
|--------------------------------------------|--------------------------------------------|--------|-------|
| append flushed: its end offset moved       | `ReplicaManager.on_flushed`                | yes    | yes   |
| high watermark moved                       | `ReplicaManager`, by flush or follower     | yes    | yes   |
| last stable offset moved (marker flushed)  | `ReplicaManager.on_flushed`                | yes    | yes   |
| leader epoch changed                       | `ReplicaManager.apply`                     | yes    | yes   |
| role changed: follower or leader           | `ReplicaManager.apply`                     | yes    | yes   |
| in-sync set changed                        | `ReplicaManager.apply`                     | yes    | yes   |
| partition deleted or stopped               | `ReplicaManager.apply`                     | yes    | yes   |
| store went offline                         | `ReplicaManager.on_offline`                | yes    | yes   |
| follower progress (its end, its log start) | `ReplicaManager.fetch` of the follower     | yes    | yes   |
| log start offset moved                     | `ReplicaManager.delete_records`, retention | yes    | yes   |
| no follower comes any more, as it stops    | `ReplicaManager.lose_followers`            | yes    | no    |
| shutdown                                   | `ReplicaManager.close`                     | yes    | yes   |
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable
from typing import Protocol, TypeVar

import trio

from ottla.runtime import remote_time
from ottla.runtime.deadlines import Deadlines, Late

logger = logging.getLogger(__name__)

T = TypeVar("T")

Soon = Callable[[Callable[[], None]], None]
"""Calls what it is given once, after whatever changes state now is done."""


def _always() -> bool:
    return True


class Purgatory:
    """Waiting for one kind of delayed operation: append, fetch, delete records, join, …

    Promises:

    - An operation is tried at once; if it cannot complete, it watches every key and is tried again, then once
      after every wake-up. Signals that come while a wake-up is on its way are one wake-up.
    - It completes exactly once: by its first result that is not None, by its deadline, by `close`, or because nobody
      waits any more. Whichever it is, it has left every key before `wait` returns or the call comes.
    - `signal` costs the waiters of that key and runs none of their code, so it may be called amid any
      synchronous change of state: the waiters look only after the change is whole.

    The waiters are bounded by the requests in flight; the purgatory keeps nothing for those that left. One timer
    (`Deadlines`) keeps the time for all.
    """

    __slots__ = (
        "_soon",
        "_watchers",
        "completed_later",
        "deadlines",
        "expired",
        "is_closed",
        "name",
        "wake_ups",
        "watching",
    )

    def __init__(self, name: str, soon: Soon | None = None) -> None:
        """`soon` is needed for `watch`."""
        self.name = name
        self._soon = soon
        self.completed_later = 0
        self.expired = 0
        self.wake_ups = 0
        self.watching = 0
        self._watchers: dict[Hashable, dict[_Waiter, None]] = {}
        self.deadlines = Deadlines()
        self.is_closed = False

    @property
    def watched_keys(self) -> int:
        """How many keys have a waiter."""
        return len(self._watchers)

    async def wait(
        self,
        keys: Iterable[Hashable],
        try_complete: Callable[[], T | None],
        timeout_ms: float,
        *,
        signalled: set[Hashable] | None = None,
    ) -> T | None:
        """Return the first result of `try_complete` that is not None, or None once `timeout_ms` have passed.

        `try_complete` is synchronous and is called by this task alone; what it raises ends the wait. Each key
        that is signalled is added to `signalled`, for an operation that looks again only at what has changed:
        it takes them out itself. A timeout of zero or less does not wait; `math.inf` waits forever. At the
        deadline the operation is tried a last time, so that None means it really is not complete. No
        checkpoint is passed when it completes at once.
        """
        result = try_complete()
        if result is not None:
            return result
        if timeout_ms > 0 and not self.is_closed:
            waiter = _Task(signalled)
            watched = self.enter(keys, waiter)
            try:
                result = await self._await_result(waiter, try_complete, timeout_ms)
            finally:
                self.leave(watched, waiter)
        if result is None:
            self.expired += 1
        else:
            self.completed_later += 1
        return result

    def watch(
        self,
        keys: Iterable[Hashable],
        try_complete: Callable[[], object],
        timeout_ms: float,
        completed: Callable[[], None],
        *,
        signalled: set[Hashable] | None = None,
        may_expire: Callable[[], bool] = _always,
    ) -> Watch:
        """Call `completed` once `try_complete` is not None, or `timeout_ms` have passed, or the purgatory is closed.

        `wait` without a task: what it promises holds here too, and nothing is called before this returns. After the
        deadline the operation goes on waiting as long as it may not expire. `leave` ends the wait early.
        """
        assert self._soon is not None
        return Watch(self, self._soon, keys, try_complete, timeout_ms, completed, signalled, may_expire)

    def signal(self, key: Hashable) -> None:
        """Let every operation that watches `key` be tried again, soon."""
        waiters = self._watchers.get(key)
        if waiters is not None:
            for waiter in waiters:
                if waiter.signalled is not None:
                    waiter.signalled.add(key)
                if waiter.wake():
                    self.wake_ups += 1

    def signal_all(self) -> None:
        """Signal every watched key."""
        for key in self._watchers:
            self.signal(key)

    def close(self) -> None:
        """End every wait as its deadline would, those that begin later too: the last of all triggers."""
        self.is_closed = True
        self.signal_all()

    async def _await_result(self, waiter: _Task, try_complete: Callable[[], T | None], timeout_ms: float) -> T | None:
        deadline = None
        if timeout_ms != math.inf:
            deadline = self.deadlines.add(waiter, trio.current_time() + timeout_ms / 1000)
        try:
            with remote_time.Waiting():
                while True:
                    result = try_complete()
                    if result is not None or waiter.is_late or self.is_closed:
                        return result
                    await waiter.wait()
        finally:
            if deadline is not None:
                self.deadlines.leave(deadline)

    def enter(self, keys: Iterable[Hashable], waiter: _Waiter) -> list[Hashable]:
        """For a waiter: wake it when one of these is signalled; returns what to `leave`."""
        watched = list(keys)
        self.watching += 1
        for key in watched:
            self._watchers.setdefault(key, {})[waiter] = None
        return watched

    def leave(self, watched: list[Hashable], waiter: _Waiter) -> None:
        """For a waiter: do not wake it any more."""
        self.watching -= 1
        for key in watched:
            waiters = self._watchers.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._watchers[key]


class _Waiter(Protocol):
    """Who watches keys."""

    signalled: set[Hashable] | None

    def wake(self) -> bool:
        """Have the operation tried again; False if that is on its way already."""
        ...


class Watch:
    """An operation that waits in no task; made by `Purgatory.watch`."""

    __slots__ = (
        "_completed",
        "_deadline",
        "_has_left",
        "_is_complete",
        "_is_woken",
        "_keys",
        "_may_expire",
        "_purgatory",
        "_soon",
        "_try_complete",
        "is_late",
        "signalled",
    )

    def __init__(
        self,
        purgatory: Purgatory,
        soon: Soon,
        keys: Iterable[Hashable],
        try_complete: Callable[[], object],
        timeout_ms: float,
        completed: Callable[[], None],
        signalled: set[Hashable] | None,
        may_expire: Callable[[], bool],
    ) -> None:
        self._purgatory = purgatory
        self._soon = soon
        self._try_complete = try_complete
        self._completed = completed
        self._may_expire = may_expire
        self._has_left = self._is_woken = self._is_complete = False
        self.is_late = timeout_ms <= 0
        self.signalled = signalled
        self._keys = purgatory.enter(keys, self)
        self._deadline: list[Late] | None = None
        if timeout_ms != math.inf and not self.is_late:
            self._deadline = purgatory.deadlines.add(self, trio.current_time() + timeout_ms / 1000)
        if self._is_over():
            self.wake()

    def wake(self) -> bool:
        """Try it soon; False if that is on its way already."""
        if self._is_woken:
            return False
        self._is_woken = True
        self._soon(self._try)
        return True

    def expire(self) -> None:
        """The deadline has passed."""
        self.is_late = True
        self.wake()

    def leave(self) -> None:
        """Nobody waits any more: nothing is called from now on. A second call does nothing."""
        if not self._has_left:
            self._has_left = True
            self._purgatory.leave(self._keys, self)
            if self._deadline is not None:
                self._purgatory.deadlines.leave(self._deadline)

    def _try(self) -> None:
        self._is_woken = False
        if self._has_left or not self._is_over():
            return
        self.leave()
        if self._is_complete:
            self._purgatory.completed_later += 1
        else:
            self._purgatory.expired += 1
        self._completed()

    def _is_over(self) -> bool:
        try:
            self._is_complete = self._try_complete() is not None
            return self._is_complete or self._purgatory.is_closed or (self.is_late and self._may_expire())
        except Exception:
            # The waiter must not wait for ever; it deals with the state that it finds.
            logger.exception("an error in the broker ended a wait in the purgatory of %s", self._purgatory.name)
            return True


class _Task:
    """The task that waits. A wake-up that comes while it is awake ends its next wait at once."""

    __slots__ = ("_is_parked", "_is_woken", "_task", "is_late", "signalled")

    def __init__(self, signalled: set[Hashable] | None) -> None:
        self._task = trio.lowlevel.current_task()
        self._is_parked = False
        self._is_woken = False
        self.is_late = False
        self.signalled = signalled

    def wake(self) -> bool:
        """End the wait; False if it has ended already."""
        if self._is_woken:
            return False
        self._is_woken = True
        if self._is_parked:
            self._is_parked = False
            trio.lowlevel.reschedule(self._task)
        return True

    def expire(self) -> None:
        """The deadline has passed."""
        self.is_late = True
        self.wake()

    async def wait(self) -> None:
        """Wait for a wake-up. What comes from here on is for the next wait."""
        if self._is_woken:
            await trio.lowlevel.checkpoint()
        else:
            self._is_parked = True
            await trio.lowlevel.wait_task_rescheduled(self._abort)
        self._is_woken = False

    def _abort(self, _raise_cancel: object) -> trio.lowlevel.Abort:
        self._is_parked = False
        return trio.lowlevel.Abort.SUCCEEDED
