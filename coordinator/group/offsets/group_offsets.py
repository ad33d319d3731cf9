"""The offsets of groups: committed, alone or in a transaction, fetched and deleted.

Whatever is refused is a CoordinatorError.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ottla.coordinator.errors import GroupIdNotFoundError, IllegalGenerationError
from ottla.coordinator.group.group import Committer
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.offsets.transaction_guards import TransactionGuard, TransactionGuards
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.partition import PLANNED_RECORDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from ottla.coordinator.group.config import GroupConfig
    from ottla.coordinator.group.offset_and_metadata import CommittedOffset, OffsetToCommit, TopicPartition
    from ottla.coordinator.group.shard.shards import GroupShards
    from ottla.coordinator.group.topics import GroupTopics
    from ottla.coordinator.replay import CoordinatorRecord, Producer
    from ottla.kproto.records import EndTxnMarker
    from ottla.storage.clock import Clock


class GroupOffsets:
    """The offsets of the groups of one broker. A commit holds no lock (`locks.py` says why none is needed)."""

    def __init__(
        self,
        shards: GroupShards,
        *,
        config: GroupConfig,
        clock: Clock,
        topics: GroupTopics,
    ) -> None:
        self._shards = shards
        self._runtime = shards.runtime
        self._config = config
        self._clock = clock
        self._topics = topics
        self._guards = TransactionGuards()

    async def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        member_id: str = "",
        group_instance_id: str | None = None,
        generation_id: int = -1,
        producer: Producer | None = None,
        knows_epochs: bool = True,
    ) -> commits.Refusals:
        """OffsetCommit, and TxnOffsetCommit with a producer; returns the partitions that were refused.

        `knows_epochs`: the request's version is one that members of KIP-848 may commit with.
        """
        commit = self.begin_commit(
            group_id,
            offsets,
            member_id=member_id,
            group_instance_id=group_instance_id,
            generation_id=generation_id,
            producer=producer,
            knows_epochs=knows_epochs,
        )
        await commit.write.wait()
        return commit.refused

    def begin_commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetToCommit],
        *,
        member_id: str,
        group_instance_id: str | None,
        generation_id: int,
        producer: Producer | None,
        knows_epochs: bool,
    ) -> commits.Commit:
        """The first half of `commit`: the offsets have their place in the order of the group's writes."""
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is not None:
            committer = Committer(member_id, group_instance_id, generation_id, producer is not None, knows_epochs)
            shard.validate_offset_commit(group, committer, offsets)
        elif generation_id >= 0:
            absent = GroupIdNotFoundError if knows_epochs else IllegalGenerationError
            raise absent(f"Group {group_id} not found.")
        written, refused = commits.commit_records(
            group_id,
            offsets,
            metadata_max_size=self._config.offset_metadata_max_bytes,
            now_ms=self._clock.time_ms(),
            is_living=self._topics.is_living,
        )
        write = self._runtime.begin_write(shard.partition, written, producer=producer)
        return commits.Commit(write, refused)

    async def complete_transaction(self, partition: int, marker: EndTxnMarker) -> None:
        """Write a transaction's marker into a partition of `__consumer_offsets`; commits or drops its offsets."""
        self._guards.end(partition, marker.producer_id)
        await self._runtime.write_marker(partition, marker)

    def watch_transaction(self, group_id: str, producer_id: int) -> AbstractContextManager[TransactionGuard]:
        """Notice whether a producer's transaction over the group's offsets ends while its coordinator is asked."""
        return self._guards.watch(self._shards, group_id, producer_id)

    def committed_partitions(self, group_id: str) -> Iterator[TopicPartition]:
        """The partitions for which a group has offsets, in no order, decoded one by one as they are taken."""
        return map(offset_records.offset_partition, self._shards.of(group_id).offsets.committed_keys(group_id))

    async def confirm(self, partitions: Iterable[int]) -> None:
        """Before a `fetch` by a broker that may have been replaced: return when nobody else had coordinated the groups
        of these partitions when this was called. Raises NotCoordinatorError if that cannot be known.
        """
        await self._runtime.confirm(partitions)

    def fetch(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        member_id: str | None = None,
        member_epoch: int = -1,
    ) -> dict[TopicPartition, CommittedOffset | Exception | None]:
        """OffsetFetch: committed offsets, None where there is none; all of the group's for `partitions=None`.

        Offsets of a deleted topic are left out, even if there is a new topic of that name.

        A classic group lets anybody read; `member_id` and `member_epoch` are checked by groups of KIP-848 and KIP-1071.
        """
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is not None and (member_id is not None or member_epoch >= 0):
            group.validate_offset_fetch(member_id or "", member_epoch)
        found = commits.fetch(
            shard, group_id, partitions, require_stable=require_stable, is_living=self._topics.is_living
        )
        return dict(found)

    async def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> commits.Refusals:
        """OffsetDelete; returns the partitions that were refused."""
        shard = self._shards.of(group_id)
        asked = list(partitions)
        refused: commits.Refusals = {}

        def plan(some: Sequence[TopicPartition]) -> Sequence[CoordinatorRecord]:
            written, refusals = commits.delete_records(shard, group_id, some)
            refused.update(refusals)
            return written

        for start in range(0, len(asked) or 1, PLANNED_RECORDS):
            some = partial(plan, asked[start : start + PLANNED_RECORDS])
            await self._runtime.begin_planned_write(shard.partition, some, shard=shard).wait()
        return refused
