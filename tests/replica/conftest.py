"""A replica manager over logs in memory whose flushes and failures the test decides."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID, uuid4

import pytest
import trio

from ottla.kproto.records import Record, build_batch, parse_batch_header, patch_base_offset_and_epoch
from ottla.metadata.image import (
    BrokerImage,
    MetadataDelta,
    MetadataImage,
    PartitionChange,
    PartitionState,
    TopicImage,
)
from ottla.replica.append import AppendResult, Records, TopicIdPartition
from ottla.replica.config import TopicRules
from ottla.replica.fetch import FetchParams, FetchPartition, FetchResult
from ottla.replica.manager import ReplicaManager
from ottla.replica.partition import Partition
from ottla.runtime.memory_budget import MemoryBudget
from ottla.simulation.turns import SoonEnded
from ottla.storage.clock import ManualClock
from ottla.storage.config import LogConfig
from ottla.storage.errors import ChecksTakeLongError, OffsetOutOfRangeError, StoreOfflineError
from ottla.storage.log.partition_log import AppendInfo
from ottla.storage.memory.iobuf import IOBuf
from ottla.storage.state.leader_epochs import LeaderEpochs
from tests.doubles.replica_configs import FixedRules
from tests.servers import serve_handlers, serve_node

__all__ = ["serve_handlers", "serve_node"]


class FakePlan:
    """A read that is answered from memory at once."""

    def __init__(self, records: IOBuf, next_offset: int, aborted: Sequence[Any]) -> None:
        self.records = records
        self.next_offset = next_offset
        self._aborted = list(aborted)
        self.error = None
        self.size_bytes = records.size_bytes
        self.is_complete = True

    def aborted_transactions(self, end_offset: int) -> Sequence[Any]:
        return [each for each in self._aborted if each.first_offset < end_offset]

    def release(self) -> None:
        self.records.release()


class FakeStore:
    """`MessageStore` as the replica manager sees it."""

    def __init__(self) -> None:
        self.description = b""

    def describe(self, describe: Callable[[], bytes], *, soon: bool = False) -> None:
        self.description = describe()


class FakeLog:
    """`PartitionLog` as the replica manager sees it; what is appended is flushed when the test says so."""

    def __init__(self, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> None:
        self.store = FakeStore()
        self.topic_id = topic_id
        self.topic = topic
        self.partition = partition
        self.config = config
        self.log_start_offset = 0
        self.flushed_end_offset = 0
        self.high_watermark = 0
        self.first_unstable_offset: int | None = None
        self.batches: list[tuple[int, int, memoryview]] = []
        self.epochs = LeaderEpochs()
        self.aborted: list[Any] = []
        self.room = trio.Event()
        self.room.set()
        self.offline = False
        self.may_lack_records = False
        self.checks_take_long = False
        self.checked = trio.Event()
        self.checking = 0
        self.plans: list[FakePlan] = []

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1][1] + 1 if self.batches else self.log_start_offset

    @property
    def last_stable_offset(self) -> int:
        if self.first_unstable_offset is None:
            return self.high_watermark
        return min(self.high_watermark, self.first_unstable_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest_epoch

    @property
    def size_bytes(self) -> int:
        return sum(len(view) for _, _, view in self.batches)

    @property
    def is_stalled(self) -> bool:
        return False

    @property
    def has_room(self) -> bool:
        return self.room.is_set()

    async def wait_for_room(self) -> None:
        await self.room.wait()
        if self.offline:
            raise StoreOfflineError("offline")

    async def check_ahead(self, records: memoryview, *, now_ms: int) -> object:
        self.checking += 1
        await self.checked.wait()
        self.checking -= 1
        return "checked"

    def append_as_leader(
        self,
        records: memoryview,
        fragment: object,
        *,
        leader_epoch: int,
        origin: object,
        now_ms: int,
        checked: object = None,
        **_: object,
    ) -> AppendInfo:
        if self.offline:
            raise StoreOfflineError("offline")
        if self.checks_take_long and checked is None:
            raise ChecksTakeLongError
        base_offset = self.log_end_offset
        patch_base_offset_and_epoch(records, 0, base_offset, leader_epoch)
        header = parse_batch_header(records)
        self.epochs.assign(leader_epoch, base_offset)
        self.batches.append((base_offset, header.last_offset, records))
        return AppendInfo(base_offset, header.last_offset, -1, self.log_start_offset)

    def plan_read(
        self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool, names_files: bool
    ) -> FakePlan:
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRangeError(offset, self.log_start_offset, self.log_end_offset)
        records = IOBuf()
        for _base, last, view in self.batches:
            if last < offset or last >= end_offset:
                continue
            if records.size_bytes + len(view) > max_bytes and not (min_one_batch and not records.size_bytes):
                break
            records.append(view)
            offset = last + 1
        self.plans.append(FakePlan(records, offset, self.aborted))
        return self.plans[-1]

    def advance_high_watermark(self, offset: int) -> bool:
        moved = offset > self.high_watermark
        self.high_watermark = max(self.high_watermark, offset)
        return moved

    def set_high_watermark(self, offset: int) -> None:
        self.high_watermark = offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    async def advance_log_start_offset(self, offset: int) -> None:
        await trio.lowlevel.checkpoint()
        self.log_start_offset = offset

    def set_config(self, config: LogConfig) -> None:
        self.config = config


class FakeLogManager:
    """Opens fake logs and remembers which were deleted."""

    def __init__(self) -> None:
        self.context = SimpleNamespace(turn=SoonEnded())
        self.logs: dict[tuple[UUID, int], FakeLog] = {}
        self.deleted: list[tuple[UUID, int]] = []
        self.fail_to_open = False
        self.fail_to_delete = False

    async def open_ahead(self, partitions: Iterable[tuple[UUID, str, int]]) -> None:
        """Nothing: fake logs have no stores."""

    async def open_log(self, topic_id: UUID, topic: str, partition: int, config: LogConfig) -> FakeLog:
        await trio.lowlevel.checkpoint()
        if self.fail_to_open:
            raise StoreOfflineError("cannot open")
        return self.logs.setdefault((topic_id, partition), FakeLog(topic_id, topic, partition, config))

    async def delete_logs(self, topic_id: UUID, partitions: Iterable[int]) -> None:
        await trio.lowlevel.checkpoint()
        if self.fail_to_delete:
            raise StoreOfflineError("cannot delete")
        self.deleted += [(topic_id, partition) for partition in partitions]


class Node:
    """Node 0 of a cluster, its replica manager, and the hands of the cluster and the disk around it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log_manager = FakeLogManager()
        self.budget = MemoryBudget(1_000_000)
        self.image = MetadataImage()
        self.min_insync_replicas = 1
        self.log_config = LogConfig()
        self.manager = ReplicaManager(
            self.log_manager,  # type: ignore[arg-type]
            self.clock,
            FixedRules(lambda: TopicRules(self.log_config, self.min_insync_replicas)),
            response_budget=self.budget,
        )

    async def live(self, *node_ids: int) -> None:
        """The cluster says which brokers are alive."""
        before = self.image
        self.image = replace(before, brokers={node_id: BrokerImage(node_id, ()) for node_id in node_ids})
        await self.manager.apply(MetadataDelta(before, self.image, changed_brokers=node_ids))

    async def create_topic(
        self, name: str = "topic", *, partitions: int = 1, replicas: tuple[int, ...] = (0,), leader: int = 0
    ) -> TopicImage:
        state = PartitionState(leader=leader, replicas=replicas, isr=replicas)
        topic = TopicImage(name, uuid4(), (state,) * partitions)
        await self._publish(topic, created=True, changes=range(partitions))
        return topic

    async def change(self, topic: TopicImage, partition: int = 0, **fields: Any) -> TopicImage:
        """Change a partition's state; returns the topic's new image."""
        current = self.image.topic_by_id(topic.topic_id)
        assert current is not None
        states = list(current.partitions)
        old = states[partition]
        values = {name: getattr(old, name) for name in ("leader", "replicas", "isr", "leader_epoch")} | fields
        states[partition] = PartitionState(**values, partition_epoch=old.partition_epoch + 1)
        changed = TopicImage(topic.name, topic.topic_id, tuple(states))
        await self._publish(changed, created=False, changes=[partition])
        return changed

    async def delete_topic(self, topic: TopicImage) -> None:
        before = self.image
        self.image = replace(
            before, topics=before.topics.remove(topic.name), topics_by_id=before.topics_by_id.remove(topic.topic_id)
        )
        await self.manager.apply(MetadataDelta(before, self.image, deleted_topics=[topic]))

    async def reconfigure(self, topic: TopicImage) -> None:
        await self.manager.apply(MetadataDelta(self.image, self.image, reconfigured_topics=[topic]))

    def partition(self, topic: TopicImage, partition: int = 0) -> Partition:
        return self.manager.get_partition(topic.topic_id, partition)

    def log(self, topic: TopicImage, partition: int = 0) -> FakeLog:
        return self.log_manager.logs[topic.topic_id, partition]

    def flush(self, *logs: FakeLog) -> None:
        """Write everything that was appended to these logs (to all by default)."""
        flushed = logs or tuple(self.log_manager.logs.values())
        for log in flushed:
            log.flushed_end_offset = log.log_end_offset
        self.manager.on_flushed(flushed)  # type: ignore[arg-type]

    def fail(self, *logs: FakeLog) -> None:
        """The store of these logs stops for good."""
        for log in logs:
            log.offline = True
            log.room.set()
        self.manager.on_offline(logs, OSError("no such disk"))  # type: ignore[arg-type]

    async def append(
        self,
        topic: TopicImage,
        partition: int = 0,
        *,
        acks: int = -1,
        timeout_ms: int = 1000,
        count: int = 1,
        **options: Any,
    ) -> AppendResult:
        key = TopicIdPartition(topic.topic_id, partition)
        results = await self.manager.append({key: batch(count)}, required_acks=acks, timeout_ms=timeout_ms, **options)
        return results[key]

    async def append_flushed(self, topic: TopicImage, partition: int = 0, *, count: int = 1) -> None:
        await self.append(topic, partition, acks=0, count=count)
        self.flush(self.log(topic, partition))

    async def fetch(
        self, topic: TopicImage, offset: int = 0, *, partition: int = 0, request: Mapping[str, Any] = {}, **params: Any
    ) -> FetchResult:
        asked = FetchPartition(topic.topic_id, partition, offset, **request)
        values: dict[str, Any] = {"max_wait_ms": 1000, "min_bytes": 1} | params
        (result,) = await self.manager.fetch(FetchParams(**values), [asked])
        return result

    async def _publish(self, topic: TopicImage, *, created: bool, changes: Sequence[int]) -> None:
        before = self.image
        self.image = replace(
            before,
            topics=before.topics.set(topic.name, topic),
            topics_by_id=before.topics_by_id.set(topic.topic_id, topic),
        )
        old = before.topic_by_id(topic.topic_id)
        delta = MetadataDelta(
            before,
            self.image,
            created_topics=[topic] if created else (),
            changed_partitions=[
                PartitionChange(topic, i, old.partitions[i] if old else None, topic.partitions[i]) for i in changes
            ],
        )
        await self.manager.apply(delta)


def batch(count: int = 1, value: bytes = b"value") -> Records:
    """A batch as a producer sends it."""
    return Records(memoryview(bytearray(build_batch([Record(value=value)] * count))))


@pytest.fixture
def node() -> Node:
    return Node()


@pytest.fixture
def make_batch() -> Callable[..., Records]:
    return batch
