"""A source and a mirror of it, two clusters of one node each in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from inspect import isawaitable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto.records import EndTxnMarker, Record, build_batch, build_end_txn_marker
from ottla.metadata.changes.config_changes import ConfigChange, ConfigOperation
from ottla.metadata.image import ConfigResource, ResourceType
from ottla.replica.append import Records, TopicIdPartition
from ottla.replica.fetch import FetchParams, FetchPartition
from ottla.replica.partition import Isolation, Partition
from ottla.storage.log.partition_log import AppendOrigin
from tests.servers import RunningNode

NOW_MS = 1_700_000_000_000


class Side:
    """One of the two clusters."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        self.broker = node.broker

    def partition(self, topic: str, index: int = 0) -> Partition:
        image = self.broker.metadata.topic(topic)
        assert image is not None, topic
        return self.broker.replica_manager.get_partition(image.topic_id, index)

    async def append(
        self, topic: str, *values: bytes, index: int = 0, marker: bool | None = None, **options: Any
    ) -> int:
        """Append a batch, or the marker that ends a producer's transaction; returns its first offset."""
        key = TopicIdPartition(self.partition(topic, index).topic_id, index)
        if marker is None:
            records = [Record(key=b"k" + value, value=value, timestamp_ms=NOW_MS + len(value)) for value in values]
            batch = build_batch(records, **options)
        else:
            batch = build_end_txn_marker(
                EndTxnMarker(coordinator_epoch=0, is_commit=marker, **options), timestamp_ms=NOW_MS
            )
        origin = AppendOrigin.CLIENT if marker is None else AppendOrigin.COORDINATOR
        entries = {key: Records(memoryview(bytearray(batch)))}
        manager = self.broker.replica_manager
        (result,) = (await manager.append(entries, required_acks=-1, timeout_ms=5000, origin=origin)).values()
        if result.error is not None:
            raise result.error
        return result.base_offset

    async def content(self, topic: str, index: int = 0) -> tuple[int, int, bytes]:
        """Where a partition begins and ends for readers, and every byte in between."""
        partition = self.partition(topic, index)
        log = partition.log
        offset, data = log.log_start_offset, b""
        while offset < log.high_watermark:
            params = FetchParams(max_wait_ms=0, min_bytes=1, isolation=Isolation.HIGH_WATERMARK)
            asked = [FetchPartition(partition.topic_id, index, offset)]
            (result,) = await self.broker.replica_manager.fetch(params, asked)
            assert result.error is None, result.error
            data += b"" if result.records is None else result.records.to_bytes()
            offset = log.high_watermark
            result.release()
        return log.log_start_offset, log.high_watermark, data

    async def alter(self, type_: ResourceType, name: str, *changes: ConfigChange) -> None:
        resource = ConfigResource(type_, name)
        error = (await self.broker.controller.alter_configs({resource: changes}))[resource]
        if error is not None:
            raise error

    async def set(self, type_: ResourceType, name: str, **settings: str) -> None:
        changes = [ConfigChange(key.replace("_", "."), ConfigOperation.SET, it) for key, it in settings.items()]
        await self.alter(type_, name, *changes)


async def until(holds: Callable[[], bool | Awaitable[bool]]) -> None:
    """Return when something has come true that nobody signals."""
    with trio.fail_after(60):
        while True:
            found = holds()
            if await found if isawaitable(found) else found:
                return
            await trio.sleep(0.005)


class Pair:
    def __init__(self, source: Side, mirror: Side) -> None:
        self.source = source
        self.mirror = mirror

    async def begin(self, topics: str = "*", **settings: str) -> None:
        """Set the mirror up as `ottla mirror` does."""
        await self.mirror.set(
            ResourceType.BROKER,
            "",
            ottla_mirror_bootstrap_servers=f"127.0.0.1:{self.source.node.port}",
            ottla_mirror_topics=topics,
            ottla_mirror_interval_ms="100",
            **settings,
        )

    async def is_same(self, topic: str, index: int = 0) -> bool:
        if self.mirror.broker.metadata.partition(topic, index) is None:
            return False
        return await self.mirror.content(topic, index) == await self.source.content(topic, index)

    async def until_same(self, topic: str, indexes: Sequence[int] = (0,)) -> None:
        for index in indexes:
            await until(lambda index=index: self.is_same(topic, index))  # type: ignore[misc]


RunPair = Callable[..., AbstractAsyncContextManager[Pair]]


@pytest.fixture
def run_pair(serve_node: Callable[..., Any], tmp_path: Path) -> RunPair:
    @asynccontextmanager
    async def run(**settings: str) -> AsyncIterator[Pair]:
        """With settings of the source, by Kafka's names with underscores for dots."""
        own = {"offsets.topic.num.partitions": "2"} | {
            key if "." in key else key.replace("_", "."): it for key, it in settings.items()
        }
        async with (
            serve_node(own, data_dir=tmp_path / "source") as source,
            serve_node({"offsets.topic.num.partitions": "3"}, data_dir=tmp_path / "mirror") as mirror,
        ):
            yield Pair(Side(source), Side(mirror))

    return run
