"""How the state of share partitions is kept, as those see it who use it: group coordinators and partition leaders.

Kafka's counterpart is org.apache.kafka.server.share.persister.Persister. Whoever implements it finds the coordinator of
each share partition; it may be on another broker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ottla.server.coordinator.errors import CoordinatorError
    from ottla.server.coordinator.share.state import SharePartitionKey, ShareState, StateChange


class Initialization(NamedTuple):
    """Where a share partition is to begin; -1 lets its leader decide, by `share.auto.offset.reset`."""

    key: SharePartitionKey
    state_epoch: int
    start_offset: int


class Persister(Protocol):
    """Each call ends: with its answer, or with a CoordinatorError, in bounded time. So a caller may be shielded."""

    async def initialize(self, wanted: Sequence[Initialization]) -> Mapping[SharePartitionKey, CoordinatorError | None]:
        """Begin each share partition again; what was known of it is forgotten. Says for each why it was refused."""
        ...

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state of a share partition, for the leader of this epoch; earlier leaders write no more.

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
        """Forget share partitions. Says for each why it was refused; one that is not known is none of those."""
        ...

    async def read_summary(
        self, keys: Sequence[SharePartitionKey]
    ) -> Mapping[SharePartitionKey, ShareState | CoordinatorError]:
        """Where each share partition stands, its batches aside; one that is not known begins nowhere (-1)."""
        ...
