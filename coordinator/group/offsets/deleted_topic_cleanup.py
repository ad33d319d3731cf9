"""Removes the offsets of deleted topics: when a topic is deleted, and when a partition of offsets is loaded.

A topic that was created again under the same name is another topic. The topic id that is stored with an offset decides
whether it goes, so its removal may come late. An offset that was committed before ids were stored goes by name.

The key of an offset's record holds the topic's name. The offset of a deleted topic therefore stays as long as an open
transaction has one of its successor under the same key, or the other way around; no client gets it (`commits.fetch`).

Kafka's counterpart is OffsetMetadataManager.onPartitionsDeleted, which goes by name and never looks for what it missed.
"""

import logging
from collections.abc import Iterable, Iterator
from functools import partial

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.config import OFFSETS_TOPIC
from ottla.coordinator.group.shard import offset_records
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.group.topics import GroupTopics
from ottla.coordinator.partition import PLANNED_RECORDS
from ottla.coordinator.replay import CoordinatorRecord
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.runtime.time_slice import TimeSlice, chunks

logger = logging.getLogger(__name__)


class DeletedTopicCleanup:
    """Looks through the partitions of one broker for offsets of topics that are gone.

    A partition that refuses, or that has to keep something for now, does not hold up the others: `try_again` has it
    looked through again.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], topics: GroupTopics) -> None:
        self._runtime = runtime
        self._topics = topics
        # Partitions to look through, each with the names of topics that were deleted since it was loaded.
        self._unseen: dict[int, set[str]] = {}
        self._unfinished: dict[int, set[str]] = {}
        self._woken = trio.Event()

    def forget_topic(self, name: str) -> None:
        """A topic was deleted: remove its offsets. A partition that is loaded later is looked through then."""
        for shard in self._runtime.loaded_shards():
            self._unseen.setdefault(shard.partition, set()).add(name)
        self._woken.set()

    def look_at(self, partition: int) -> None:
        """A partition was loaded."""
        self._unseen.setdefault(partition, set())
        self._woken.set()

    def try_again(self) -> None:
        """Look again where something was left."""
        while self._unfinished:
            partition, names = self._unfinished.popitem()
            self._unseen.setdefault(partition, set()).update(names)
        if self._unseen:
            self._woken.set()

    async def run(self) -> None:
        """Look through partitions as they come up, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            while self._unseen:
                partition, names = self._unseen.popitem()
                if not await self._look_through(partition, names):
                    self._unfinished.setdefault(partition, set()).update(names)

    async def _look_through(self, partition: int, names: set[str]) -> bool:
        """Whether nothing is left to do. What is not led here, or not loaded yet, is looked through when it is."""
        try:
            shard = self._runtime.shard(partition)
        except CoordinatorError:
            return True
        try:
            return await self._clear(shard, names)
        except CoordinatorError as error:
            keys = {"topic": OFFSETS_TOPIC, "partition": partition, "error": str(error)}
            logger.warning("offsets of deleted topics stay in partition %d for now: %s", partition, error, extra=keys)
            return False

    async def _clear(self, shard: GroupShard, names: set[str]) -> bool:
        """Remove what is gone; False if something has to stay for now."""
        # When this empty write has had its turn, every commit that was accepted before the deletion is in the cache.
        await self._runtime.begin_planned_write(shard.partition, list, shard=shard).wait()
        is_finished = True
        time_slice = TimeSlice()
        living: set[bytes] = set()
        for group_id in shard.offsets.groups():
            gone: list[bytes] = []
            for looked_at in chunks(shard.offsets.keys(group_id)):
                gone += self._find_gone(shard, group_id, looked_at, names, living)
                await time_slice.maybe_yield()
            for start in range(0, len(gone), PLANNED_RECORDS):
                some = gone[start : start + PLANNED_RECORDS]
                plan = partial(self._tombstones, shard, group_id, some, names)
                await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
                is_finished &= not any(shard.offsets.values(group_id, key) for key in some)
        return is_finished

    def _find_gone(
        self, shard: GroupShard, group_id: str, keys: Iterable[bytes], names: set[str], living: set[bytes]
    ) -> Iterator[bytes]:
        """The keys under which some offset's topic is gone. `living` collects the ends of values that hold the id of a
        topic that exists.
        """
        for key in keys:
            for value in shard.offsets.values(group_id, key):
                end = value[-offset_records.TOPIC_ID_BYTES :]
                if end in living:
                    continue
                if self._is_gone(key, value, names):
                    yield key
                    break
                if offset_records.topic_id(value).int:
                    living.add(end)

    def _tombstones(
        self, shard: GroupShard, group_id: str, keys: list[bytes], names: set[str]
    ) -> list[CoordinatorRecord]:
        """The tombstones of these offsets, except those committed meanwhile for a topic that exists."""
        return [
            CoordinatorRecord(key, None)
            for key in keys
            if (values := shard.offsets.values(group_id, key))
            and all(self._is_gone(key, value, names) for value in values)
        ]

    def _is_gone(self, key: bytes, value: bytes, names: set[str]) -> bool:
        topic_id = offset_records.topic_id(value)
        if topic_id.int:
            return not self._topics.is_living(topic_id)
        name = offset_records.offset_partition(key).topic
        return name in names or not self._topics.ids([name])
