"""The persister of a cluster whose share coordinators are all on this node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

import trio

from ottla.server.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
)
from ottla.server.coordinator.share.records import SHARE_GROUP_STATE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.server.coordinator.share.coordinator import ShareCoordinator
    from ottla.server.coordinator.share.persister import Initialization
    from ottla.server.coordinator.share.state import SharePartitionKey, ShareState, StateChange

R = TypeVar("R")

RETRY_SECONDS: Final = (0.01, 0.05, 0.2, 0.5, 1.0, 2.0)
"""A coordinator that is being loaded is asked again after these pauses, and then given up."""


class LocalPersister:
    """Implements `Persister`. `ensure_topic` makes the state topic when it is first needed.

    `on_reset` hears of every share partition that was begun anew or forgotten, for those that hold it in memory.
    """

    def __init__(self, coordinator: ShareCoordinator, ensure_topic: Callable[[str], Awaitable[object]]) -> None:
        self._coordinator = coordinator
        self._ensure_topic = ensure_topic
        self.on_reset: Callable[[SharePartitionKey], None] = lambda key: None

    async def initialize(self, wanted: Sequence[Initialization]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        try:
            await self._ensure_topic(SHARE_GROUP_STATE)
        except Exception as error:  # noqa: BLE001 - whatever the metadata store says, nothing is kept yet
            return {each.key: CoordinatorNotAvailableError(str(error)) for each in wanted}
        outcomes = await _retried_for(wanted, lambda each: each.key, self._coordinator.initialize)
        self._tell(outcomes)
        return outcomes

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        return await _retried(lambda: self._coordinator.read(key, leader_epoch))

    async def write(self, key: SharePartitionKey, change: StateChange) -> None:
        # Not tried again: changes are stored in the order of the calls.
        await self._coordinator.write(key, change)

    async def delete(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        outcomes = await _retried_for(keys, lambda key: key, self._coordinator.delete)
        self._tell(outcomes)
        return outcomes

    async def read_summary(
        self, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, ShareState | CoordinatorError]:
        async def summary(key: SharePartitionKey) -> ShareState | CoordinatorError:
            async def read() -> ShareState:
                return self._coordinator.read_summary(key)

            try:
                return await _retried(read)
            except CoordinatorError as error:
                return error

        return {key: await summary(key) for key in keys}

    def _tell(self, outcomes: Mapping[SharePartitionKey, CoordinatorError | None]) -> None:
        for key, error in outcomes.items():
            if error is None:
                self.on_reset(key)


async def _retried(ask: Callable[[], Awaitable[R]]) -> R:
    for pause in RETRY_SECONDS:
        try:
            return await ask()
        except CoordinatorLoadInProgressError:
            await trio.sleep(pause)
    return await ask()


T = TypeVar("T")


async def _retried_for(
    wanted: Sequence[T],
    key_of: Callable[[T], SharePartitionKey],
    ask: Callable[[Iterable[T]], Awaitable[dict[SharePartitionKey, CoordinatorError | None]]],
) -> dict[SharePartitionKey, CoordinatorError | None]:
    """Ask for all, and again for those whose coordinator was still being loaded."""
    outcomes = await ask(wanted)
    for pause in RETRY_SECONDS:
        left = [each for each in wanted if isinstance(outcomes[key_of(each)], CoordinatorLoadInProgressError)]
        if not left:
            break
        await trio.sleep(pause)
        outcomes.update(await ask(left))
    return outcomes
