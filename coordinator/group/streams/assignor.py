"""The assignor of streams groups, `sticky`: which member runs which tasks (KIP-1071).

Every task gets one active member. A task with state gets standbys too, as many as the group asks for, each in a process
of its own and none in that of the active member. Tasks stay where they are: with their active member if possible, else
with one that is their standby, else with one that says it has state of theirs, of several with the one that has most.
Within that, processes share the load in proportion to their members.

Kafka's counterpart is StickyTaskAssignor of 4.4, which assigns no warm-up tasks yet either. Which of several equals
gets what may differ.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

Tasks = Mapping[str, frozenset[int]]
"""Partitions by subtopology."""

Task = tuple[str, int]
"""One partition of a subtopology."""


ASSIGNOR_NAME: Final = "sticky"

NONE: Final[Tasks] = MappingProxyType({})


class TaskSet(NamedTuple):
    """The tasks of a member, by its role in them."""

    active: Tasks = NONE
    standby: Tasks = NONE
    warmup: Tasks = NONE

    def __bool__(self) -> bool:
        return any(self)


NO_TASKS = TaskSet()


class StreamsMemberSpec(NamedTuple):
    """A member as the assignor sees it: its process, its current tasks, and how far its state of any task is."""

    member_id: str
    process_id: str
    current: TaskSet = NO_TASKS
    offsets: Mapping[Task, int] = MappingProxyType({})


class SubtopologySpec(NamedTuple):
    """How many tasks a subtopology has, and whether they have state."""

    task_count: int
    is_stateful: bool


def sticky_assignor(
    members: Iterable[StreamsMemberSpec], subtopologies: Mapping[str, SubtopologySpec], standby_count: int
) -> dict[str, TaskSet]:
    """Assign all tasks, by member id; without members there is nothing to assign."""
    specs = sorted(members, key=lambda spec: spec.member_id)
    if not specs:
        return {}
    return _Assignment(specs, subtopologies, standby_count).made()


class _Member:
    __slots__ = ("active", "count", "member_id", "process", "standby")

    def __init__(self, member_id: str, process: _Process) -> None:
        self.member_id = member_id
        self.process = process
        self.count = 0
        self.active: dict[str, set[int]] = {}
        self.standby: dict[str, set[int]] = {}


class _Process:
    """One process of the application and its members. At most one of them holds a task."""

    __slots__ = ("count", "held", "members", "process_id")

    def __init__(self, process_id: str) -> None:
        self.process_id = process_id
        self.members: list[_Member] = []
        self.held: set[Task] = set()
        self.count = 0

    @property
    def load(self) -> float:
        return self.count / len(self.members)

    def least_loaded(self) -> _Member:
        return min(self.members, key=lambda member: member.count)


class _Candidate(NamedTuple):
    rank: tuple[bool, int]
    member: _Member


class _Quota:
    """How many tasks a member may have so that all get equally many. As members fill up it falls for the others."""

    __slots__ = ("_members", "_tasks", "each")

    def __init__(self, tasks: int, members: int) -> None:
        self._tasks, self._members = tasks, members
        self.each = -(-tasks // members)

    def given(self, count: int) -> None:
        """Note how many tasks a member has now."""
        if count == self.each:
            self._tasks -= count
            self._members -= 1
            self.each = -(-self._tasks // self._members) if self._members else 0


class _Assignment:
    def __init__(
        self, specs: list[StreamsMemberSpec], subtopologies: Mapping[str, SubtopologySpec], standby_count: int
    ) -> None:
        self._standby_count = standby_count
        self._processes: dict[str, _Process] = {}
        self._members: dict[str, _Member] = {}
        self._was_active: dict[Task, _Member] = {}
        candidates: dict[Task, list[_Candidate]] = {}
        for spec in specs:
            process = self._processes.setdefault(spec.process_id, _Process(spec.process_id))
            member = self._members[spec.member_id] = _Member(spec.member_id, process)
            process.members.append(member)
            for task in _each(spec.current.active):
                self._was_active[task] = member
            standbys = set(_each(spec.current.standby))
            for task in {*standbys, *spec.offsets}:
                rank = (task not in standbys, -spec.offsets.get(task, 0))
                candidates.setdefault(task, []).append(_Candidate(rank, member))
        self._with_state = {
            task: [each.member for each in sorted(found, key=lambda each: each.rank)]
            for task, found in candidates.items()
        }
        """The members with state of a task besides its active one, the best one first."""
        self._tasks = [(name, index) for name, spec in subtopologies.items() for index in range(spec.task_count)]
        self._stateful = [task for task in self._tasks if subtopologies[task[0]].is_stateful]
        total = len(self._tasks) + len(self._stateful) * standby_count
        self._active_quota = _Quota(len(self._tasks), len(specs))
        self._total_quota = _Quota(total, len(specs))

    def made(self) -> dict[str, TaskSet]:
        self._assign_active()
        if self._standby_count:
            self._assign_standbys()
        return {
            member_id: TaskSet(_frozen(member.active), _frozen(member.standby))
            for member_id, member in self._members.items()
        }

    def _give(self, member: _Member, task: Task, *, is_active: bool) -> None:
        name, index = task
        (member.active if is_active else member.standby).setdefault(name, set()).add(index)
        member.count += 1
        member.process.count += 1
        member.process.held.add(task)
        if is_active:
            self._active_quota.given(member.count)
        self._total_quota.given(member.count)

    def _assign_active(self) -> None:
        by_partition = sorted(self._tasks, key=lambda task: (task[1], task[0]))
        # First the members where they were active, then those with their state.
        left = [task for task in by_partition if not self._give_back(task, self._was_active.get(task))]
        left = [task for task in left if not self._give_back(task, self._with_state_of(task))]
        heap = self._by_load()
        for task in sorted(left):
            process = heap[0][2]
            self._give(process.least_loaded(), task, is_active=True)
            heapq.heapreplace(heap, (process.load, process.process_id, process))

    def _give_back(self, task: Task, member: _Member | None) -> bool:
        if member is None or member.count >= self._active_quota.each:
            return False
        self._give(member, task, is_active=True)
        return True

    def _with_state_of(self, task: Task) -> _Member | None:
        """The first of those with state of the task, unless a later one has less to do, and its process too; none in a
        process that has the task now.
        """
        found: _Member | None = None
        for member in self._with_state.get(task, ()):
            if task in member.process.held:
                continue
            if found is None or (member.process.load < found.process.load and member.count < found.count):
                found = member
        return found

    def _assign_standbys(self) -> None:
        left: list[Task] = []
        for task in sorted(self._stateful, key=lambda task: (task[1], task[0]), reverse=True):
            for given in range(self._standby_count):
                member = self._former_holder(task)
                if member is None:
                    left += [task] * (self._standby_count - given)
                    break
                self._give(member, task, is_active=False)
        heap = self._by_load()
        for task in sorted(left, reverse=True):
            self._give_to_least_loaded(heap, task)

    def _former_holder(self, task: Task) -> _Member | None:
        """The member that was active for the task, or one with state of it, if it has room for it as a standby."""
        was_active = self._was_active.get(task)
        for member in (was_active, self._with_state_of(task)):
            if member is not None and task not in member.process.held and member.count < self._total_quota.each:
                return member
        return None

    def _give_to_least_loaded(self, heap: list[tuple[float, str, _Process]], task: Task) -> None:
        """If every process already has the task, it gets fewer standbys than were asked for."""
        passed = []
        while heap:
            process = heapq.heappop(heap)[2]
            passed.append(process)
            if task not in process.held:
                self._give(process.least_loaded(), task, is_active=False)
                break
        for process in passed:
            heapq.heappush(heap, (process.load, process.process_id, process))

    def _by_load(self) -> list[tuple[float, str, _Process]]:
        heap = [(process.load, process.process_id, process) for process in self._processes.values()]
        heapq.heapify(heap)
        return heap


def _each(tasks: Tasks) -> Iterable[Task]:
    return ((name, index) for name, indexes in tasks.items() for index in indexes)


def _frozen(tasks: Mapping[str, set[int]]) -> dict[str, frozenset[int]]:
    return {name: frozenset(tasks[name]) for name in sorted(tasks)}
