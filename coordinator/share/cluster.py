"""The persister of a cluster: a share partition is coordinated where its partition of the state topic is led."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol, TypeVar

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    FencedStateEpochError,
    NotCoordinatorError,
)
from ottla.coordinator.share.records import SHARE_GROUP_STATE
from ottla.runtime.backoff import Backoff
from ottla.runtime.errors import kept
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from ottla.coordinator.share.coordinator import ShareCoordinator
    from ottla.coordinator.share.persister import Initialization
    from ottla.coordinator.share.state import SharePartitionKey, ShareState, StateChange

R = TypeVar("R")
T = TypeVar("T")

FIRST_PAUSE_SECONDS: Final = 0.02
MAX_PAUSE_SECONDS: Final = 2.0
RETRIES: Final = 8
"""A coordinator that is being loaded, or that moves, is asked again after these pauses, and then given up."""

_PASSING: Final = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)


class OtherShareCoordinators(Protocol):
    """Other brokers' share coordinators and leaders. Each call returns or raises CoordinatorError in bounded time."""

    async def initialize(
        self, node_id: int, wanted: Sequence[Initialization]
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]: ...
    async def read(self, node_id: int, key: SharePartitionKey, leader_epoch: int) -> ShareState: ...
    async def write(self, node_id: int, key: SharePartitionKey, change: StateChange) -> None: ...
    async def delete(
        self, node_id: int, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]: ...
    async def read_summary(self, node_id: int, key: SharePartitionKey) -> ShareState: ...
    async def end_offset(self, node_id: int, topic: str, partition: int) -> int: ...


class Leaders(Protocol):
    """Which brokers lead partitions."""

    def leader_of(self, topic: str, partition: int) -> int:
        """The leader's id, -1 if there is none."""


class InternalTopics(Protocol):
    """The topics that brokers make for themselves."""

    async def ensure_topic(self, name: str) -> object:
        """Create an internal topic that does not exist yet."""


class ClusterPersister:
    """Implements `Persister`. The state topic is created when it is first needed. Retriable errors of a coordinator are
    retried, so a change may be stored twice, and late.
    """

    def __init__(
        self,
        node_id: int,
        coordinator: ShareCoordinator,
        others: OtherShareCoordinators,
        leaders: Leaders,
        internal_topics: InternalTopics,
    ) -> None:
        self._node_id = node_id
        self._coordinator = coordinator
        self._others = others
        self._leaders = leaders
        self._internal_topics = internal_topics
        self._closed = trio.Event()
        self._on_reset: Callable[[SharePartitionKey], None] = lambda key: None

    def call_on_reset(self, on_reset: Callable[[SharePartitionKey], None]) -> None:
        """Call this with every share partition that this broker has reinitialized or deleted from now on, so that its
        leader can drop what it holds in memory.
        """
        self._on_reset = on_reset

    def close(self) -> None:
        """Retry no more: this node stops, and waiting changes fail."""
        self._closed.set()

    def _find(self, key: SharePartitionKey) -> tuple[int, OtherShareCoordinators | None]:
        """The broker of a share partition's coordinator, and how it is asked; None if it is this one."""
        node_id = self._leaders.leader_of(SHARE_GROUP_STATE, self._coordinator.partition_for(key))
        if node_id == self._node_id:
            return node_id, None
        if node_id < 0:
            raise CoordinatorNotAvailableError(f"no broker keeps the state of {key.coordinator_key} now")
        return node_id, self._others

    async def initialize(
        self, wanted: Sequence[Initialization], is_wanted: Callable[[SharePartitionKey], bool] = lambda key: True
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        try:
            await self._internal_topics.ensure_topic(SHARE_GROUP_STATE)
        except Exception as error:  # noqa: BLE001 - whatever the metadata store says, nothing is kept yet
            return {each.key: CoordinatorNotAvailableError(str(error)) for each in wanted}

        async def ask(
            node_id: int, some: Sequence[Initialization]
        ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
            if node_id == self._node_id:
                return await self._coordinator.initialize(some)
            return await self._others.initialize(node_id, some)

        return await self._ask_all(wanted, lambda each: each.key, ask, is_wanted)

    async def delete(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        async def ask(
            node_id: int, some: Sequence[SharePartitionKey]
        ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
            if node_id == self._node_id:
                return await self._coordinator.delete(some)
            return await self._others.delete(node_id, some)

        return await self._ask_all(keys, lambda key: key, ask)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        async def read() -> ShareState:
            node_id, others = self._find(key)
            if others is None:
                return await self._coordinator.read(key, leader_epoch)
            return await others.read(node_id, key, leader_epoch)

        return await self._repeated(read)

    async def write(self, key: SharePartitionKey, change: StateChange) -> None:
        async def write() -> None:
            node_id, others = self._find(key)
            if others is None:
                await self._coordinator.write(key, change)
            else:
                await others.write(node_id, key, change)

        await self._repeated(write)

    async def read_summary(
        self, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, ShareState | CoordinatorError]:
        async def summary(key: SharePartitionKey) -> ShareState:
            node_id, others = self._find(key)
            if others is None:
                return self._coordinator.read_summary(key)
            return await others.read_summary(node_id, key)

        found: dict[SharePartitionKey, ShareState | CoordinatorError] = {}
        left: Sequence[SharePartitionKey] = keys
        time_slice = TimeSlice()
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            again: list[SharePartitionKey] = []
            for key in left:
                await time_slice.maybe_yield()
                try:
                    found[key] = await summary(key)
                except CoordinatorError as error:
                    found[key] = kept(error)
                    if isinstance(error, _PASSING):
                        again.append(key)
            left = again
            if not left or not await self._may_try_again(backoff):
                return found

    async def _repeated(self, ask: Callable[[], Awaitable[R]]) -> R:
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            try:
                return await ask()
            except _PASSING:
                if not await self._may_try_again(backoff):
                    raise

    async def _may_try_again(self, backoff: Backoff) -> bool:
        """Wait until the next attempt, or until this node stops. False if there is to be none."""
        if backoff.failures == RETRIES or self._closed.is_set():
            return False
        with trio.move_on_after(backoff.fail()):
            await self._closed.wait()
        return True

    async def _ask_all(
        self,
        wanted: Sequence[T],
        key_of: Callable[[T], SharePartitionKey],
        ask: Callable[[int, Sequence[T]], Awaitable[Mapping[SharePartitionKey, CoordinatorError | None]]],
        is_wanted: Callable[[SharePartitionKey], bool] = lambda key: True,
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        """Ask the coordinators of all of them, and ask again about those that were refused for the moment."""
        outcomes: dict[SharePartitionKey, CoordinatorError | None] = {}
        left: Sequence[T] = wanted
        time_slice = TimeSlice()
        backoff = Backoff(FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS)
        while True:
            for node_id, some in (await self._by_node(left, key_of, is_wanted, outcomes)).items():
                outcomes.update(await ask(node_id, some))
            passing = []
            for each in left:
                await time_slice.maybe_yield()
                if isinstance(outcomes[key_of(each)], _PASSING):
                    passing.append(each)
            left = passing
            if not left or not await self._may_try_again(backoff):
                break
        for key, error in outcomes.items():
            await time_slice.maybe_yield()
            if error is None:
                self._on_reset(key)
        return outcomes

    async def _by_node(
        self,
        wanted: Iterable[T],
        key_of: Callable[[T], SharePartitionKey],
        is_wanted: Callable[[SharePartitionKey], bool],
        outcomes: dict[SharePartitionKey, CoordinatorError | None],
    ) -> dict[int, list[T]]:
        by_node: dict[int, list[T]] = {}
        time_slice = TimeSlice()
        for each in wanted:
            await time_slice.maybe_yield()
            key = key_of(each)
            try:
                if not is_wanted(key):
                    raise FencedStateEpochError(f"{key.coordinator_key} is not to begin any more")
                node_id, _ = self._find(key)
                by_node.setdefault(node_id, []).append(each)
            except CoordinatorError as error:
                outcomes[key] = kept(error)
        return by_node
