"""The purgatory: where an operation that cannot complete yet waits for the events that may complete it.

It is the seed's and Kafka's `DelayedOperationPurgatory` as plain `await`: the caller's next line is what
Kafka has in callbacks. Every event that can change the answer of a waiting operation must signal one of its
keys. This is the table of them; each line has a test for append and one for fetch
(`tests/server/replica/test_triggers.py`).

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

import math
from collections.abc import Callable, Hashable, Iterable
from time import perf_counter
from typing import TypeVar

import trio

from ottla.runtime import remote_time
from ottla.runtime.deadlines import Deadlines

T = TypeVar("T")


class Purgatory:
    """Waiting for one kind of delayed operation: append, fetch, delete records, join, …

    Promises:

    - An operation is tried at once; if it cannot complete, it watches every key and is tried again, then once
      after every wake-up. Signals that come while a wake-up is on its way are one wake-up.
    - It completes exactly once: by its first result that is not None, by its deadline, by `close`, or by the
      cancellation of its task. Whichever it is, it has left every key before `wait` returns.
    - `signal` costs the waiters of that key and runs none of their code, so it may be called amid any
      synchronous change of state: the waiters look only after the change is whole.

    The waiters are bounded by the requests in flight; the purgatory keeps nothing for those that left. One timer
    (`Deadlines`) keeps the time for all.
    """

    __slots__ = (
        "_closed",
        "_deadlines",
        "_watchers",
        "completed_at_once",
        "completed_later",
        "expired",
        "name",
        "wake_ups",
        "watching",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.completed_at_once = 0
        self.completed_later = 0
        self.expired = 0
        self.wake_ups = 0
        self.watching = 0
        self._watchers: dict[Hashable, dict[_Waiter, None]] = {}
        self._deadlines = Deadlines()
        self._closed = False

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
            self.completed_at_once += 1
            return result
        if timeout_ms > 0 and not self._closed:
            waiter = _Waiter(signalled)
            watched = self._watch(keys, waiter)
            try:
                result = await self._await_result(waiter, try_complete, timeout_ms)
            finally:
                self._leave(watched, waiter)
        if result is None:
            self.expired += 1
        else:
            self.completed_later += 1
        return result

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
        self._closed = True
        self.signal_all()

    async def _await_result(
        self, waiter: "_Waiter", try_complete: Callable[[], T | None], timeout_ms: float
    ) -> T | None:
        started = perf_counter()
        deadline = None
        if timeout_ms != math.inf:
            deadline = self._deadlines.add(waiter, trio.current_time() + timeout_ms / 1000)
        try:
            while True:
                result = try_complete()
                if result is not None or waiter.is_late or self._closed:
                    return result
                await waiter.wait()
        finally:
            if deadline is not None:
                self._deadlines.leave(deadline)
            remote_time.note(perf_counter() - started)

    def _watch(self, keys: Iterable[Hashable], waiter: "_Waiter") -> list[Hashable]:
        watched = list(keys)
        self.watching += 1
        for key in watched:
            self._watchers.setdefault(key, {})[waiter] = None
        return watched

    def _leave(self, watched: list[Hashable], waiter: "_Waiter") -> None:
        self.watching -= 1
        for key in watched:
            waiters = self._watchers.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._watchers[key]


class _Waiter:
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
