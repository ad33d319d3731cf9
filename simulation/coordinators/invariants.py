"""What holds after every single step of a coordinator, whatever is under way."""

from __future__ import annotations

from collections.abc import Iterator

import trio
import trio.abc

from ottla.coordinator.group.consumer.group import ConsumerGroup
from ottla.coordinator.group.consumer.member import held
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.group.streams.assignor import Task
from ottla.coordinator.group.streams.group import StreamsGroup
from ottla.coordinator.group.streams.owners import each_task
from ottla.simulation.coordinators.world import World

MAX_STEPS = 40_000
"""Many times what a seed takes."""


class StepChecks(trio.abc.Instrument):
    """Looks at the coordinator after each step of any task."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._steps = 0
        #: Of all that the seed does; cancelled when it does not come to an end.
        self.scope = trio.CancelScope()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            self._world.violate(f"it spins: {self._steps} steps, now of {task.name}")
            self.scope.cancel()
            return
        if not hasattr(self._world, "coordinator"):
            return
        for shard in self._world.coordinator.runtime.loaded_shards():
            for wrong in check_shard(shard):
                self._world.violate(wrong)


def groups_with_offsets(shard: GroupShard) -> set[str]:
    """The groups that have offsets, committed or in an open transaction."""
    pending = (group for groups in shard.offsets._pending.values() for group, offsets in groups.items() if offsets)
    return {*shard.offsets._committed, *pending}


def check_shard(shard: GroupShard) -> Iterator[str]:
    """What is wrong in a shard, if anything."""
    groups = list(shard.groups.values())
    ids = {group.group_id for group in groups}
    if len(ids) < len(groups):
        yield f"two groups under one id: {sorted(group.group_id for group in groups)}"
    lone = groups_with_offsets(shard) - ids
    if lone:
        yield f"offsets without a group: {sorted(lone)}"
    for consumer_group in shard.groups_of(ConsumerGroup):
        yield from _check_partitions(consumer_group)
    for streams_group in shard.groups_of(StreamsGroup):
        yield from _check_tasks(streams_group)


def _check_partitions(group: ConsumerGroup) -> Iterator[str]:
    """No partition has two owners."""
    owners: dict[object, str] = {}
    for member in group.members.values():
        for partition in held(member.current):
            other = owners.setdefault(partition, member.member_id)
            if other != member.member_id:
                yield f"a partition has two owners: {partition} of {group.group_id}"


def _check_tasks(group: StreamsGroup) -> Iterator[str]:
    """Nobody runs what somebody else runs, and no process has a task twice."""
    active: set[Task] = set()
    held_by: set[tuple[Task, str]] = set()
    for member in group.members.values():
        process_id = member.subscription.process_id
        for tasks in (member.current.assigned.without_epochs(), member.current.pending_revocation.without_epochs()):
            for task in each_task(tasks.active):
                if task in active:
                    yield f"a task is active twice: {task} of {group.group_id}"
                active.add(task)
            for role in tasks:
                for task in each_task(role):
                    if (task, process_id) in held_by:
                        yield f"a process has a task twice: {task} of {group.group_id}"
                    held_by.add((task, process_id))
