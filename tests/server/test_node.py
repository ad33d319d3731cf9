"""A node's life: stopping under load loses nothing, and starting again brings everything back."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch, iter_batches

Serve = Callable[..., Any]


def produce(topic: str, partition: int, value: bytes) -> ProduceRequest:
    batch = build_batch([Record(offset=0, timestamp_ms=1_700_000_000_000, key=None, value=value)], base_offset=0)
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


async def end_offset(client: Any, topic: str, partition: int) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    response = await client.call(
        ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])]), 5
    )
    (answer,) = response.topics[0].partitions
    assert answer.error_code == ErrorCode.NONE
    return int(answer.offset)


async def test_what_was_acknowledged_before_a_stop_is_there_after_it(serve_node: Serve) -> None:
    acknowledged = [-1, -1, -1]

    async def produce_until_closed(client: Any, partition: int) -> None:
        try:
            while True:
                response = await client.call(produce("t", partition, b"x"), 9)
                (answer,) = response.responses[0].partition_responses
                assert answer.error_code == ErrorCode.NONE
                acknowledged[partition] = answer.base_offset
        except (EOFError, trio.BrokenResourceError):
            return

    async with serve_node() as node:
        await node.create_topic("t", 3)
        async with trio.open_nursery() as nursery:
            for partition in range(3):
                nursery.start_soon(produce_until_closed, await node.connect(), partition)
            while min(acknowledged) < 20:
                await trio.lowlevel.checkpoint()
            node.node.stop()
    async with serve_node() as node:
        client = await node.connect()
        for partition in range(3):
            assert await end_offset(client, "t", partition) > acknowledged[partition]


async def test_a_fetch_that_waits_is_answered_when_the_node_stops(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t")
        client = await node.connect()
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
        fetch = FetchRequest(max_wait_ms=600_000, min_bytes=1, topics=[FetchTopic(topic="t", partitions=[asked])])
        await client.send(fetch, 11)
        await trio.testing.wait_all_tasks_blocked(0.02)
        node.node.stop()
        _, response = await client.receive(fetch.API_KEY, 11)
        assert response.responses[0].partitions[0].records in (b"", memoryview(b""))
        assert await client.is_closed()


async def test_topics_keep_their_ids_and_settings_over_a_restart(serve_node: Serve) -> None:
    async with serve_node() as node:
        topic_id = await node.create_topic("t", 2, retention_ms="12345")
        cluster_id = node.broker.metadata.cluster_id
    async with serve_node() as node:
        client = await node.connect()
        response = await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        (topic,) = response.topics
        assert (topic.topic_id, len(topic.partitions)) == (topic_id, 2)
        assert response.cluster_id == cluster_id
        assert node.broker.metadata.topic("t").configs == {"retention.ms": "12345"}


async def epochs_told(client: Any) -> dict[str, int]:
    """The leader epoch of the partition as each API tells it."""
    (topic,) = (await client.call(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)).topics
    asked = ListOffsetsPartition(partition_index=0, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
    (listed,) = (await client.call(request, 5)).topics
    return {"Metadata": topic.partitions[0].leader_epoch, "ListOffsets": listed.partitions[0].leader_epoch}


async def fetch(client: Any, offset: int, epoch: int) -> tuple[int, list[int]]:
    """The error, and the leader epochs of the batches, of a fetch by a client that knows of this leader epoch."""
    asked = FetchPartition(
        partition=0, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20, last_fetched_epoch=-1
    )
    request = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="t", partitions=[asked])])
    (answer,) = (await client.call(request, 12)).responses[0].partitions
    batches = iter_batches(memoryview(answer.records or b""))
    return answer.error_code, [header.leader_epoch for _, header in batches]


async def end_of_epoch(client: Any, epoch: int) -> tuple[int, int]:
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=-1, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(replica_id=-1, topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
    (answer,) = (await client.call(request, 4)).topics[0].partitions
    return answer.leader_epoch, answer.end_offset


async def test_each_start_leads_in_a_new_epoch(serve_node: Serve) -> None:
    """So that clients find out what was lost with the last process (KIP-320)."""
    for start in range(4):
        async with serve_node() as node:
            client = await node.connect()
            if start == 0:
                await node.create_topic("t")
            assert await epochs_told(client) == {"Metadata": start, "ListOffsets": start}
            if start != 2:  # a start without a record is an epoch, too
                await client.call(produce("t", 0, b"x"), 9)
    async with serve_node() as node:
        client = await node.connect()
        assert await fetch(client, 0, -1) == (ErrorCode.NONE, [0, 1, 3])
        assert await fetch(client, 0, 4) == (ErrorCode.NONE, [0, 1, 3])
        assert await fetch(client, 0, 3) == (ErrorCode.FENCED_LEADER_EPOCH, [])
        assert await fetch(client, 0, 5) == (ErrorCode.UNKNOWN_LEADER_EPOCH, [])
        ends = [await end_of_epoch(client, epoch) for epoch in range(6)]
        assert ends == [(0, 1), (1, 2), (1, 2), (3, 3), (4, 3), (-1, -1)]


async def test_ten_thousand_partitions_are_in_a_new_epoch_by_one_key(serve_node: Serve) -> None:
    async with serve_node() as node:
        await node.create_topic("t", 10_000)
    async with serve_node() as node:
        assert {state.leader_epoch for state in node.broker.metadata.topic("t").partitions} == {1}
        assert len({id(state) for state in node.broker.metadata.topic("t").partitions}) == 1


async def test_a_topic_that_was_just_created_takes_records_at_once(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        for number in range(10):
            name = f"t{number}"
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
            for _ in range(2):  # Kafka says LEADER_NOT_AVAILABLE once, too, and clients ask again
                (topic,) = (await client.call(asked, 8)).topics
                if topic.error_code == ErrorCode.NONE:
                    break
            assert topic.error_code == ErrorCode.NONE
            response = await client.call(produce(name, 0, b"first"), 9)
            assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_idle_connections_are_closed_after_connections_max_idle_ms(serve_node: Serve) -> None:
    async with serve_node({"connections.max.idle.ms": "300"}) as node:
        client = await node.connect()
        with trio.fail_after(10):
            assert await client.is_closed()


async def test_data_that_the_metadata_does_not_know_is_said(
    serve_node: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve_node() as node:
        await node.create_topic("known")
    assert "not in the cluster's metadata" not in caplog.text
    (tmp_path / "node-1" / "lost.AAAAAAAAAAAAAAAAAAAAAA").mkdir(parents=True)
    async with serve_node():
        await wait_all_tasks_blocked(0.05)
    assert "1 topics have data" in caplog.text
    assert "lost.AAAAAAAAAAAAAAAAAAAAAA" in caplog.text
