"""Parsing and building messages beside kio and kafka-python.

    python -m benchmarks.steps.codec            # pyperf: calibrated, in worker processes; see --help, try --fast
    python -m benchmarks.steps.codec --quick    # a table in half a minute, less exact

The same bytes go through all three libraries: ours, kio (whose parser, but not its builder, is native code) and
kafka-python. Each is given its own message object to build from, so that a build is nothing but the encoding.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from benchmarks.steps.micro import Operation, by_pyperf
from ottla.kproto import codec
from ottla.kproto.hot import produce as hot_produce
from ottla.kproto.messages.data.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla.kproto.messages.data.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
    ListOffsetsTopicResponse,
)
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    JoinGroupResponseMember,
)
from ottla.kproto.messages.groups.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.kproto.messages.topics.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Message


class Case(NamedTuple):
    """A message to measure, in a version that all three libraries know."""

    message: Message
    version: int
    kafka_python_module: str


def cases() -> list[Case]:
    batch = build_batch([Record(value=bytes(100)) for _ in range(10)])
    return [
        Case(_produce_request(batch), 9, "producer"),
        Case(_fetch_response(batch), 12, "consumer"),
        Case(_metadata_response(), 9, "metadata"),
        Case(_list_offsets_request(), 6, "consumer"),
        Case(_list_offsets_response(), 6, "consumer"),
        Case(_offset_commit_request(), 8, "consumer"),
        Case(_join_group_request(), 7, "consumer"),
        Case(_join_group_response(), 7, "consumer"),
    ]


def _produce_request(batch: bytes) -> Message:
    partitions = [PartitionProduceData(index=index, records=batch) for index in range(4)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=partitions)]
    )


def _fetch_response(batch: bytes) -> Message:
    partitions = [
        PartitionData(
            partition_index=index, high_watermark=1000, last_stable_offset=1000, log_start_offset=0, records=batch
        )
        for index in range(4)
    ]
    return FetchResponse(session_id=77, responses=[FetchableTopicResponse(topic="orders", partitions=partitions)])


def _metadata_response() -> Message:
    brokers = [MetadataResponseBroker(node_id=node, host=f"broker-{node}.example", port=9092) for node in range(3)]
    partitions = [
        MetadataResponsePartition(
            partition_index=index, leader_id=index % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for index in range(6)
    ]
    topics = [MetadataResponseTopic(name=f"topic-{number}", partitions=partitions) for number in range(10)]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def _list_offsets_request() -> Message:
    partitions = [
        ListOffsetsPartition(partition_index=index, current_leader_epoch=3, timestamp=-1) for index in range(10)
    ]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name="orders", partitions=partitions)])


def _list_offsets_response() -> Message:
    # The timestamp is a whole number of seconds, since kio keeps nothing finer.
    partitions = [
        ListOffsetsPartitionResponse(partition_index=index, timestamp=1_700_000_000_000, offset=5000, leader_epoch=3)
        for index in range(10)
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=partitions)])


def _offset_commit_request() -> Message:
    partitions = [
        OffsetCommitRequestPartition(
            partition_index=index, committed_offset=5000, committed_leader_epoch=3, committed_metadata=""
        )
        for index in range(10)
    ]
    return OffsetCommitRequest(
        group_id="billing",
        generation_id_or_member_epoch=7,
        member_id="consumer-1-0123456789abcdef",
        topics=[OffsetCommitRequestTopic(name="orders", partitions=partitions)],
    )


def _join_group_request() -> Message:
    protocols = [JoinGroupRequestProtocol(name=name, metadata=bytes(60)) for name in ("range", "cooperative-sticky")]
    return JoinGroupRequest(
        group_id="billing",
        session_timeout_ms=45_000,
        rebalance_timeout_ms=300_000,
        member_id="consumer-1-0123456789abcdef",
        protocol_type="consumer",
        protocols=protocols,
    )


def _join_group_response() -> Message:
    members = [
        JoinGroupResponseMember(member_id=f"consumer-{n}-0123456789abcdef", metadata=bytes(60)) for n in range(10)
    ]
    return JoinGroupResponse(
        generation_id=7,
        protocol_type="consumer",
        protocol_name="range",
        leader="consumer-0-0123456789abcdef",
        member_id="consumer-0-0123456789abcdef",
        members=members,
    )


def _ours(case: Case, raw: bytes) -> tuple[Operation, Operation]:
    cls, message, version = type(case.message), case.message, case.version
    assert codec.parse(cls, version, raw) == message
    return lambda: codec.parse(cls, version, raw), lambda: codec.build(message, version)


def _kio(case: Case, raw: bytes) -> tuple[Operation, Operation]:
    import io

    from kio.serial import entity_reader, entity_writer

    name = type(case.message).__name__
    kind = "request" if name.endswith("Request") else "response"
    module = case.message.__class__.__module__.rpartition(".")[2]
    entity: Any = getattr(import_module(f"kio.schema.{module}.v{case.version}.{kind}"), name)
    read, write = entity_reader(entity), entity_writer(entity)
    message, _ = read(raw, 0)

    def build() -> bytes:
        buffer = io.BytesIO()
        write(buffer, message)
        return buffer.getvalue()

    assert build() == raw, f"kio encodes {name} differently"
    return lambda: read(raw, 0), build


def _kafka_python(case: Case, raw: bytes) -> tuple[Operation, Operation]:
    name, version = type(case.message).__name__, case.version
    cls: Any = getattr(import_module(f"kafka.protocol.{case.kafka_python_module}"), name)
    message = cls.decode(raw, version=version)
    message._header = None  # what decode without a header leaves out, encode asks for
    assert bytes(message.encode(version=version)) == raw, f"kafka-python encodes {name} differently"
    return lambda: cls.decode(raw, version=version), lambda: message.encode(version=version)


def benchmarks() -> Iterator[tuple[str, str, Operation]]:
    """Every measured operation as (what, whose, how)."""
    for case in cases():
        raw = codec.build(case.message, case.version)
        what = f"{type(case.message).__name__} v{case.version}"
        for whose, prepare in (("ottla", _ours), ("kio", _kio), ("kafka-python", _kafka_python)):
            parse, build = prepare(case, raw)
            yield f"parse {what}", whose, parse
            yield f"build {what}", whose, build
        if isinstance(case.message, ProduceRequest):
            yield f"parse {what}", "ottla, hot", partial(hot_produce.parse_request, case.version, raw)


def quick(rounds: int = 12) -> None:
    """Print the microseconds of each operation, the best of short runs spread over time, beside ours."""
    timers = [
        (what, whose, timeit.Timer(operation, timer=time.process_time)) for what, whose, operation in benchmarks()
    ]
    table: dict[str, dict[str, float]] = {}
    for _ in range(rounds):
        for what, whose, timer in timers:
            loops = max(10, int(0.001 / timer.timeit(2) * 2))
            took = min(timer.repeat(4, loops)) / loops * 1e6
            best = table.setdefault(what, {})
            best[whose] = min(took, best.get(whose, took))
    print("| microseconds | ottla | kio | kafka-python |\n|---|---:|---:|---:|")
    for what, times in sorted(table.items()):
        for ours in ("ottla", "ottla, hot"):
            if ours in times:
                others = (f"{times[w]:.1f} ({times[w] / times[ours]:.1f}x)" for w in ("kio", "kafka-python"))
                print(f"| {what}{ours[5:]} | {times[ours]:.1f} | {' | '.join(others)} |")


def main() -> None:
    if "--quick" in sys.argv:
        quick()
        return
    operations = ((f"{what}: {whose}", operation) for what, whose, operation in benchmarks())
    by_pyperf("benchmarks.steps.codec", "Kafka protocol messages: ottla.kproto beside kio and kafka-python", operations)


if __name__ == "__main__":
    main()
