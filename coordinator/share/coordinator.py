"""The share coordinator: it stores what the leaders of share partitions write, and refuses leaders of the past.

Kafka's counterparts are ShareCoordinatorShard and ShareCoordinatorService. A change is one record (an update). After
`share.coordinator.snapshot.update.records.per.snapshot` updates comes a snapshot of the whole state, so that a load
reads little. What lies below the last snapshots of all share partitions is deleted from the log.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import trio

from ottla.coordinator.errors import (
    CoordinatorError,
    FencedShareLeaderError,
    FencedStateEpochError,
    InvalidRequestError,
    UninitializedShareError,
    UnknownSharePartitionError,
)
from ottla.coordinator.partition import PLANNED_RECORDS
from ottla.coordinator.partitioning import coordinator_partition
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.coordinator.share import records
from ottla.coordinator.share.shard import ShareEntry, ShareShard
from ottla.coordinator.share.state import (
    MAX_BATCHES,
    NO_EPOCH,
    UNINITIALIZED_COUNT,
    UNINITIALIZED_START_OFFSET,
    SharePartitionKey,
    ShareState,
    StateChange,
    combine,
)
from ottla.runtime.errors import kept
from ottla.runtime.supervisor import Loop, Tasks
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from ottla.coordinator.log import PrunableLog
    from ottla.coordinator.partition import Write
    from ottla.coordinator.replay import CoordinatorRecord
    from ottla.coordinator.share.persister import Initialization
    from ottla.coordinator.share.topics import ShareTopics
    from ottla.metadata.image import MetadataDelta
    from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)

NOTHING_KNOWN = ShareState(0, 0, UNINITIALIZED_START_OFFSET, UNINITIALIZED_COUNT)
"""The answer about a share partition that was never initialized."""


class ShareCoordinatorConfig(NamedTuple):
    """`share.coordinator.…`: the partitions of the topic, updates for each snapshot, and how often it is tidied."""

    topic_partitions: int = 50
    updates_per_snapshot: int = 500
    prune_interval_ms: int = 300_000
    cold_snapshot_interval_ms: int = 300_000


def _check_epochs(*, leader_epoch: int = 0, state_epoch: int = 0) -> None:
    """Raises InvalidRequestError with Kafka's sentence: since 4.4, -1 is no word for any epoch."""
    for what, epoch in (("leader", leader_epoch), ("state", state_epoch)):
        if epoch < 0:
            raise InvalidRequestError(f"The {what} epoch cannot be a negative number.")


class ShareCoordinator:
    """The share partitions that this broker coordinates. `nursery` runs its loads, writes and tidying."""

    def __init__(
        self,
        *,
        node_id: int,
        config: ShareCoordinatorConfig,
        clock: Clock,
        log: PrunableLog,
        topics: ShareTopics,
        nursery: Tasks,
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._clock = clock
        self._log = log
        self._topics = topics
        self._nursery = nursery
        self._runtime = CoordinatorRuntime(
            records.SHARE_GROUP_STATE, log=log, clock=clock, nursery=nursery, new_shard=self._new_shard
        )
        # As it was when the topic was first seen: share partitions do not move while the broker runs.
        self._partition_count: int | None = None
        nursery.start_soon(Loop(self._tidy_regularly))

    @property
    def runtime(self) -> CoordinatorRuntime[ShareShard]:
        """The runtime, which loads the shards and writes their records."""
        return self._runtime

    def _new_shard(self, partition: int) -> ShareShard:
        return ShareShard(partition, self)

    def loaded(self, shard: ShareShard) -> None:
        """What was deleted while nobody led the partition is found when it is loaded."""
        self._nursery.start_soon(self._forget_deleted, shard)

    def apply(self, delta: MetadataDelta) -> None:
        """Follow the cluster: coordinate what this broker leads, and forget the share partitions of deleted topics.

        Called after the replica manager has applied the same delta.
        """
        for topic in delta.deleted_topics:
            if topic.name == records.SHARE_GROUP_STATE:
                self._partition_count = None
                for partition in range(len(topic.partitions)):
                    self._runtime.resign(partition)
        for change in delta.changed_partitions:
            if change.topic.name != records.SHARE_GROUP_STATE:
                continue
            self._partition_count = self._partition_count or len(change.topic.partitions)
            self._runtime.follow(change, self._node_id)
        if delta.deleted_topics:
            for shard in self._runtime.loaded_shards():
                self._nursery.start_soon(self._forget_deleted, shard)

    def partition_for(self, key: SharePartitionKey) -> int:
        """The partition of `__share_group_state` that keeps a share partition."""
        return coordinator_partition(key.coordinator_key, self._partition_count or self._config.topic_partitions)

    def _find(self, key: SharePartitionKey) -> tuple[ShareShard, ShareEntry | None]:
        if key.partition < 0:
            raise InvalidRequestError("The partition id cannot be a negative number.")
        shard = self._runtime.shard(self.partition_for(key))
        self._require_partition(key)
        return shard, shard.entries.get(key)

    def _find_begun(self, key: SharePartitionKey, operation: str) -> tuple[ShareShard, ShareEntry]:
        """Raises UninitializedShareError for what was never initialized, also if there is no such partition."""
        if key.partition < 0:
            raise InvalidRequestError("The partition id cannot be a negative number.")
        shard = self._runtime.shard(self.partition_for(key))
        entry = shard.entries.get(key)
        if entry is None or entry.is_ending:
            raise UninitializedShareError(f"{operation} operation on uninitialized share partition not allowed.")
        self._require_partition(key)
        return shard, entry

    def _require_partition(self, key: SharePartitionKey) -> None:
        if not self._topics.has_partition(key.topic_id, key.partition):
            raise UnknownSharePartitionError("This server does not host this topic-partition.")

    # Operations

    async def initialize(self, wanted: Iterable[Initialization]) -> dict[SharePartitionKey, CoordinatorError | None]:
        """Begin share partitions again; returns for each why it was refused (`Persister.initialize`)."""
        asked = list(wanted)
        outcomes = await _settled((each.key, partial(self._begin_initialize, *each)) for each in asked)
        time_slice = TimeSlice()
        for key, state_epoch, _ in asked:
            await time_slice.maybe_yield()
            if outcomes[key] is None:
                outcomes[key] = self._overtaken(key, state_epoch)
        return outcomes

    def _overtaken(self, key: SharePartitionKey, state_epoch: int) -> FencedStateEpochError | None:
        """Why a beginning that was stored does not count: a later one, unknown when it was let in, came before it."""
        try:
            _, entry = self._find(key)
        except CoordinatorError:
            return None  # it has moved on, and was stored
        if entry is None or state_epoch >= entry.state.state_epoch:
            return None
        return FencedStateEpochError(f"the state epoch is {entry.state.state_epoch}, not {state_epoch}")

    def _begin_initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> Write:
        _check_epochs(state_epoch=state_epoch)
        shard, entry = self._find(key)
        if entry is not None and state_epoch < entry.state_epoch:
            raise FencedStateEpochError(f"the state epoch is {entry.state_epoch}, not {state_epoch}")
        is_anywhere = start_offset == UNINITIALIZED_START_OFFSET
        if entry is not None and is_anywhere and state_epoch == entry.state.state_epoch and not entry.is_ending:
            # It was asked for more than once, and what was delivered since it was begun would be delivered again.
            return self._runtime.begin_planned_write(shard.partition, tuple, shard=shard)
        count = UNINITIALIZED_COUNT if is_anywhere else 0
        now_ms = self._clock.time_ms()
        record = records.snapshot(
            key,
            ShareState(state_epoch, 0, start_offset, count),
            snapshot_epoch=0 if entry is None else entry.snapshot_epoch + 1,
            created_ms=now_ms,
            now_ms=now_ms,
        )
        write = self._runtime.begin_write(shard.partition, [record], shard=shard)
        if entry is not None:
            entry.begin_anew(write, state_epoch)
        return write

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """The state of a share partition, for the leader of this epoch (`Persister.read`)."""
        _check_epochs(leader_epoch=leader_epoch)
        shard, entry = self._find_begun(key, "Read")
        if leader_epoch < entry.leader_epoch:
            raise FencedShareLeaderError(f"the leader epoch is {entry.leader_epoch}, not {leader_epoch}")
        entry.admit_leader(leader_epoch)

        def plan() -> Sequence[CoordinatorRecord]:
            # By now everything written before is known, and from here on no earlier leader writes.
            if leader_epoch <= entry.state.leader_epoch:
                return ()
            count = entry.state.delivery_complete_count
            change = StateChange(NO_EPOCH, leader_epoch, UNINITIALIZED_START_OFFSET, count, ())
            return (records.update(key, change, entry.snapshot_epoch),)

        await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
        await self._runtime.confirm([shard.partition])
        if shard.entries.get(key) is not entry:
            raise UninitializedShareError("Read operation on uninitialized share partition not allowed.")
        return entry.state

    async def write(self, key: SharePartitionKey, change: StateChange) -> None:
        """Store a change (`Persister.write`)."""
        _check_epochs(leader_epoch=change.leader_epoch, state_epoch=change.state_epoch)
        shard, entry = self._find_begun(key, "Write")
        if change.leader_epoch < entry.leader_epoch:
            raise FencedShareLeaderError(f"the leader epoch is {entry.leader_epoch}, not {change.leader_epoch}")
        if change.state_epoch < entry.state_epoch:
            raise FencedStateEpochError(f"the state epoch is {entry.state_epoch}, not {change.state_epoch}")
        if max(len(change.batches), len(entry.state.batches)) > MAX_BATCHES:
            # No leader holds so many records.
            raise InvalidRequestError(f"The state of a share partition has {MAX_BATCHES} batches at most.")
        record = records.update(key, change, entry.snapshot_epoch)
        await self._runtime.write(shard.partition, [record], shard=shard)
        if entry.updates >= self._config.updates_per_snapshot and entry.begin_snapshot():
            self._nursery.start_soon(self._snapshot, shard, key, entry)

    async def delete(self, keys: Iterable[SharePartitionKey]) -> dict[SharePartitionKey, CoordinatorError | None]:
        """Forget share partitions; returns for each why it was refused (`Persister.delete`)."""
        return await _settled((key, partial(self._begin_delete, key)) for key in keys)

    def _begin_delete(self, key: SharePartitionKey) -> Write:
        shard, entry = self._find(key)
        if entry is None:

            def plan() -> Sequence[CoordinatorRecord]:
                # Its beginning may have been on its way.
                return (records.tombstone(key),) if key in shard.entries else ()

            return self._runtime.begin_planned_write(shard.partition, plan, shard=shard)
        return entry.end(self._runtime.begin_write(shard.partition, [records.tombstone(key)], shard=shard))

    def read_summary(self, key: SharePartitionKey) -> ShareState:
        """How far a share partition is (`Persister.read_summary`)."""
        _, entry = self._find(key)
        return NOTHING_KNOWN if entry is None else entry.state

    # Tidying

    async def _snapshot(self, shard: ShareShard, key: SharePartitionKey, entry: ShareEntry) -> None:
        """Write the whole state of a share partition, so that its earlier records are no longer needed."""

        def plan() -> Sequence[CoordinatorRecord]:
            if shard.entries.get(key) is not entry or entry.is_ending:
                return ()
            epoch, now_ms = entry.snapshot_epoch + 1, self._clock.time_ms()
            state = entry.state._replace(batches=combine(entry.state.batches, (), entry.state.start_offset))
            return (records.snapshot(key, state, snapshot_epoch=epoch, created_ms=entry.created_ms, now_ms=now_ms),)

        try:
            await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
        except CoordinatorError as error:
            # It is tried again after the next change.
            logger.debug("no snapshot of %s in partition %s now: %s", key, shard.partition, error)
        finally:
            entry.end_snapshot()

    async def _forget_deleted(self, shard: ShareShard) -> None:
        """Remove the share partitions of topics that are gone. What is refused is tried again with the next pruning."""

        def tombstones(some: Sequence[SharePartitionKey]) -> Sequence[CoordinatorRecord]:
            return [records.tombstone(key) for key in some if key in shard.entries]

        try:
            # When this empty write has had its turn, all that was let in before the deletion is here.
            await self._runtime.begin_planned_write(shard.partition, tuple, shard=shard).wait()
            gone = []
            time_slice = TimeSlice()
            for key in list(shard.entries):
                if not self._topics.is_living(key.topic_id):
                    gone.append(key)
                await time_slice.maybe_yield()
            for start in range(0, len(gone), PLANNED_RECORDS):
                plan = partial(tombstones, gone[start : start + PLANNED_RECORDS])
                await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
        except CoordinatorError as error:
            keys = {"topic": records.SHARE_GROUP_STATE, "partition": shard.partition, "error": str(error)}
            logger.warning("share state of deleted topics stays in %d for now: %s", shard.partition, error, extra=keys)

    async def _tidy_regularly(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._prune_regularly)
            nursery.start_soon(self._snapshot_cold_regularly)

    async def _prune_regularly(self) -> None:
        pruned: dict[int, int] = {}
        while True:
            await trio.sleep(self._config.prune_interval_ms / 1000)
            for shard in self._runtime.loaded_shards():
                await self._forget_deleted(shard)
                end = shard.redundant_end()
                if end > pruned.get(shard.partition, 0) and await self._prune(shard.partition, end):
                    pruned[shard.partition] = end

    async def _prune(self, partition: int, end: int) -> bool:
        """Delete what lies below `end`; False if it has to be tried again."""
        try:
            await self._log.delete_below(partition, end)
        except CoordinatorError as error:
            keys = {"topic": records.SHARE_GROUP_STATE, "partition": partition, "error": str(error)}
            logger.warning("share state before offset %d stays in %d: %s", end, partition, error, extra=keys)
            return False
        return True

    async def _snapshot_cold_regularly(self) -> None:
        """Share partitions that nobody uses must not keep newer records of others from being deleted."""
        seen: dict[int, int] = {}
        while True:
            await trio.sleep(self._config.cold_snapshot_interval_ms / 1000)
            for shard in self._runtime.loaded_shards():
                # The snapshots of the last pass alone are no reason for another pass.
                if shard.last_offset <= seen.get(shard.partition, -1):
                    continue
                before = seen.get(shard.partition, -1)
                for key, entry in list(shard.entries.items()):
                    if entry.snapshot_offset <= before and entry.begin_snapshot():
                        await self._snapshot(shard, key, entry)
                seen[shard.partition] = shard.last_offset


async def _settled(
    begun: Iterable[tuple[SharePartitionKey, Callable[[], Write]]],
) -> dict[SharePartitionKey, CoordinatorError | None]:
    """Begin all writes, so that they may go in one batch, then wait for each; returns how each ended.

    For a share partition that is named more than once, the last write counts.
    """
    writes: dict[SharePartitionKey, Write] = {}
    outcomes: dict[SharePartitionKey, CoordinatorError | None] = {}
    time_slice = TimeSlice()
    for key, begin in begun:
        await time_slice.maybe_yield()
        try:
            writes[key] = begin()
        except CoordinatorError as error:
            outcomes[key] = kept(error)
    for key, write in writes.items():
        await time_slice.maybe_yield()
        try:
            await write.wait()
            outcomes[key] = None
        except CoordinatorError as error:
            outcomes[key] = kept(error)
    return outcomes
