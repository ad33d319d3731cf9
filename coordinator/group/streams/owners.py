"""Which processes hold the tasks of a streams group."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ottla.coordinator.group.streams.assignor import Task, Tasks
    from ottla.coordinator.group.streams.member import StreamsCurrent


class Owners:
    """Which processes hold each task, by role. A process holds a task only once, whichever of its members has it."""

    __slots__ = ("_active", "_standby", "_warmup")

    def __init__(self) -> None:
        self._active: dict[Task, str] = {}
        self._standby: dict[Task, set[str]] = {}
        self._warmup: dict[Task, set[str]] = {}

    def is_active_anywhere(self, task: Task) -> bool:
        return task in self._active

    def has_active(self, task: Task, process_id: str) -> bool:
        return self._active.get(task) == process_id

    def has_copy(self, task: Task, process_id: str) -> bool:
        """Whether the process has the task as a standby or warm-up task."""
        return process_id in self._standby.get(task, ()) or process_id in self._warmup.get(task, ())

    def add(self, current: StreamsCurrent, process_id: str) -> None:
        """A member of the process holds these now."""
        for held in (current.assigned, current.pending_revocation):
            tasks = held.without_epochs()
            self._active.update(dict.fromkeys(each_task(tasks.active), process_id))
            for role, table in ((tasks.standby, self._standby), (tasks.warmup, self._warmup)):
                for task in each_task(role):
                    table.setdefault(task, set()).add(process_id)

    def remove(self, current: StreamsCurrent, process_id: str) -> None:
        """A member of the process no longer holds these."""
        for held in (current.assigned, current.pending_revocation):
            tasks = held.without_epochs()
            for task in each_task(tasks.active):
                if self._active.get(task) == process_id:
                    del self._active[task]
            for role, table in ((tasks.standby, self._standby), (tasks.warmup, self._warmup)):
                for task in each_task(role):
                    left = table.get(task)
                    if left is not None:
                        left.discard(process_id)
                        if not left:
                            del table[task]


def each_task(tasks: Tasks) -> Iterator[Task]:
    """The tasks of one role, one by one."""
    for name, indexes in tasks.items():
        for index in indexes:
            yield name, index
