"""Expiry of offsets after their retention, and of groups of which nothing else is left."""

import logging
from functools import partial
from typing import Protocol

import trio

from ottla.coordinator.errors import CoordinatorError
from ottla.coordinator.group.config import OFFSETS_TOPIC, GroupConfig
from ottla.coordinator.group.locks import GroupLocks
from ottla.coordinator.group.offsets import commits
from ottla.coordinator.group.shard.shard import GroupShard
from ottla.coordinator.partition import PLANNED_RECORDS
from ottla.coordinator.replay import CoordinatorRecord
from ottla.coordinator.runtime import CoordinatorRuntime
from ottla.runtime.time_slice import TimeSlice
from ottla.storage.clock import Clock

logger = logging.getLogger(__name__)


class LeftOver(Protocol):
    """What could not be forgotten of deleted topics."""

    def try_again(self) -> None: ...


class Retention:
    """Removes what has expired from the groups of one broker."""

    def __init__(
        self,
        config: GroupConfig,
        runtime: CoordinatorRuntime[GroupShard],
        locks: GroupLocks,
        clock: Clock,
        left_over: LeftOver,
    ) -> None:
        self._config = config
        self._runtime = runtime
        self._locks = locks
        self._clock = clock
        self._left_over = left_over

    async def run(self) -> None:
        """Look at all groups every `offsets.retention.check.interval.ms`."""
        while True:
            await trio.sleep(self._config.offsets_retention_check_interval_ms / 1000)
            self._left_over.try_again()
            for shard in self._runtime.loaded_shards():
                await self._expire_shard(shard)

    async def _expire_shard(self, shard: GroupShard) -> None:
        try:
            for group_id in list(shard.groups):
                await self._expire_group(shard, group_id)
                await trio.lowlevel.checkpoint()
        except CoordinatorError as error:
            keys = {"topic": OFFSETS_TOPIC, "partition": shard.partition, "error": str(error)}
            logger.warning("offsets in partition %d do not expire now: %s", shard.partition, error, extra=keys)

    async def _expire_group(self, shard: GroupShard, group_id: str) -> None:
        """Expired offsets are checked again when the write's turn has come: they may have been committed again."""
        keys = await self._find_expired(shard, group_id)
        # Even without offsets the group itself may go.
        for start in range(0, len(keys) or 1, PLANNED_RECORDS):
            plan = partial(self._expired, shard, group_id, keys[start : start + PLANNED_RECORDS])
            if keys or plan():
                async with self._locks.exclusively(group_id):
                    with trio.CancelScope(shield=True):
                        await self._runtime.begin_planned_write(shard.partition, plan, shard=shard).wait()

    async def _find_expired(self, shard: GroupShard, group_id: str) -> list[bytes]:
        group = shard.groups.get(group_id)
        expiry = None if group is None else group.offset_expiry()
        if expiry is None:
            return []
        found: list[bytes] = []
        keys = shard.offsets.committed_keys(group_id)
        time_slice = TimeSlice()
        for key in keys:
            found += shard.offsets.expired(
                group_id,
                (key,),
                now_ms=self._clock.time_ms(),
                retention_ms=self._config.offsets_retention_ms,
                since_ms=expiry.since_ms,
                subscribed=expiry.subscribed,
            )
            await time_slice.maybe_yield()
        return found

    def _expired(self, shard: GroupShard, group_id: str, keys: list[bytes]) -> list[CoordinatorRecord]:
        return commits.expired_records(
            shard, group_id, keys, now_ms=self._clock.time_ms(), retention_ms=self._config.offsets_retention_ms
        )
