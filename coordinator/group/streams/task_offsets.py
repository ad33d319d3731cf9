"""How far the state of a streams group's members is (KIP-1071): what they report about their tasks' changelogs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.coordinator.errors import InvalidRequestError
from ottla.coordinator.group.streams.assignor import Task

_NONE: Final[Mapping[Task, int]] = MappingProxyType({})


class TaskOffsets(NamedTuple):
    """A task's offset is the sum of those that its state has reached in its changelogs; its end is where those end.

    They are kept in memory alone, and a heartbeat reports no more than its limit of elements.
    """

    offsets: Mapping[Task, int] = _NONE
    ends: Mapping[Task, int] = _NONE

    def reported(
        self, offsets: Iterable[tuple[Task, int]] | None, ends: Iterable[tuple[Task, int]] | None
    ) -> TaskOffsets:
        """With what a heartbeat says; None means unchanged. Raises InvalidRequestError for a task that it has twice."""
        return TaskOffsets(
            self.offsets if offsets is None else _by_task(offsets), self.ends if ends is None else _by_task(ends)
        )


NOTHING_REPORTED: Final = TaskOffsets()


def _by_task(reported: Iterable[tuple[Task, int]]) -> Mapping[Task, int]:
    found: dict[Task, int] = {}
    for task, offset in reported:
        if task in found:
            raise InvalidRequestError(
                f"Task offsets contain a duplicate entry for subtopology {task[0]} and partition {task[1]}."
            )
        found[task] = offset
    return found
