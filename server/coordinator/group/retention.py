"""What goes by itself: offsets after their retention, groups that have nothing left, offsets of deleted topics."""

import logging

import trio

from ottla.server.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.server.coordinator.group import commits, records
from ottla.server.coordinator.group.classic import ClassicProtocol
from ottla.server.coordinator.group.classic_group import ClassicGroup, ClassicState
from ottla.server.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.server.coordinator.group.shard import GroupShard
from ottla.server.coordinator.runtime import CoordinatorRecord, CoordinatorRuntime
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)


class Retention:
    """Removes what is over from the groups of one broker."""

    def __init__(
        self, config: GroupConfig, runtime: CoordinatorRuntime[GroupShard], classic: ClassicProtocol, clock: Clock
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._classic = classic
        self._clock = clock

    async def run(self) -> None:
        """Retention of offsets and of groups that have neither members nor offsets."""
        while True:
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            try:
                shards = self._runtime.shards()
            except CoordinatorError:
                continue
            for shard in shards:
                await self._expire_shard(shard)

    async def _expire_shard(self, shard: GroupShard) -> None:
        retention_ms = self._config.offsets_retention_ms
        try:
            for group in list(shard.groups.values()):
                now_ms = self._clock.time_ms()
                written = commits.expired_records(shard, group, now_ms=now_ms, retention_ms=retention_ms)
                await self.remove(shard, group, written)
                await trio.lowlevel.checkpoint()
            for consumer_group in list(shard.consumer_groups.values()):
                now_ms = self._clock.time_ms()
                written = commits.expired_of_consumer_group(
                    shard, consumer_group, now_ms=now_ms, retention_ms=retention_ms
                )
                await self._runtime.write(shard.partition, written)
                await trio.lowlevel.checkpoint()
        except CoordinatorError as error:
            keys = {"topic": OFFSETS_TOPIC, "partition": shard.partition, "error": str(error)}
            logger.warning("offsets in partition %d do not expire now: %s", shard.partition, error, extra=keys)

    async def forget_topic(self, topic: str) -> None:
        """A topic was deleted: so are the offsets committed for it."""
        try:
            for shard in self._runtime.shards():
                written = [
                    records.offset_tombstone(group_id, partition)
                    for group_id, partition in shard.offsets.partitions_of_topic(topic)
                ]
                await self._runtime.write(shard.partition, written)
        except CoordinatorError as error:
            keys = {"topic": topic, "error": str(error)}
            logger.warning("offsets of the deleted topic %s stay until they expire: %s", topic, error, extra=keys)

    async def remove(self, shard: GroupShard, group: ClassicGroup, written: list[CoordinatorRecord]) -> None:
        await self._runtime.write(shard.partition, written)
        idle = group.is_in(ClassicState.EMPTY) and not group.pending_members
        if idle and shard.groups.get(group.group_id) is group and not shard.offsets.count(group.group_id):
            del shard.groups[group.group_id]
            self._classic.bury(group, GroupIdNotFoundError(f"group {group.group_id} was deleted"))
