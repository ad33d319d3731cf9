"""The fetchers of a node: which partition is followed over which connection (Kafka's ReplicaFetcherManager)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from ottla.replica.errors import ReplicaError
from ottla.replica.follower import UNKNOWN_OFFSET
from ottla.replica.partition import Role
from ottla.replica.suspect_logs import SuspectLogs
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from ottla.metadata.image import MetadataDelta
    from ottla.replica.following.leader_session import Key
    from ottla.replica.following.replica_fetcher import Peers, ReplicaFetcher
    from ottla.replica.manager import ReplicaManager
    from ottla.replica.partition import Partition
    from ottla.runtime.supervisor import Supervisor
    from ottla.settings.config import BrokerConfig
    from ottla.storage.clock import Clock


class ReplicaFetchers:
    """Makes a fetcher when there is something to follow, and ends it when nothing is left.

    `apply` is subscribed to the metadata after the replica manager, so that each partition has its role already. There
    are at most `num.replica.fetchers` fetchers a leader; a partition has one of them.
    """

    def __init__(
        self,
        manager: ReplicaManager,
        peers: Peers,
        config: BrokerConfig,
        clock: Clock,
        *,
        supervisor: Supervisor,
    ) -> None:
        self._manager = manager
        self._peers = peers
        self._config = config
        self._clock = clock
        self._supervisor = supervisor
        self._fetchers: dict[tuple[int, int], tuple[ReplicaFetcher, trio.CancelScope]] = {}
        #: Over which each partition is followed.
        self._assigned: dict[Key, tuple[int, int]] = {}
        self._suspect = SuspectLogs(self)
        self._nursery: trio.Nursery | None = None

    async def run(self) -> None:
        """Own the fetchers' tasks until cancelled."""
        async with trio.open_nursery() as self._nursery:
            try:
                self._nursery.start_soon(self._supervisor.keep, self._suspect.run)
                for fetcher, scope in self._fetchers.values():
                    self._nursery.start_soon(self._run, fetcher, scope)
                await trio.sleep_forever()
            finally:
                self._nursery = None

    async def apply(self, delta: MetadataDelta) -> None:
        """Follow what this node follows now."""
        for topic in delta.deleted_topics:
            for index in range(len(topic.partitions)):
                self._unfollow((topic.topic_id, index))
        for change in delta.changed_partitions:
            if len(change.after.replicas) == 1:
                self._unfollow((change.topic.topic_id, change.partition))
                continue
            self._follow_state((change.topic.topic_id, change.partition))

    def _follow_state(self, key: Key) -> None:
        try:
            partition = self._manager.get_partition(*key)
        except (ReplicaError, StorageError):
            self._unfollow(key)
            return
        if partition.role is not Role.FOLLOWER or partition.leader_id < 0 or not self._is_known(partition):
            self._unfollow(key)
            return
        topic_id, index = key
        slot = (partition.leader_id, (topic_id.int + index) % self._config.num_replica_fetchers)
        if self._assigned.get(key, slot) != slot:
            self._unfollow(key)
        self._assigned[key] = slot
        self._fetcher(slot).follow(partition)

    def _is_known(self, partition: Partition) -> bool:
        """Whether it is known from where to follow. Of a log that may lack records it is found out, when nobody counts
        on it any more.
        """
        if partition.first_bad_offset != UNKNOWN_OFFSET:
            return True
        if not partition.is_counted_on:
            self._suspect.look_through(partition)
        return False

    async def looked_through(self, partition: Partition) -> None:
        """It is known up to where a partition's log is sound: follow it from there."""
        await self._manager.settle_losses()
        self._follow_state((partition.topic_id, partition.index))

    def _fetcher(self, slot: tuple[int, int]) -> ReplicaFetcher:
        known = self._fetchers.get(slot)
        if known is not None:
            return known[0]
        # Not before there is something to follow: a node alone needs none of it.
        from ottla.replica.following.replica_fetcher import ReplicaFetcher

        fetcher = ReplicaFetcher(slot[0], self._manager, self._peers, self._config, self._clock)
        scope = trio.CancelScope()
        self._fetchers[slot] = (fetcher, scope)
        if self._nursery is not None:  # else `run` will start it, unless the node stops
            self._nursery.start_soon(self._run, fetcher, scope)
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

    async def _run(self, fetcher: ReplicaFetcher, scope: trio.CancelScope) -> None:
        """One that fails leaves the others alone, and begins again with a new connection."""
        with scope:
            await self._supervisor.keep(fetcher.run)
