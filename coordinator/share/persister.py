"""The store of share partitions' state, as group coordinators and the leaders of partitions see it.

Kafka's counterpart is org.apache.kafka.server.share.persister.Persister. An implementation finds the coordinator of
each share partition, which may be on another broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ottla.coordinator.errors import CoordinatorError
    from ottla.coordinator.share.state import SharePartitionKey, ShareState, StateChange


class Initialization(NamedTuple):
    """The start offset of a share partition; -1 lets its leader decide, by `share.auto.offset.reset`."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Persister(Protocol):
    """Each call ends in bounded time, with its answer or with a CoordinatorError. So a caller may be shielded."""

    async def initialize(
        self, wanted: Sequence[Initialization], is_wanted: Callable[[SharePartitionKey], bool] = ...
    ) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        """Begin each share partition again, and forget what was known about it. Returns for each why it was refused.

        One that is no longer wanted, as `is_wanted` says, is not asked for again.
        """
        ...

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state of a share partition, for the leader of this epoch; earlier leaders can no longer write.

        Raises FencedShareLeaderError, UninitializedShareError, or another CoordinatorError.
        """
        ...

    async def write(self, key: SharePartitionKey, change: StateChange) -> None:
        """Store a change; it is stored when this returns. Changes are stored in the order of the calls.

        Raises FencedShareLeaderError or FencedStateEpochError for an outdated writer, UninitializedShareError, or
        another CoordinatorError; then it may have been stored or not.
        """
        ...

    async def delete(self, keys: Sequence[SharePartitionKey]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        """Forget share partitions. Returns for each why it was refused; one that is not known is not refused."""
        ...

    async def read_summary(
        self, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, ShareState | CoordinatorError]:
        """How far each share partition is, without its batches; one that is not known begins nowhere (-1)."""
        ...


class ShareStateStore(Protocol):
    """Where the state of share partitions is kept; it is set up when somebody first asks for it."""

    @property
    def persister(self) -> Persister:
        """Raises CoordinatorNotAvailableError if none is kept."""
        ...
