"""How far share groups are with their partitions: described, altered, and deleted alone or with a topic or a group.

The group itself says which partitions have delivery state (`StatePartitions`); the persister keeps the state. What is
altered or deleted is first entered in the group, so that what a lost coordinator leaves undone is known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.coordinator.errors import CoordinatorError, NonEmptyGroupError, UnknownSharePartitionError
from ottla.coordinator.group.share import records
from ottla.coordinator.group.share.state_partitions import TopicPartitions
from ottla.coordinator.share.persister import Initialization
from ottla.coordinator.share.state import UNINITIALIZED_COUNT, UNINITIALIZED_START_OFFSET, SharePartitionKey
from ottla.runtime.time_slice import TimeSlice

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from uuid import UUID

    from ottla.coordinator.group.share.group import ShareGroup
    from ottla.coordinator.group.share.protocol import ShareProtocol
    from ottla.coordinator.group.share.state_partitions import StatePartitions
    from ottla.coordinator.group.topics import GroupTopics
    from ottla.coordinator.share.persister import ShareStateStore


class ShareOffset(NamedTuple):
    """How far a group is with one partition; -1 for what is not known. `complete` counts records beyond the start that
    will not be delivered again.
    """

    start_offset: int = UNINITIALIZED_START_OFFSET
    leader_epoch: int = 0
    complete: int = UNINITIALIZED_COUNT


class ShareOffsets:
    """The offsets of the share groups of one broker. The caller holds the group's lock."""

    def __init__(self, share: ShareProtocol, topics: GroupTopics, state: ShareStateStore) -> None:
        self._share = share
        self._topics = topics
        self._state = state

    async def describe(self, keys: Sequence[SharePartitionKey]) -> dict[SharePartitionKey, ShareOffset]:
        """How far a group is with each partition. What cannot be read counts as not known, as in Kafka."""
        if not keys:
            return {}
        found = await self._state.persister.read_summary(keys)
        offsets: dict[SharePartitionKey, ShareOffset] = {}
        time_slice = TimeSlice()
        for key, state in found.items():
            await time_slice.maybe_yield()
            offsets[key] = (
                ShareOffset()
                if isinstance(state, CoordinatorError)
                else ShareOffset(state.start_offset, state.leader_epoch, state.delivery_complete_count)
            )
        return offsets

    async def alter(
        self, group: ShareGroup, offsets: Mapping[str, Mapping[int, int]]
    ) -> dict[tuple[str, int], CoordinatorError | None]:
        """Let a group without members begin at other offsets; what was in flight is forgotten.

        Returns for each partition why it was refused. Raises NonEmptyGroupError, or another CoordinatorError.
        """
        require_empty(group)
        ids = self._topics.ids(offsets)
        counts = self._topics.partition_counts(ids.values())
        outcomes: dict[tuple[str, int], CoordinatorError | None] = {}
        begun: dict[UUID, TopicPartitions] = {}
        for name, starts in offsets.items():
            topic_id = ids.get(name)
            known = frozenset(index for index in starts if topic_id is not None and 0 <= index < counts[topic_id])
            for index in starts.keys() - known:
                outcomes[name, index] = UnknownSharePartitionError("This server does not host this topic-partition.")
            if topic_id is not None and known:
                begun[topic_id] = TopicPartitions(name, known)
        if not begun:
            return outcomes
        written = [records.state_partitions(group.group_id, group.state_partitions.beginning(begun))]
        if not group.group_epoch:
            written.insert(0, records.group_epoch(group.group_id, group.group_epoch, group.metadata_hash))
        group.overtake(begun)
        await self._share.commit(group, written)
        asked = [
            Initialization(SharePartitionKey(group.group_id, topic_id, index), group.group_epoch, offsets[name][index])
            for topic_id, (name, partitions) in begun.items()
            for index in sorted(partitions)
        ]
        done: dict[UUID, set[int]] = {}
        for (_, topic_id, index), error in (await self._state.persister.initialize(asked)).items():
            outcomes[begun[topic_id].name, index] = error
            if error is None:
                done.setdefault(topic_id, set()).add(index)
        if done:
            # What is not entered is set up once more for the next member, and does not begin there any more.
            entered = {each: TopicPartitions(begun[each].name, frozenset(indexes)) for each, indexes in done.items()}
            await self._share.enter(group, entered, None)
        return outcomes

    async def delete_topics(self, group: ShareGroup, names: Iterable[str]) -> dict[str, CoordinatorError | None]:
        """Forget how far a group without members is with topics; returns why each was refused. Raises as `alter`."""
        require_empty(group)
        asked = list(dict.fromkeys(names))
        ids = self._topics.ids(asked)
        outcomes: dict[str, CoordinatorError | None] = {}
        known = group.state_partitions
        ending: dict[UUID, str] = {}
        for name in asked:
            topic_id = ids.get(name)
            if topic_id is None:
                outcomes[name] = UnknownSharePartitionError("This server does not host this topic-partition.")
            elif topic_id not in known.initialized and topic_id not in known.deleting:
                outcomes[name] = UnknownSharePartitionError("There is no offset information to delete.")
            else:
                ending[topic_id] = name
        outcomes.update(await self._end(group, ending))
        return outcomes

    async def delete_all(self, group: ShareGroup) -> None:
        """Forget how far a group without members is with everything: it is about to be deleted. Raises as `alter`."""
        require_empty(group)
        outcomes = await self._end(group, group.state_partitions.topics())
        failed = next((error for error in outcomes.values() if error is not None), None)
        if failed is not None:
            raise failed

    async def _end(self, group: ShareGroup, ending: Mapping[UUID, str]) -> dict[str, CoordinatorError | None]:
        if not ending:
            return {}
        keys = [
            SharePartitionKey(group.group_id, topic_id, index)
            for topic_id, index in self._all_partitions(group, ending)
            if topic_id in ending
        ]
        group.overtake(ending)
        await self._commit(group, group.state_partitions.ending(ending))
        outcomes: dict[str, CoordinatorError | None] = dict.fromkeys(ending.values())
        for key, error in (await self._state.persister.delete(keys)).items():
            # The share coordinator removes by itself what belongs to no topic any more.
            if error is not None and not isinstance(error, UnknownSharePartitionError):
                outcomes[ending[key.topic_id]] = error
        done = {topic_id: name for topic_id, name in ending.items() if outcomes[name] is None}
        await self._commit(group, group.state_partitions.without(done))
        return outcomes

    def _all_partitions(self, group: ShareGroup, ending: Mapping[UUID, str]) -> set[tuple[UUID, int]]:
        """The partitions that may have state: those the group knows, and all of a topic whose deletion was begun."""
        counts = self._topics.partition_counts(group.state_partitions.deleting.keys() & ending.keys())
        begun = {(topic_id, index) for topic_id, count in counts.items() for index in range(count)}
        return begun | set(group.state_partitions.partitions())

    async def forget_topics(self, group: ShareGroup) -> None:
        """Take deleted topics out of a group; the share coordinator forgets their state by itself."""
        gone = {
            topic_id: name
            for topic_id, name in group.state_partitions.topics().items()
            if not self._topics.is_living(topic_id)
        }
        if gone:
            group.overtake(gone)
            await self._commit(group, group.state_partitions.without(gone))

    async def _commit(self, group: ShareGroup, known: StatePartitions) -> None:
        await self._share.commit(group, [records.state_partitions(group.group_id, known)])


def require_empty(group: ShareGroup) -> None:
    """Raise NonEmptyGroupError for a group that has members."""
    if group.members:
        raise NonEmptyGroupError(f"Group {group.group_id} is not empty.")
