"""A producer's requests differ in their records alone, and are read as far as that; what they name may change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.kproto.errors import ErrorCode
from ottla.kproto.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from ottla.kproto.messages.topics.delete_topics import DeleteTopicsRequest
from ottla.kproto.records import Record, build_batch
from ottla.server.network import dispatch

Serve = Callable[..., Any]


async def produce(
    client: Any, topic: str, *, version: int = 9, partition: int = 0, size: int = 100, **batch: Any
) -> PartitionProduceResponse:
    data = PartitionProduceData(index=partition, records=build_batch([Record(value=b"v" * size)], **batch))
    topics = [TopicProduceData(name=topic, partition_data=[data])]
    response = await client.call(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), version)
    (answered,) = response.responses
    assert answered.name == topic
    (answer,) = answered.partition_responses
    assert isinstance(answer, PartitionProduceResponse)
    return answer


async def test_what_a_request_names_is_looked_up_again_when_the_metadata_changes(serve_node: Serve) -> None:
    async with serve_node() as node:
        client, other = await node.connect(), await node.connect()
        assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for _ in range(2):
            await node.create_topic("t")
            answers = [await produce(each, "t") for each in (client, client, other)]
            assert [(answer.error_code, answer.base_offset) for answer in answers] == [(0, 0), (0, 1), (0, 2)]
            await client.call(DeleteTopicsRequest(topic_names=["t"], timeout_ms=30_000), 5)
            assert (await produce(client, "t")).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_requests_of_several_partitions_sizes_and_versions_take_turns(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        await node.create_topic("t", partitions=2)
        await node.create_topic("longer")
        for number in range(3):
            for size in (1, 10_000, 100_000):
                for version in (8, 9, 12):
                    for topic, partition in (("t", 0), ("t", 1), ("longer", 0)):
                        answer = await produce(client, topic, version=version, partition=partition, size=size)
                        assert (answer.error_code, answer.index) == (0, partition)
            assert answer.base_offset == number * 9 + 8


async def test_what_is_refused_is_refused_each_time(serve_node: Serve) -> None:
    async with serve_node() as node:
        client = await node.connect()
        await node.create_topic("t")
        for _ in range(2):
            assert (await produce(client, "t")).error_code == 0
            assert (await produce(client, "t", partition=7)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            refused = await produce(
                client, "t", producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
            )
            assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert refused.index == 0


async def test_a_bounded_number_is_remembered(serve_node: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_MAX_RECURRING", 2)
    async with serve_node() as node:
        client = await node.connect()
        await node.create_topic("t", partitions=5)
        for offset in range(3):
            for partition in range(5):
                answer = await produce(client, "t", partition=partition)
                assert (answer.error_code, answer.base_offset) == (0, offset)
