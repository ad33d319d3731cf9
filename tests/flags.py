"""Something that happens once, of which those who watch it are told by a call."""

from __future__ import annotations

from collections.abc import Callable


class Flag:
    """A `trio.Event` for what waits in no task (`Pending.watch`)."""

    def __init__(self) -> None:
        self._is_set = False
        self._watchers: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        watchers, self._watchers = self._watchers, []
        for call in watchers:
            call()

    def watch(self, call: Callable[[], None]) -> None:
        assert not self._is_set
        self._watchers.append(call)
