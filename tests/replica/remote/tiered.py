"""Nodes with replicas of one tiered partition over the storage engine, and an object store that they share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker, iter_batches
from ottla.metadata.image import MetadataDelta, MetadataImage, PartitionChange, PartitionState, TopicImage
from ottla.replica.append import Records, TopicIdPartition
from ottla.replica.config import TopicRules
from ottla.replica.fetch import FetchParams, FetchPartition, FetchResult
from ottla.replica.manager import ReplicaManager
from ottla.replica.offset_lookup import FoundOffset, find_offset
from ottla.replica.partition import Isolation, Partition
from ottla.replica.remote.remote_storage import RemoteStorage
from ottla.replica.tiered.remote_log import RemoteLog
from ottla.replica.tiered.rules import RemoteRules
from ottla.runtime.memory_budget import MemoryBudget
from ottla.runtime.stages import finish
from ottla.settings.config import BrokerConfig
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig, StorageConfig
from ottla.storage.disk import RealDisk
from ottla.storage.disk.memory_disk import MemoryDisk
from ottla.storage.log.append_types import AppendOrigin
from ottla.storage.log_manager import LogManager
from ottla.tiers.reading.disk_cache import DiskCache
from ottla.tiers.stores.memory_store import MemoryObjectStore
from tests.doubles.replica_configs import FixedRules
from tests.tiers.faults import FaultyObjectStore

TOPIC_ID = UUID(int=7)
KEY = TopicIdPartition(TOPIC_ID, 0)
CLUSTER = "cluster"
FIRST_MS = 1_700_000_000_000
#: Of the disk only what is not copied yet is kept.
SHORT_LIVED = RemoteRules(local_retention_bytes=0)


class Session:
    """The node's, for the test to end."""

    may_have_ended = False


class TieredRules(FixedRules):
    """What the node of a test says of its topic, once there is one."""

    def __init__(self, place: SimpleNamespace, node_id: int) -> None:
        config = LogConfig(retention_ms=-1, segment_bytes=5000)
        super().__init__(lambda: TopicRules(config, remote=place.node.rules), node_id=node_id)
        self._place = place

    @property
    def remote_wait_ms(self) -> int:
        return int(self._place.node.wait_ms)


class TieredNode:
    """One node. `rules` are what the topic says, None if it is not tiered."""

    def __init__(
        self,
        manager: ReplicaManager,
        storage: RemoteStorage,
        log_manager: LogManager,
        clock: ManualClock,
        node_id: int,
        session: Session,
    ) -> None:
        self.manager = manager
        self.storage = storage
        self.log_manager = log_manager
        self.clock = clock
        self.node_id = node_id
        self.session = session
        self.rules: RemoteRules | None = SHORT_LIVED
        self.wait_ms = 5000
        self.contents: list[bytes] = []
        self._image = MetadataImage(cluster_id=CLUSTER)
        self._configs: dict[str, str] = {"remote.storage.enable": "true"}

    @property
    def partition(self) -> Partition:
        return self.manager.get_partition(*KEY)

    @property
    def remote(self) -> RemoteLog:
        remote = self.partition.remote
        assert remote is not None
        return remote

    @property
    def log(self) -> Any:
        return self.partition.log

    def begin_anew(self) -> None:
        """The next metadata is the first that it sees."""
        self._image = MetadataImage()

    # The metadata.

    async def lead(
        self,
        epoch: int = 0,
        *,
        replicas: tuple[int, ...] = (),
        leader: int | None = None,
        isr: tuple[int, ...] = (),
    ) -> None:
        """The cluster says who leads, this node unless another one is named; all are in sync unless some are named."""
        replicas = replicas or (self.node_id,)
        leader = self.node_id if leader is None else leader
        state = PartitionState(leader=leader, replicas=replicas, isr=isr or replicas, leader_epoch=epoch)
        await self._apply(state)

    async def _apply(self, state: PartitionState, *, reconfigures: bool = False) -> None:
        topic = TopicImage("topic", TOPIC_ID, (state,), self._configs)
        before, known = self._image, self._image.topic_by_id(TOPIC_ID)
        self._image = replace(
            before,
            cluster_id=CLUSTER,
            topics=before.topics.set("topic", topic),
            topics_by_id=before.topics_by_id.set(TOPIC_ID, topic),
        )
        delta = MetadataDelta(
            before,
            self._image,
            created_topics=() if known else (topic,),
            changed_partitions=[PartitionChange(topic, 0, None, state)],
            reconfigured_topics=(topic,) if reconfigures else (),
        )
        await self.manager.apply(delta)
        await self.storage.apply(delta, self.manager)

    async def configure(self, rules: RemoteRules | None, **configs: str) -> None:
        """The topic's settings change."""
        self.rules = rules
        self._configs = {name.replace("_", "."): value for name, value in configs.items()}
        topic = self._image.topic_by_id(TOPIC_ID)
        assert topic is not None
        await self._apply(topic.partitions[0], reconfigures=True)

    async def delete_topic(self) -> None:
        topic = self._image.topic_by_id(TOPIC_ID)
        assert topic is not None
        after = MetadataImage(cluster_id=CLUSTER)
        delta = MetadataDelta(self._image, after, deleted_topics=(topic,))
        self._image = after
        await self.manager.apply(delta)
        await self.storage.apply(delta, self.manager)

    async def publish_again(self, keys: Iterable[tuple[UUID, int]]) -> None:
        """What the metadata says is told once more."""
        topic = self._image.topic_by_id(TOPIC_ID)
        assert topic is not None
        (state,) = topic.partitions
        await self.manager.apply(
            MetadataDelta(self._image, self._image, changed_partitions=[PartitionChange(topic, 0, state, state)])
        )

    async def look(self) -> None:
        """A new leader looks at the object store."""
        await self.remote.look(self.partition.leader_epoch)

    # What clients do.

    async def append(self, count: int, *, size_bytes: int = 100, **options: Any) -> None:
        """Batches of two records each, of which each is a millisecond later than the one before."""
        for _ in range(count):
            first = self.log.log_end_offset
            records = [
                Record(timestamp_ms=FIRST_MS + first + number, value=b"%06d" % (first + number) + b"v" * size_bytes)
                for number in range(2)
            ]
            await self.append_batch(build_batch(records, **options))
        await self.log_manager.maintenance.wait_idle()

    async def append_batch(self, content: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        records = Records(memoryview(bytearray(content)))
        (result,) = (
            await self.manager.append({KEY: records}, required_acks=1, timeout_ms=60_000, origin=origin)
        ).values()
        assert result.error is None, result.error

    async def end_transaction(self, producer_id: int, *, commits: bool) -> None:
        marker = build_end_txn_marker(EndTxnMarker(producer_id, 0, 0, commits), timestamp_ms=FIRST_MS)
        await self.append_batch(marker, AppendOrigin.COORDINATOR)

    async def fetch(
        self,
        offset: int,
        *,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        max_bytes: int = 1 << 20,
        replica_id: int = -1,
        last_fetched_epoch: int = -1,
    ) -> FetchResult:
        params = FetchParams(
            isolation=isolation, replica_id=replica_id, max_bytes=max_bytes, may_read_from_follower=True
        )
        asked = FetchPartition(TOPIC_ID, 0, offset, max_bytes, last_fetched_epoch=last_fetched_epoch)
        (result,) = await self.manager.fetch(params, [asked])
        return result

    async def values(self, offset: int = 0, *, max_bytes: int = 3000) -> bytes:
        """All batches from an offset to the high watermark, as a consumer gets them."""
        found = b""
        while offset < self.log.high_watermark:
            result = await self.fetch(offset, max_bytes=max_bytes)
            assert result.error is None, result.error
            assert result.records is not None, offset
            content = result.records.to_bytes()
            result.release()
            found += content
            *_, (_, header) = iter_batches(content)
            assert header.next_offset > offset
            offset = header.next_offset
        return found

    async def find(self, timestamp_ms: int) -> FoundOffset:
        return await finish(find_offset(self.partition, timestamp_ms, isolation=Isolation.HIGH_WATERMARK))

    # What goes on by itself.

    async def copy(self) -> None:
        """Copy all that may be copied."""
        while await self.storage.copy_all(self.manager):
            pass

    async def expire(self) -> None:
        await self.storage.expire_all(self.manager)

    async def tier(self) -> None:
        """Copy, and take from the disk what is copied."""
        await self.copy()
        await self.expire()
        assert self.storage.failing == {}


def new_store() -> FaultyObjectStore:
    return FaultyObjectStore(MemoryObjectStore(lambda: FIRST_MS))


@asynccontextmanager
async def tiered_node(
    folder: Path, store: FaultyObjectStore, *, node_id: int = 0, is_older: bool = False
) -> AsyncIterator[TieredNode]:
    """A node that runs; its segments have about 20 batches."""
    clock = ManualClock(FIRST_MS)
    settings = StorageConfig(segment_bytes=5000, run_bytes=1000, rewrite_mean_run_bytes=0)
    log_manager = LogManager(RealDisk(), folder, settings, clock, node_id=node_id)
    cache = DiskCache(MemoryDisk(), "/cache", 1 << 20)
    storage = RemoteStorage(
        store,
        cache,
        BrokerConfig(),
        clock,
        log_manager.node_dir,
        node_id=node_id,
    )
    place = SimpleNamespace(node=None)
    session = Session()
    manager = ReplicaManager(
        log_manager,
        clock,
        TieredRules(place, node_id),
        response_budget=MemoryBudget(1 << 24),
        session=session,
        remote_logs=storage,
    )
    log_manager.set_listener(manager)
    place.node = TieredNode(manager, storage, log_manager, clock, node_id, session)
    async with log_manager.run():
        log_manager.node_dir.is_ahead = is_older
        await cache.open()
        async with storage.reader.run():
            yield place.node
        manager.close()
