"""What keeps requests to coordinators apart, taken out again: `ottla simulate coordinators --planted`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final

from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.offsets.deleted_topic_cleanup import DeletedTopicCleanup
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.offset_cache import OffsetCache
from ottla.coordinator.partition import Plan, Write
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.simulation.harness.planted import PlantedFault

__all__ = ["FAULTS"]


def _always(answer: object) -> Callable[..., Any]:
    return lambda *arguments, **named: answer


@asynccontextmanager
async def _not_exclusively(self: GroupLocks, group_id: str) -> AsyncIterator[None]:
    yield


def _begin_planned_at_once(self: CoordinatorRuntime[Any], index: int, plan: Plan, *, shard: Any) -> Write:
    return self.begin_write(index, plan(), shard=shard)


def _is_gone_by_name(self: DeletedTopicCleanup, key: bytes, value: bytes, names: set[str]) -> bool:
    name = offset_records.offset_partition(key).topic
    return name in names or not self._topics.ids([name])


def _living(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every topic exists, also one that was deleted."""

    def with_all(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **{**named, "is_living": _always(True)})

    return with_all


FAULTS: Final = (
    PlantedFault("a group has no lock", ((GroupLocks, "exclusively", _not_exclusively),)),
    PlantedFault(
        "what deletes is planned at once, on what has been replayed by then",
        ((CoordinatorRuntime, "begin_planned_write", _begin_planned_at_once),),
    ),
    PlantedFault(
        "a deleted topic's offsets are known by its name", ((DeletedTopicCleanup, "_is_gone", _is_gone_by_name),)
    ),
    PlantedFault(
        "a partition that was loaded is not looked through", ((DeletedTopicCleanup, "look_at", _always(None)),)
    ),
    PlantedFault(
        "what was left when a topic was forgotten is left for good",
        ((DeletedTopicCleanup, "try_again", _always(None)),),
    ),
    PlantedFault(
        "a deleted topic's offsets are answered until they are removed", ((commits, "fetch", _living(commits.fetch)),)
    ),
    PlantedFault(
        "a commit for a topic that was deleted meanwhile is accepted",
        ((commits, "commit_records", _living(commits.commit_records)),),
    ),
    PlantedFault(
        "a group whose offsets are all in open transactions has none",
        ((OffsetCache, "has_pending_group", _always(False)),),
    ),
)
