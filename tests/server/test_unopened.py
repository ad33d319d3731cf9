"""A node with many topics serves before it has opened their logs: requests wait for those that they name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla.kproto.messages.data.describe_log_dirs import DescribeLogDirsRequest
from ottla.kproto.messages.data.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest
from ottla.kproto.records import Record, build_batch
from ottla.replica.hosted_partitions import HostedPartitions

TOPICS = 3


def produce(number: int) -> ProduceRequest:
    batch = build_batch([Record(timestamp_ms=1, value=b"x")])
    partition = PartitionProduceData(index=0, records=batch)
    topic = TopicProduceData(name=f"t{number}", partition_data=[partition])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic])


def fetch(topic_id: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    topics = [FetchTopic(topic_id=topic_id, partitions=[partition])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1000, topics=topics)


async def test_requests_wait_for_the_logs_that_they_name(
    serve_node: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_node() as node:
        topic_ids = [await node.create_topic(f"t{number}") for number in range(TOPICS)]
        client = await node.connect()
        for number in range(TOPICS):
            await client.call(produce(number), 9)
    opened = trio.Event()
    open_rest = HostedPartitions.open_rest

    async def open_when_told(partitions: HostedPartitions) -> None:
        await opened.wait()
        await open_rest(partitions)

    monkeypatch.setattr(HostedPartitions, "open_rest", open_when_told)
    async with serve_node(opened_at_start=0) as node:
        answers: dict[str, Any] = {}

        async def ask(request: Any, version: int) -> None:
            client = await node.connect()
            answers[type(request).__name__] = await client.call(request, version)

        listed = ListOffsetsTopic(name="t1", partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        deleted = DeleteRecordsTopic(name="t2", partitions=[DeleteRecordsPartition(partition_index=0, offset=1)])
        ended = OffsetForLeaderTopic(topic="t0", partitions=[OffsetForLeaderPartition(partition=0, leader_epoch=0)])
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, MetadataRequest(topics=None), 12)
            nursery.start_soon(ask, produce(0), 9)
            nursery.start_soon(ask, fetch(topic_ids[1]), 13)
            nursery.start_soon(ask, ListOffsetsRequest(replica_id=-1, topics=[listed]), 7)
            nursery.start_soon(ask, DeleteRecordsRequest(topics=[deleted], timeout_ms=1000), 2)
            nursery.start_soon(ask, OffsetForLeaderEpochRequest(topics=[ended]), 4)
            asked = [TopicRequest(name="t2", partition_indexes=[0])]
            nursery.start_soon(ask, DescribeProducersRequest(topics=asked), 0)
            nursery.start_soon(ask, DescribeLogDirsRequest(topics=None), 4)
            while not answers:
                await wait_all_tasks_blocked(0.01)
            assert answers.keys() == {"MetadataRequest"}
            assert len(node.broker.replica_manager.unopened.left) == TOPICS
            opened.set()
        assert answers["ProduceRequest"].responses[0].partition_responses[0].base_offset == 1
        assert answers["FetchRequest"].responses[0].partitions[0].high_watermark == 1
        assert answers["ListOffsetsRequest"].topics[0].partitions[0].offset == 1
        assert answers["DeleteRecordsRequest"].topics[0].partitions[0].low_watermark == 1
        assert answers["OffsetForLeaderEpochRequest"].topics[0].partitions[0].end_offset >= 1
        assert answers["DescribeProducersRequest"].topics[0].partitions[0].error_code == ErrorCode.NONE
        assert len(answers["DescribeLogDirsRequest"].results[0].topics) == TOPICS
        assert not node.broker.replica_manager.unopened.left
