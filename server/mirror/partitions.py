"""The partitions that this node copies, and the brokers of the source that lead them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import trio

from ottla.kproto.errors import ErrorCode
from ottla.metadata.changes.partition_changes import in_epoch
from ottla.replica.errors import ReplicaError
from ottla.replica.partition import Role
from ottla.runtime.time_slice import TimeSlice
from ottla.server.mirror.copied import CopiedPartition
from ottla.server.mirror.fetcher import SourceFetcher
from ottla.settings.mirrored import Mirroring
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from uuid import UUID

    from ottla.kproto.messages.topics.metadata import MetadataResponse, MetadataResponsePartition
    from ottla.metadata.changes.partition_changes import PartitionUpdate
    from ottla.metadata.changes.partition_transactions import PartitionKey
    from ottla.metadata.controller import Controller
    from ottla.replica.following.leader_session import Key
    from ottla.replica.manager import ReplicaManager
    from ottla.server.mirror.progress import MirrorProgress

_NO_LEADER = -1


class MirroredPartitions:
    """Gives each mirrored partition that this node leads to the fetcher of the broker that leads it at the source.

    Clients learn leader epochs from records, and believe no metadata of an older one: so before anything of an epoch is
    copied, the mirror's leader is in an epoch that is not below it.
    """

    def __init__(
        self,
        controller: Controller,
        manager: ReplicaManager,
        progress: MirrorProgress,
        new_fetcher: Callable[[int], SourceFetcher],
        nursery: trio.Nursery,
    ) -> None:
        self._controller = controller
        self._manager = manager
        self._progress = progress
        self._new_fetcher = new_fetcher
        self._nursery = nursery
        self._fetchers: dict[int, SourceFetcher] = {}

    async def follow(self, source: MetadataResponse) -> None:
        """Copy the partitions that this node leads from their present leaders at the source. Raises MetadataError."""
        led = await self._led_here(
            {topic.topic_id: topic.partitions for topic in source.topics if not topic.error_code}
        )
        behind: dict[PartitionKey, PartitionUpdate] = {
            (topic_id, it.partition_index): partial(in_epoch, least=it.leader_epoch)
            for topic_id, _, it, epoch in led
            if it.leader_epoch > epoch
        }
        if behind:
            await self._controller.change_partitions(behind)
        by_broker: dict[int, dict[Key, CopiedPartition]] = {broker: {} for broker in self._fetchers}
        time_slice = TimeSlice()
        for topic_id, source_id, it, _ in led:
            await time_slice.maybe_yield()
            try:
                partition = self._manager.get_partition(topic_id, it.partition_index)
            except (ReplicaError, StorageError):
                continue  # it was deleted meanwhile
            if it.leader_id != _NO_LEADER and partition.leader_epoch >= it.leader_epoch:
                copied = CopiedPartition(partition, source_id, it.leader_epoch)
                by_broker.setdefault(it.leader_id, {})[copied.key] = copied
        self._progress.keep_only({it.partition for some in by_broker.values() for it in some.values()})
        for broker, some in by_broker.items():
            await self._fetcher(broker).set_partitions(some)

    async def _led_here(
        self, source: Mapping[UUID, list[MetadataResponsePartition]]
    ) -> list[tuple[UUID, UUID, MetadataResponsePartition, int]]:
        """(topic here, topic at the source, its partition there, leader epoch here) of what this node leads."""
        found = []
        time_slice = TimeSlice()
        for topic in self._controller.image.topics.values():
            mirrored = topic.mirrored
            if mirrored.mirroring is not Mirroring.FOLLOWING:
                continue
            for there in source.get(mirrored.source_id, ()):
                await time_slice.maybe_yield()
                if there.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
                    continue
                try:
                    partition = self._manager.get_partition(topic.topic_id, there.partition_index)
                except (ReplicaError, StorageError):
                    continue  # another node's, or not made yet
                if partition.role is Role.LEADER:
                    found.append((topic.topic_id, mirrored.source_id, there, partition.leader_epoch))
        return found

    def _fetcher(self, broker_id: int) -> SourceFetcher:
        fetcher = self._fetchers.get(broker_id)
        if fetcher is None:
            fetcher = self._fetchers[broker_id] = self._new_fetcher(broker_id)
            self._nursery.start_soon(fetcher.run)
        return fetcher
