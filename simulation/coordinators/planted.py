"""Takes out one of the things that keep requests apart: the simulation must then find what goes wrong.

The switch is here and never in the product.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from functools import partial
from typing import Any, Final
from unittest import mock

from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.offsets.deleted_topic_cleanup import DeletedTopicCleanup
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.offset_cache import OffsetCache
from ottla.coordinator.partition import Plan, Write
from ottla.coordinator.runtime import CoordinatorRuntime


def _always(answer: object) -> Callable[..., Any]:
    return lambda *arguments, **named: answer


def _without_lock() -> AbstractContextManager[Any]:
    @asynccontextmanager
    async def exclusively(self: GroupLocks, group_id: str) -> AsyncIterator[None]:
        yield

    return mock.patch.object(GroupLocks, "exclusively", exclusively)


def _without_turn() -> AbstractContextManager[Any]:
    def begin(self: CoordinatorRuntime[Any], index: int, plan: Plan, *, shard: Any) -> Write:
        return self.begin_write(index, plan(), shard=shard)

    return mock.patch.object(CoordinatorRuntime, "begin_planned_write", begin)


def _without_ids() -> AbstractContextManager[Any]:
    def is_gone(self: DeletedTopicCleanup, key: bytes, value: bytes, names: set[str]) -> bool:
        name = offset_records.offset_partition(key).topic
        return name in names or not self._topics.ids([name])

    return mock.patch.object(DeletedTopicCleanup, "_is_gone", is_gone)


def _without_hiding() -> AbstractContextManager[Any]:
    return mock.patch.object(commits, "fetch", _living(commits.fetch))


def _without_refusal() -> AbstractContextManager[Any]:
    return mock.patch.object(commits, "commit_records", _living(commits.commit_records))


def _living(function: Callable[..., Any]) -> Callable[..., Any]:
    """Every topic is there, whoever asks for it."""

    def with_all(*arguments: Any, **named: Any) -> Any:
        return function(*arguments, **{**named, "is_living": _always(True)})

    return with_all


FAULTS: Final[Mapping[str, Callable[[], AbstractContextManager[Any]]]] = {
    # A group has no lock.
    "lock": _without_lock,
    # What deletes is planned at once, on what has been replayed by then.
    "turn": _without_turn,
    # A deleted topic's offsets are told by its name.
    "ids": _without_ids,
    # A partition that was loaded is not looked through.
    "load": partial(mock.patch.object, DeletedTopicCleanup, "look_at", _always(None)),
    # What was left when a topic was forgotten is left for good.
    "again": partial(mock.patch.object, DeletedTopicCleanup, "try_again", _always(None)),
    # A deleted topic's offsets are answered until they are removed.
    "hiding": _without_hiding,
    # A commit for a topic that was deleted meanwhile is accepted.
    "refusal": _without_refusal,
    # A group whose offsets are all in open transactions has none.
    "pending": partial(mock.patch.object, OffsetCache, "has_pending_group", _always(False)),
}


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """Until the block ends the product has the fault of that name; none for None."""
    with nullcontext() if name is None else FAULTS[name]():
        yield
