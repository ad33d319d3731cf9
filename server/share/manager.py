"""The share partitions that this node leads, and the sessions of those who fetch from them (SharePartitionManager)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import trio

from ottla.coordinator.errors import CoordinatorError, GroupIdNotFoundError
from ottla.coordinator.share.state import SharePartitionKey
from ottla.replica.errors import NotLeaderError, ReplicaError, UnknownTopicOrPartitionError
from ottla.runtime.deadlines import Deadlines
from ottla.runtime.errors import kept
from ottla.runtime.supervisor import Tasks
from ottla.runtime.time_slice import TimeSlice
from ottla.server.share.errors import ShareError
from ottla.server.share.fetch import ShareFetchOperation, ShareFetchResult
from ottla.server.share.partition import SharePartition, ShareServices
from ottla.server.share.sessions import SessionKey, ShareSession, ShareSessions
from ottla.storage.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from ottla.coordinator.share.persister import Persister
    from ottla.metadata.image import MetadataDelta
    from ottla.replica.append import TopicIdPartition
    from ottla.replica.manager import ReplicaManager
    from ottla.server.share.config import ShareConfig, ShareConfigs
    from ottla.server.share.dead_letters import DeadLetters
    from ottla.server.share.fetch import ShareFetchParams
    from ottla.server.share.records import Acknowledgement
    from ottla.storage.clock import Clock


logger = logging.getLogger(__name__)


class ShareCounters:
    """Counters of share groups on this node since its start."""

    __slots__ = ("acknowledged", "acquired_records", "expired_locks", "fetches")

    def __init__(self) -> None:
        self.fetches = 0
        self.acquired_records = 0
        #: Records by the type of their acknowledgement.
        self.acknowledged: dict[int, int] = {}
        #: Of share partitions that have ended.
        self.expired_locks = 0


class SharePartitionManager:
    """Owns the share partitions of one node and the sessions of their members; `nursery` runs their tasks."""

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        persister: Persister,
        configs: ShareConfigs,
        clock: Clock,
        max_sessions: int,
        nursery: Tasks,
        dead_letters: DeadLetters,
    ) -> None:
        self.dead_letters = dead_letters
        self.sessions = ShareSessions(max_sessions)
        self.counters = ShareCounters()
        self._replica_manager = replica_manager
        self._configs = configs
        self._nursery = nursery
        self._services = ShareServices(configs, persister, dead_letters, clock, Deadlines(), nursery)
        self._partitions: dict[SharePartitionKey, SharePartition] = {}
        self._is_closed = False

    def __iter__(self) -> Iterator[SharePartition]:
        return iter(self._partitions.values())

    def config(self, group_id: str) -> ShareConfig:
        """A group's settings as they are now."""
        return self._configs.of_share_group(group_id)

    # Share partitions

    def _find_or_load(self, key: SharePartitionKey) -> SharePartition:
        """The share partition, whose state may still be on its way. Raises ReplicaError or StorageError."""
        if self._is_closed:
            raise NotLeaderError("this node is stopping")
        partition = self._replica_manager.get_partition(key.topic_id, key.partition)
        partition.require_leader()
        share = self._partitions.get(key)
        if share is not None and not share.is_current:
            share.end(NotLeaderError(f"{share!r} is led in another epoch now"))
            share = None
        if share is None:
            share = self._partitions[key] = SharePartition(key, partition, self._services, self)
            self._nursery.start_soon(share.load)
        return share

    def _find(self, key: SharePartitionKey) -> SharePartition:
        self._replica_manager.get_partition(key.topic_id, key.partition).require_leader()
        share = self._partitions.get(key)
        if share is None:
            raise UnknownTopicOrPartitionError(f"{key.group_id} has acquired nothing of {key.topic_id}-{key.partition}")
        return share

    def share_changed(self, share: SharePartition) -> None:
        """Fetches that wait for a share partition may look again."""
        self._replica_manager.share_fetch_purgatory.signal(share)

    def dead_letters_ended(self, share: SharePartition) -> None:
        """The task has ended that wrote the dead letters of a share partition."""
        self._end_unused(share.key.group_id)

    def share_ended(self, share: SharePartition) -> None:
        """Forget a share partition that can serve no more."""
        self.counters.expired_locks += share.expired_locks
        if self._partitions.get(share.key) is share:
            del self._partitions[share.key]

    def reset(self, key: SharePartitionKey) -> None:
        """A share partition was begun again, or forgotten: what is known about it here is out of date."""
        share = self._partitions.get(key)
        if share is not None:
            share.end(GroupIdNotFoundError(f"the offsets of group {key.group_id} were altered or deleted"))

    async def follow(self, delta: MetadataDelta) -> None:
        """End the share partitions that this node does not lead any more. Called after the replica manager."""
        if delta.changed_partitions or delta.deleted_topics:
            for share in list(self._partitions.values()):
                if not share.is_current:
                    share.end(NotLeaderError(f"{share!r} is not led here any more"))

    def close(self) -> None:
        """Serve nothing any more, for good."""
        self._is_closed = True
        for share in list(self._partitions.values()):
            share.end(NotLeaderError("this node is stopping"))

    # Requests

    async def fetch(
        self,
        group_id: str,
        params: ShareFetchParams,
        partitions: Sequence[TopicIdPartition],
        *,
        before_wait: Callable[[], None] | None = None,
    ) -> list[ShareFetchResult]:
        """Acquire records for a member; the results are in the order of `partitions`. The caller releases each."""
        self.counters.fetches += 1
        results = []
        time_slice = TimeSlice()
        await self._replica_manager.unopened.wait(partitions)
        for asked in partitions:
            await time_slice.maybe_yield()
            try:
                results.append(ShareFetchResult(asked, self._find_or_load(SharePartitionKey(group_id, *asked))))
            except (ReplicaError, StorageError) as error:
                results.append(ShareFetchResult(asked, None, kept(error)))
        try:
            await ShareFetchOperation(params, results, self._replica_manager).run(before_wait=before_wait)
        except BaseException:
            for result in results:
                result.release()
            raise
        self.counters.acquired_records += sum(each.record_count for result in results for each in result.acquired)
        return results

    async def acknowledge(
        self, key: SessionKey, acknowledgements: Mapping[TopicIdPartition, Collection[Acknowledgement]]
    ) -> dict[TopicIdPartition, Exception | None]:
        """Take back what a member held, as it says of each partition; says for each why it was refused."""

        async def acknowledge(asked: TopicIdPartition) -> None:
            share = self._find(SharePartitionKey(key.group_id, *asked))
            await share.acknowledge(key.member_id, acknowledgements[asked])
            self._count(acknowledgements[asked])

        return await _each(acknowledgements, acknowledge)

    def _count(self, acknowledgements: Iterable[Acknowledgement]) -> None:
        counted = self.counters.acknowledged
        for first, last, types in acknowledgements:
            if len(types) == 1:
                counted[types[0]] = counted.get(types[0], 0) + last - first + 1
            else:
                for kind, times in Counter(types).items():
                    counted[kind] = counted.get(kind, 0) + times

    async def release(self, key: SessionKey) -> dict[TopicIdPartition, Exception | None]:
        """End a member's session, and take back what it holds; says for each partition why that was refused."""
        session = self.sessions.remove(key)
        return {} if session is None else await self._take_back(session)

    async def _take_back(self, ended: ShareSession) -> dict[TopicIdPartition, Exception | None]:
        group_id, member_id = ended.key

        async def release(asked: TopicIdPartition) -> None:
            await self._find(SharePartitionKey(group_id, *asked)).release(member_id)

        outcomes = await _each(ended.partitions, release)
        self._end_unused(group_id)
        return outcomes

    def _end_unused(self, group_id: str) -> None:
        """A group without sessions here needs nothing in memory, once its dead letters are written."""
        if not self.sessions.has_members(group_id):
            unused = [each for each in self._partitions.values() if each.key.group_id == group_id]
            for share in [each for each in unused if not each.is_writing_dead_letters]:
                share.end(GroupIdNotFoundError(f"group {group_id} has no session here"))

    def connection_closed(self, connection: object) -> None:
        """A connection has ended: so do the sessions of its members, except those who have begun another elsewhere."""
        if not self._is_closed:
            for session in self.sessions.owned_by(connection):
                # At once: by the next turn of the event loop the member may have begun another one.
                self.sessions.remove(session.key, is_evicted=True)
                self._nursery.start_soon(self._release_lost, session)

    async def _release_lost(self, ended: ShareSession) -> None:
        for asked, error in (await self._take_back(ended)).items():
            if error is not None:
                logger.debug("%s holds on to records of %s until its locks expire: %s", ended.key, asked, error)


async def _each(
    partitions: Iterable[TopicIdPartition], do: Callable[[TopicIdPartition], object]
) -> dict[TopicIdPartition, Exception | None]:
    """Do something for several partitions at the same time."""
    outcomes: dict[TopicIdPartition, Exception | None] = {}

    async def one(asked: TopicIdPartition) -> None:
        try:
            await do(asked)  # type: ignore[misc]
            outcomes[asked] = None
        except (ShareError, CoordinatorError, ReplicaError, StorageError) as error:
            outcomes[asked] = kept(error)

    asked = list(partitions)
    if len(asked) == 1:
        await one(asked[0])
        return outcomes
    async with trio.open_nursery() as nursery:
        time_slice = TimeSlice()
        for each in asked:
            nursery.start_soon(one, each)
            if time_slice.is_over:
                # Cancellation is shielded here: all of them must begin.
                await trio.lowlevel.cancel_shielded_checkpoint()
                time_slice.renew()
    return outcomes
