"""Locks of groups: the one mechanism that lets nothing come between the plan of a change and its records.

- **A group id has one lock**, whatever lives under it now: a classic group, one of the newer protocols, or nothing.
  To create, convert, join or remove a group, a request takes the lock before it first looks at the group and holds it
  until the records are replayed or refused. Waiting for the records is shielded: every write is settled, also when the
  partition moves away or the broker stops, and that ends the wait.
- **A classic group with members** is changed in memory at once, between two awaits, and each of its records gets its
  place in the order of the writes at the same moment. That needs no lock. But a JoinGroup passes through the lock, so
  nobody joins a group whose removal or conversion is on its way.
- **A commit** holds nothing: it only adds. It gets its place in the order of the writes when it is checked.
- **What deletes offsets**, with the group or without it, is therefore planned when its turn among the writes has come
  (`CoordinatorRuntime.begin_planned_write`): by then all earlier commits are in the cache, and none can come between.

Kafka has one thread for each partition and plans every operation on a state that holds the uncommitted writes as well
(TimelineHashMap, CoordinatorRuntime): there, too, an operation sees everything before it, and nothing comes between.
"""

from __future__ import annotations

from types import TracebackType

import trio


class GroupLocks:
    """The locks of the group ids that somebody holds or waits for: no more than there are requests under way."""

    def __init__(self) -> None:
        self._locks: dict[str, _Lock] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def exclusively(self, group_id: str) -> _Turn:
        """A turn for `async with`. Turns come one after the other, in the order in which they were asked for."""
        return _Turn(self._locks, group_id)


class _Lock:
    """`users` hold it or wait for it; the last one takes it out of the table."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = trio.Lock()
        self.users = 0


class _Turn:
    __slots__ = ("_group_id", "_lock", "_locks")
    _lock: _Lock

    def __init__(self, locks: dict[str, _Lock], group_id: str) -> None:
        self._locks = locks
        self._group_id = group_id

    async def __aenter__(self) -> None:
        lock = self._locks.get(self._group_id)
        if lock is None:
            lock = self._locks[self._group_id] = _Lock()
        self._lock = lock
        lock.users += 1
        try:
            await lock.lock.acquire()
        except BaseException:
            self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._lock.lock.release()
        self._leave()

    def _leave(self) -> None:
        self._lock.users -= 1
        if not self._lock.users:
            del self._locks[self._group_id]
