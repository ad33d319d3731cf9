"""What clients were told of committed offsets, and which answers to a fetch that allows.

Every operation has a beginning and, if it was answered, an end, on one count of events. What ended before another
began comes before it; what overlaps may have come in either order. An operation that was not answered, or answered
with an error that leaves open what happened, may take effect at any time after its beginning, or never.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import NamedTuple
from uuid import UUID


class Key(NamedTuple):
    """An offset's place: a topic that is made again under its name has the same one."""

    group: str
    topic: str
    partition: int


class Commit:
    """One commit of one partition. No other commit has its offset, so that a fetch says which commit it found."""

    __slots__ = ("began", "ended", "is_acknowledged", "is_void", "key", "offset", "topic_id", "wall_ms")

    def __init__(self, key: Key, offset: int, topic_id: UUID, began: int, wall_ms: int) -> None:
        self.key = key
        self.offset = offset
        self.topic_id = topic_id
        self.began = began
        self.ended: float = math.inf
        self.is_acknowledged = False
        self.is_void = False
        """It was refused or aborted: it must never be seen."""
        self.wall_ms = wall_ms

    def __str__(self) -> str:
        said = "acknowledged" if self.is_acknowledged else "void" if self.is_void else "open"
        return f"{self.offset} ({said}, {self.began} to {self.ended})"


class Removal:
    """A deletion that was asked for: of a group's offsets, or of some."""

    __slots__ = ("began", "ended", "is_acknowledged", "is_void")

    def __init__(self, began: int) -> None:
        self.began = began
        self.ended: float = math.inf
        self.is_acknowledged = False
        self.is_void = False


class History:
    """All commits and removals of one seed's life."""

    def __init__(self, *, is_living: Callable[[UUID], bool], now_ms: Callable[[], int], retention_ms: int) -> None:
        self._is_living = is_living
        self._now_ms = now_ms
        self._retention_ms = retention_ms
        self._events = 0
        self._commits: defaultdict[Key, list[Commit]] = defaultdict(list)
        self._removals: defaultdict[Key, list[Removal]] = defaultdict(list)
        self._next_offset = 1

    def _tick(self) -> int:
        self._events += 1
        return self._events

    @property
    def keys(self) -> list[Key]:
        """All that anybody tried to commit."""
        return list(self._commits)

    def begin_commit(self, key: Key, topic_id: UUID) -> Commit:
        commit = Commit(key, self._next_offset, topic_id, self._tick(), self._now_ms())
        self._next_offset += 1
        self._commits[key].append(commit)
        return commit

    def begin_removal(self, keys: Iterable[Key]) -> Removal:
        removal = Removal(self._tick())
        for key in keys:
            self._removals[key].append(removal)
        return removal

    def end(self, operations: Iterable[Commit | Removal], *, acknowledged: bool) -> None:
        """Operations were answered: done, or refused for good."""
        ended = self._tick()
        for operation in operations:
            operation.ended = ended
            operation.is_acknowledged = acknowledged
            operation.is_void = not acknowledged

    def judge(self, key: Key, offset: int | None) -> str | None:
        """What is wrong with a fetch that finds this now; None if nothing is. The kind stands before the colon."""
        if offset is None:
            for commit in self._commits[key]:
                if commit.is_acknowledged and not self._may_be_gone(commit):
                    return f"an acknowledged offset is lost: {key} {commit}"
            return None
        commit = next(each for each in self._commits[key] if each.offset == offset)
        if commit.is_void:
            return f"an aborted or refused offset is there: {key} {commit}"
        if not self._is_living(commit.topic_id):
            return f"an offset of a deleted topic is answered: {key} {commit}"
        for later in self._commits[key]:
            if later.is_acknowledged and later.began > commit.ended and self._is_living(later.topic_id):
                return f"an older offset is back: {key} {commit}, after {later}"
        for removal in self._removals[key]:
            if removal.is_acknowledged and removal.began > commit.ended:
                return f"a deleted offset is back: {key} {commit}, deleted {removal.began} to {removal.ended}"
        return None

    def _may_be_gone(self, commit: Commit) -> bool:
        if not self._is_living(commit.topic_id) or self._now_ms() - commit.wall_ms >= self._retention_ms:
            return True
        return any(not removal.is_void and removal.ended > commit.began for removal in self._removals[commit.key])
