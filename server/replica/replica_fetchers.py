"""The fetchers of a node: which partition is followed over which connection (Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.server.replica.errors import ReplicaError
from ottla.server.replica.partition import Role
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.server.metadata.image import MetadataDelta, TopicImage
    from ottla.server.replica.leader_session import Key
    from ottla.server.replica.manager import ReplicaManager
    from ottla.server.replica.replica_fetcher import Connect, ReplicaFetcher
    from ottla.server.settings.config import BrokerConfig
    from ottla.storage.clock import Clock


class ReplicaFetchers:
    """Makes a fetcher when there is something to follow, and ends it when nothing is left.

    `apply` is subscribed to the metadata after the replica manager, so that each partition has its role already. There
    are at most `num.replica.fetchers` fetchers a leader; a partition has one of them.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        connect: Connect,
        config: BrokerConfig,
        clock: Clock,
        *,
        broker_epoch: Callable[[], int],
    ) -> None:
        self._manager = manager
        self._connect = connect
        self._config = config
        self._clock = clock
        self._broker_epoch = broker_epoch
        self._fetchers: dict[tuple[int, int], tuple[ReplicaFetcher, trio.CancelScope]] = {}
        #: Over which each partition is followed.
        self._assigned: dict[Key, tuple[int, int]] = {}
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Own the fetchers' tasks until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                for fetcher, scope in self._fetchers.values():
                    self._nursery.start_soon(_run, fetcher, scope)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow what this node follows now."""
        for topic in delta.deleted_topics:
            for index in range(len(topic.partitions)):
                self._unfollow((topic.topic_id, index))
        for change in delta.changed_partitions:
            self._follow_state(change.topic, change.partition)

    def _follow_state(self, topic: TopicImage, index: int) -> None:
        key = (topic.topic_id, index)
        try:
            partition = self._manager.get_partition(*key)
        except (ReplicaError, StorageError):
            self._unfollow(key)
            return
        if partition.role is not Role.FOLLOWER or partition.leader_id < 0:
            self._unfollow(key)
            return
        slot = (partition.leader_id, (topic.topic_id.int + index) % self._config.num_replica_fetchers)
        if self._assigned.get(key, slot) != slot:
            self._unfollow(key)
        self._assigned[key] = slot
        self._fetcher(slot).follow(partition)

    def _fetcher(self, slot: tuple[int, int]) -> ReplicaFetcher:
        known = self._fetchers.get(slot)
        if known is not None:
            return known[0]
        # Not before there is something to follow: a node alone needs none of it.
        from ottla.server.replica.replica_fetcher import ReplicaFetcher

        fetcher = ReplicaFetcher(
            slot[0], self._manager, self._connect, self._config, self._clock, broker_epoch=self._broker_epoch
        )
        scope = trio.CancelScope()
        self._fetchers[slot] = (fetcher, scope)
        if self._nursery is not None:  # else `run` will start it, unless the node stops
            self._nursery.start_soon(_run, fetcher, scope)
        return fetcher

    def _unfollow(self, key: Key) -> None:
        slot = self._assigned.pop(key, None)
        if slot is None:
            return
        fetcher, scope = self._fetchers[slot]
        fetcher.unfollow(key)
        if not len(fetcher):
            del self._fetchers[slot]
            scope.cancel()


async def _run(fetcher: ReplicaFetcher, scope: trio.CancelScope) -> None:
    with scope:
        await fetcher.run()
