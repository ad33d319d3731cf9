"""Small requests, and many connections: what a request costs when it carries little."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from benchmarks import requests
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import Figures, Workload, create_topic, unique
from compat_tests.brokers.process import BrokerProcess
from ottla.client.addresses import parse_address
from ottla.client.connection import BrokerConnection
from ottla.kproto.frames import build_request_frame
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.find_coordinator import FindCoordinatorRequest
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.groups.offset_fetch import OffsetFetchRequest
from ottla.kproto.messages.topics.metadata import MetadataRequest, MetadataRequestTopic
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Request

Build = Callable[[str, int], tuple[Request, int]]
"""From a topic and a partition to the request and the version it is sent in."""

_WARM_UP_SECONDS = 2
_SECONDS = 4
_RECORDS = 16
_RECORD_BYTES = 1_000


def metadata(topic: str, _: int) -> tuple[Request, int]:
    return MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 12


def list_offsets(topic: str, partition: int) -> tuple[Request, int]:
    latest = ListOffsetsPartition(partition_index=partition, timestamp=-1)
    return ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[latest])]), 7


def offset_commit(topic: str, partition: int) -> tuple[Request, int]:
    offset = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1, committed_metadata="")
    topics = [OffsetCommitRequestTopic(name=topic, partitions=[offset])]
    return OffsetCommitRequest(group_id=group_of(partition), topics=topics), 8


def empty_fetch(topic: str, partition: int) -> tuple[Request, int]:
    end = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic=topic, partitions=[end])]
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=topics), 11


def one_record(topic: str, partition: int) -> tuple[Request, int]:
    data = PartitionProduceData(index=partition, records=build_batch([Record(value=b"v" * 100)]))
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    ), 9


def produce(topic: str, partition: int) -> tuple[Request, int]:
    batch = build_batch([Record(value=b"v" * _RECORD_BYTES) for _ in range(_RECORDS)])
    data = PartitionProduceData(index=partition, records=batch)
    return ProduceRequest(
        acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    ), 9


def group_of(partition: int) -> str:
    return f"bench-{partition % 10}"


def small(build: Build, *, connections: int = 10, partitions: int = 10) -> Workload:
    """One kind of request from a few connections, each with one under way."""

    def run(broker: BrokerProcess) -> Figures:
        topic = unique("requests")
        create_topic(broker, topic, partitions)
        if build is offset_commit:
            load_groups(broker)
        frames = [frame(*build(topic, partition)) for partition in range(partitions)]
        requests.run(broker.bootstrap, frames, connections=connections, seconds=_WARM_UP_SECONDS)
        before = cost(broker.pid)
        measured = requests.run(broker.bootstrap, frames, connections=connections, seconds=_SECONDS)
        used_s = cost(broker.pid).cpu_s - before.cpu_s
        return {
            "requests_per_s": measured["answered"] / measured["seconds"],
            "request_cpu_us": used_s * 1e6 / measured["answered"],
            "p50_ms": measured["p50_ms"],
            "p99_ms": measured["p99_ms"],
        }

    return run


def producers(connections: int, *, partitions: int = 4) -> Workload:
    """Producers that each send 16 records of 1 KB and wait for the acknowledgement."""

    def run(broker: BrokerProcess) -> Figures:
        topic = unique(f"producers-{connections}")
        create_topic(broker, topic, partitions)
        frames = [frame(*produce(topic, partition)) for partition in range(partitions)]
        requests.run(broker.bootstrap, frames, connections=connections, seconds=_WARM_UP_SECONDS)
        before = cost(broker.pid)
        measured = requests.run(broker.bootstrap, frames, connections=connections, seconds=_SECONDS)
        gigabytes = measured["answered"] * _RECORDS * _RECORD_BYTES / 1e9
        return {
            "produce_mb_per_s": gigabytes * 1e3 / measured["seconds"],
            "produce_cpu_s_per_gb": (cost(broker.pid).cpu_s - before.cpu_s) / gigabytes,
            "acknowledgement_p50_ms": measured["p50_ms"],
            "acknowledgement_p99_ms": measured["p99_ms"],
        }

    return run


def frame(request: Request, version: int) -> bytes:
    return build_request_frame(request, version, 1, "bench")


def load_groups(broker: BrokerProcess) -> None:
    """Wait until the coordinator of each group answers, which has its partition of __consumer_offsets loaded."""
    with closing(BrokerConnection(*parse_address(broker.bootstrap), 60)) as connection:
        for number in range(10):
            group = group_of(number)
            for _ in range(600):
                found = connection.call(FindCoordinatorRequest(key=group), at_most=3)
                if (
                    not found.error_code
                    and not connection.call(OffsetFetchRequest(group_id=group), at_most=7).error_code
                ):
                    break
            else:
                raise TimeoutError(f"no coordinator for {group}")
