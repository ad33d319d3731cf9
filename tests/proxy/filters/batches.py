"""Batches of records on their way through a filter, and a leader that keeps them."""

from __future__ import annotations

from typing import Any

from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from ottla.kproto.messages.data.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from ottla.kproto.records import Record, build_batch
from ottla.proxy.filters.filter import Filter
from ottla.testing import run_filter


def batch(*values: bytes | None, key: bytes | None = b"k", **options: Any) -> bytes:
    records = [Record(timestamp_ms=5, key=key, value=value, headers=(("h", b"1"),)) for value in values]
    return build_batch(records, **options)


def produce(*partitions: bytes, topic: str = "t", acks: int = 1) -> ProduceRequest:
    data = [PartitionProduceData(index=number, records=it) for number, it in enumerate(partitions)]
    return ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=data)])


class Leader:
    """An upstream that stores what is produced, one batch of a partition, and gives it back."""

    def __init__(self) -> None:
        self.stored: dict[tuple[str, int], bytes] = {}

    def __call__(self, request: Any) -> ProduceResponse:
        topics = []
        for topic in request.topic_data:
            for partition in topic.partition_data:
                self.stored[topic.name, partition.index] = bytes(partition.records)
            answers = [PartitionProduceResponse(index=it.index, base_offset=7) for it in topic.partition_data]
            topics.append(TopicProduceResponse(name=topic.name, partition_responses=answers))
        return ProduceResponse(responses=topics)

    def fetched(self, one: Filter, topic: str = "t", partition: int = 0) -> PartitionData:
        """What a client gets of a partition through a filter."""
        data = PartitionData(partition_index=partition, records=self.stored[topic, partition])
        found = FetchResponse(responses=[FetchableTopicResponse(topic=topic, partitions=[data])])
        answer: Any = run_filter(one, FetchRequest(), lambda request: found)
        partitions: list[PartitionData] = answer.responses[0].partitions
        return partitions[0]
