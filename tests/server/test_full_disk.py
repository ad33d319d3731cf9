"""A broker on a disk that fills up: a small file system of its own."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.configs.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.records import Record, build_batch
from ottla.replica.append import TopicIdPartition
from ottla.replica.delete_records import TO_HIGH_WATERMARK
from ottla.server import main
from ottla.server.telemetry.readiness import unready_reasons
from ottla.storage.log.partition_log import PartitionLog
from ottla.storage.log_manager import LogManager
from tests.storage.held_disk import exists, until

Serve = Callable[..., Any]
SETTINGS = {"ottla.disk.reserve.bytes": "2000000", "ottla.tail.cache.bytes": "0"}


async def produce(client: Any, topic: str) -> int:
    batch = build_batch([Record(value=os.urandom(60_000))])
    data = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=-1, timeout_ms=20_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    answer = await client.call(request, 9)
    return int(answer.responses[0].partition_responses[0].error_code)


async def fetched_bytes(client: Any, topic: str) -> int:
    asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 24)
    topics = [FetchTopic(topic=topic, partitions=[asked])]
    answer = await client.call(FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, topics=topics), 11)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return len(bytes(partition.records))


async def test_reads_go_on_deletion_makes_room_and_writes_come_back(serve_node: Serve, tmpfs: Path) -> None:
    async with serve_node(SETTINGS, data_dir=tmpfs) as node:
        client = await node.connect()
        await until(lambda: exists(node.broker.log_manager.node_dir.reserve_path))
        for topic in ("full", "other"):
            await node.create_topic(topic)
        assert await produce(client, "other") == ErrorCode.NONE
        count = 0
        while (code := await produce(client, "full")) == ErrorCode.NONE:
            count += 1
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert count > 50
        assert await fetched_bytes(client, "full") >= count * 60_000
        assert await produce(client, "other") == ErrorCode.KAFKA_STORAGE_ERROR
        assert unready_reasons(node.broker) == ["the disk is full: records are served, but none are accepted"]
        # Metadata can be written still.
        await node.create_topic("made-on-a-full-disk")
        config = AlterableConfig(name="retention.ms", config_operation=0, value="1000")
        resource = AlterConfigsResource(resource_type=2, resource_name="full", configs=[config])
        altered = await client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)
        assert altered.responses[0].error_code == ErrorCode.NONE
    async with serve_node(SETTINGS, data_dir=tmpfs) as node:
        client = await node.connect()
        assert await fetched_bytes(client, "full") >= count * 60_000
        await node.broker.controller.delete_topics([node.broker.metadata.topics["full"].topic_id])
        with trio.fail_after(20):
            while await produce(client, "other") != ErrorCode.NONE:  # noqa: ASYNC110 (as a producer does)
                await trio.sleep(0.2)
        assert unready_reasons(node.broker) == []


@pytest.mark.parametrize("is_all", [True, False])
async def test_what_was_refused_for_want_of_room_is_deleted_with_all_the_rest(
    serve_node: Serve, tmpfs: Path, is_all: bool
) -> None:
    """It is written before the new log start, and would keep the file. Who names an offset gets that offset."""
    async with serve_node(SETTINGS, data_dir=tmpfs) as node:
        client = await node.connect()
        await until(lambda: exists(node.broker.log_manager.node_dir.reserve_path))
        topic_id = await node.create_topic("full")
        count = 0
        while await produce(client, "full") == ErrorCode.NONE:
            count += 1
        log = node.broker.log_manager.get_log(topic_id, 0)
        assert (log.high_watermark, log.log_end_offset) == (count, count + 1)
        key = TopicIdPartition(topic_id, 0)
        asked = {key: TO_HIGH_WATERMARK if is_all else count}
        result = (await node.broker.replica_manager.delete_records(asked, timeout_ms=60_000))[key]
        assert (result.error, result.low_watermark) == (None, count + is_all)
        assert log.log_start_offset == count + is_all
        with trio.fail_after(60):
            while await produce(client, "full") != ErrorCode.NONE:  # noqa: ASYNC110 (as a producer does)
                await trio.sleep(0.2)


async def test_a_log_for_which_there_was_no_room_is_opened_when_there_is(
    serve_node: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is as if it had always been there: it takes records, and is not counted any more."""
    monkeypatch.setattr(main, "OPEN_AGAIN_SECONDS", 0.01)
    async with serve_node({"ottla.store.layout": "topic"}) as node:
        log_manager, client = node.broker.log_manager, await node.connect()
        monkeypatch.setattr(log_manager, "open_log", no_room := NoRoom(log_manager))
        await node.create_topic("topic")
        assert await produce(client, "topic") == ErrorCode.KAFKA_STORAGE_ERROR
        assert node.broker.replica_manager.offline_partitions == 1
        no_room.is_full = False
        with trio.fail_after(20):
            while await produce(client, "topic") != ErrorCode.NONE:  # noqa: ASYNC110 (as a producer does)
                await trio.sleep(0.05)
        assert no_room.refused >= 1
        assert node.broker.replica_manager.offline_partitions == 0


class NoRoom:
    """A log manager's `open_log` on a disk that is full at first."""

    def __init__(self, log_manager: LogManager) -> None:
        self.is_full = True
        self.refused = 0
        self._open_log = log_manager.open_log

    async def __call__(self, *arguments: Any) -> PartitionLog:
        if self.is_full:
            self.refused += 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return await self._open_log(*arguments)
