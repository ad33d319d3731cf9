"""Something that happens once, of which those who watch it are told by a call."""

from __future__ import annotations

from collections.abc import Callable

import trio

from ottla.runtime.stages import CalledWait


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


class FlagWait(CalledWait):
    """A wait of stages for a flag. `tasks` counts those that have taken it over."""

    def __init__(self, flag: Flag) -> None:
        self._flag = flag
        self.is_given_up = False
        self.tasks = 0

    @property
    def is_over(self) -> bool:
        return self._flag.is_set()

    def watch(self, over: Callable[[], None]) -> None:
        self._flag.watch(lambda: None if self.is_given_up else over())

    def give_up(self) -> None:
        self.is_given_up = True

    async def __call__(self) -> None:
        self.give_up()
        self.tasks += 1
        over = trio.Event()
        if not self.is_over:
            self._flag.watch(over.set)
            await over.wait()
