"""A streams member's next step towards its target: revoke first, then take what others have released (KIP-1071).

Kafka's counterpart is CurrentAssignmentBuilder. No two members are ever active for a task at the same time, and no
process holds a task in two roles: its members share the folder that the task's state lies in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ottla.coordinator.group.streams.assignor import Task, Tasks, TaskSet
from ottla.coordinator.group.streams.member import NOTHING_HELD, HeldTasks, StreamsCurrent, StreamsMemberState
from ottla.coordinator.group.streams.owners import Owners


def next_tasks(
    current: StreamsCurrent,
    *,
    process_id: str,
    target: TaskSet,
    target_epoch: int,
    owned: TaskSet | None,
    owners: Owners,
) -> StreamsCurrent:
    """The member's current assignment after a heartbeat that reported `owned` (None: not reported this time)."""
    epoch = current.epoch
    if current.state is StreamsMemberState.STABLE and epoch == target_epoch:
        return current
    if current.state is StreamsMemberState.UNREVOKED_TASKS:
        if _owns_any(owned, current.pending_revocation):
            return current
        epoch += 1

    def is_unreleased_as_active(task: Task) -> bool:
        return owners.is_active_anywhere(task) or owners.has_copy(task, process_id)

    def is_unreleased_as_copy(task: Task) -> bool:
        return owners.has_active(task, process_id) or owners.has_copy(task, process_id)

    kept_active, revoked_active, taken_active, waits = _active_step(
        current.assigned.active, target.active, target_epoch, is_unreleased_as_active
    )
    steps = [
        _step(current.assigned.standby, target.standby, is_unreleased_as_copy),
        _step(current.assigned.warmup, target.warmup, is_unreleased_as_copy),
    ]
    kept = HeldTasks(kept_active, steps[0].kept, steps[1].kept)
    revoked = HeldTasks(revoked_active, steps[0].revoked, steps[1].revoked)
    if revoked and _owns_any(owned, revoked):
        return StreamsCurrent(epoch, current.epoch, StreamsMemberState.UNREVOKED_TASKS, kept, revoked)
    waits |= any(step.waits for step in steps)
    state = StreamsMemberState.UNRELEASED_TASKS if waits else StreamsMemberState.STABLE
    taken = HeldTasks(taken_active, steps[0].taken, steps[1].taken)
    return StreamsCurrent(target_epoch, current.epoch, state, taken, NOTHING_HELD)


class _Step:
    """One role: the tasks that stay, those that go, and all that the member has once those are gone."""

    __slots__ = ("kept", "revoked", "taken", "waits")

    def __init__(self) -> None:
        self.kept: dict[str, frozenset[int]] = {}
        self.revoked: dict[str, frozenset[int]] = {}
        self.taken: dict[str, frozenset[int]] = {}
        self.waits = False


def _step(now: Tasks, target: Tasks, is_unreleased: Callable[[Task], bool]) -> _Step:
    step = _Step()
    for name in {*now, *target}:
        mine, wanted = now.get(name, frozenset()), target.get(name, frozenset())
        free = frozenset(index for index in wanted - mine if not is_unreleased((name, index)))
        step.waits |= len(free) < len(wanted - mine)
        for found, into in (
            (mine & wanted, step.kept),
            (mine - wanted, step.revoked),
            (mine & wanted | free, step.taken),
        ):
            if found:
                into[name] = found
    return step


def _active_step(
    now: Mapping[str, Mapping[int, int]], target: Tasks, target_epoch: int, is_unreleased: Callable[[Task], bool]
) -> tuple[dict[str, dict[int, int]], dict[str, dict[int, int]], dict[str, dict[int, int]], bool]:
    """`_step` for active tasks, each of which has the epoch at which it was given to the member."""
    plain = {name: frozenset(epochs) for name, epochs in now.items()}
    step = _step(plain, target, is_unreleased)

    def with_epochs(tasks: Tasks) -> dict[str, dict[int, int]]:
        return {
            name: {index: now.get(name, {}).get(index, target_epoch) for index in indexes}
            for name, indexes in tasks.items()
        }

    return with_epochs(step.kept), with_epochs(step.revoked), with_epochs(step.taken), step.waits


def _owns_any(owned: TaskSet | None, tasks: HeldTasks) -> bool:
    """Whether the member may still own one of these: for all we know it does unless it reported otherwise."""
    if owned is None:
        return True
    return any(
        owned_now.get(name, frozenset()) & indexes
        for owned_now, gone in zip(owned, tasks.without_epochs(), strict=True)
        for name, indexes in gone.items()
    )
