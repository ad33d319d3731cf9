"""The offsets of topics that are gone: they are removed when a topic is deleted, and when a partition is loaded.

A topic that was created again under its name is another one: what is removed is told by the topic's id that was stored
with an offset, so a deletion may be late. What was committed before there were ids goes with the name.

An offset's record is found by its topic's name. A deleted topic's offset therefore stays as long as an open transaction
has one of its successor in the same place, or the other way around; nobody is answered with it (`commits.fetch`).

Kafka's counterpart is OffsetMetadataManager.onPartitionsDeleted, which removes by name, and not what it missed.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

import trio

from ottla.server.coordinator.errors import CoordinatorError
from ottla.server.coordinator.group import records
from ottla.server.coordinator.group.config import OFFSETS_TOPIC
from ottla.server.coordinator.group.shard import GroupShard
from ottla.server.coordinator.group.topics import GroupTopics
from ottla.server.coordinator.replay import CoordinatorRecord
from ottla.server.coordinator.runtime import CoordinatorRuntime
from ottla.server.event_loop.pace import Pace

logger = logging.getLogger(__name__)

STEP: Final = 64
"""So many offsets are looked at before others may run: in well under a tenth of a millisecond."""


class Forgetting:
    """Looks through the partitions of one broker for offsets of topics that are gone.

    A partition that refuses, or that keeps something for now, is looked through again with `try_again`, and does not
    keep the others waiting.
    """

    def __init__(self, runtime: CoordinatorRuntime[GroupShard], topics: GroupTopics) -> None:
        self._runtime = runtime
        self._topics = topics
        # Partitions to look through, each with the names of topics that were deleted since it was loaded.
        self._unseen: dict[int, set[str]] = {}
        self._unfinished: dict[int, set[str]] = {}
        self._woken = trio.Event()

    def forget_topic(self, name: str) -> None:
        """A topic was deleted: so are the offsets committed for it. A partition that is loaded later is seen then."""
        for shard in self._runtime.loaded_shards():
            self._unseen.setdefault(shard.partition, set()).add(name)
        self._woken.set()

    def look_at(self, partition: int) -> None:
        """A partition was loaded."""
        self._unseen.setdefault(partition, set())
        self._woken.set()

    def try_again(self) -> None:
        """Look once more where something was left."""
        while self._unfinished:
            partition, names = self._unfinished.popitem()
            self._unseen.setdefault(partition, set()).update(names)
        if self._unseen:
            self._woken.set()

    async def run(self) -> None:
        """Look through what there is to look through, until cancelled."""
        while True:
            await self._woken.wait()
            self._woken = trio.Event()
            while self._unseen:
                partition, names = self._unseen.popitem()
                if not await self._look_through(partition, names):
                    self._unfinished.setdefault(partition, set()).update(names)

    async def _look_through(self, partition: int, names: set[str]) -> bool:
        """Whether nothing is left to do; what is not led here, or not loaded yet, is looked at when it is."""
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
        # A commit that was let in before the deletion was heard of is in the cache when this has had its turn.
        await self._runtime.begin_planned_write(shard.partition, list, shard=shard).wait()
        is_finished = True
        pace = Pace()
        living: set[bytes] = set()
        for group_id in shard.offsets.groups():
            gone: list[bytes] = []
            stored = shard.offsets.stored(group_id)
            for start in range(0, len(stored), STEP):
                gone += self._find_gone(stored[start : start + STEP], names, living)
                await pace.rest()
            if gone:
                plan = partial(self._tombstones, shard, group_id, list(dict.fromkeys(gone)), names)
                await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()
                is_finished &= not any(shard.offsets.values(group_id, key) for key in gone)
        return is_finished

    def _find_gone(self, stored: Sequence[tuple[bytes, bytes]], names: set[str], living: set[bytes]) -> Iterator[bytes]:
        """The keys of what is gone. `living` remembers the ends of values, with a topic's id that was looked up."""
        for key, value in stored:
            end = value[-records.TOPIC_ID_BYTES :]
            if end in living:
                continue
            if self._is_gone(key, value, names):
                yield key
            elif records.topic_id(value).int:
                living.add(end)

    def _tombstones(
        self, shard: GroupShard, group_id: str, keys: list[bytes], names: set[str]
    ) -> list[CoordinatorRecord]:
        """What removes these offsets, except those that have been committed for a topic that is there."""
        return [
            CoordinatorRecord(key, None)
            for key in keys
            if (values := shard.offsets.values(group_id, key))
            and all(self._is_gone(key, value, names) for value in values)
        ]

    def _is_gone(self, key: bytes, value: bytes, names: set[str]) -> bool:
        topic_id = records.topic_id(value)
        if topic_id.int:
            return not self._topics.is_living(topic_id)
        name = records.offset_partition(key).topic
        return name in names or not self._topics.ids([name])
