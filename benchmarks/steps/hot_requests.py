"""What it costs to parse the requests that clients send most, in their newest versions and in the ones before.

    python -m benchmarks.steps.hot_requests            # pyperf: calibrated, in worker processes; see --help, try --fast
    python -m benchmarks.steps.hot_requests --quick    # a table in some seconds, less exact

ApiVersions begins each connection, Produce and Fetch carry the records, TxnOffsetCommit ends each transaction that
moves some. All are parsed as the server parses them, in CPU time. See also `benchmarks.steps.codec`, beside other
libraries.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial
from uuid import UUID

from benchmarks.reporting.figures import shown
from benchmarks.steps.micro import Operation, best_us, by_pyperf
from ottla.kproto import codec
from ottla.kproto.hot import produce
from ottla.kproto.messages.cluster.api_versions import ApiVersionsRequest
from ottla.kproto.messages.data.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.kproto.messages.data.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.kproto.messages.groups.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.kproto.records import Record, build_batch
from ottla.kproto.schema import Request

TOPIC_ID = UUID(int=7)
PARTITIONS = 4


def requests() -> Iterator[tuple[Request, int]]:
    """Each with a version."""
    versions = ApiVersionsRequest.VERSIONS.highest
    for version in range(4, versions + 1):
        yield ApiVersionsRequest(client_software_name="apache-kafka-java", client_software_version="4.4.0"), version
    offsets = [
        TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=5_000, committed_metadata="")
        for index in range(PARTITIONS)
    ]
    for version in range(5, TxnOffsetCommitRequest.VERSIONS.highest + 1):
        named = {"topic_id": TOPIC_ID} if version > 5 else {"name": "orders"}
        yield (
            TxnOffsetCommitRequest(
                transactional_id="mover",
                group_id="movers",
                producer_id=1_000,
                producer_epoch=3,
                generation_id_or_member_epoch=7,
                member_id="consumer-1-0123456789abcdef",
                topics=[TxnOffsetCommitRequestTopic(partitions=offsets, **named)],
            ),
            version,
        )
    batch = build_batch([Record(value=bytes(100)) for _ in range(10)])
    data = [PartitionProduceData(index=index, records=batch) for index in range(PARTITIONS)]
    yield (
        ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=data)]
        ),
        13,
    )
    asked = [
        FetchPartition(partition=index, current_leader_epoch=3, fetch_offset=5_000, partition_max_bytes=1 << 20)
        for index in range(PARTITIONS)
    ]
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=asked)
    yield FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=77, topics=[topic]), 18
    yield FetchRequest(max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=77, session_epoch=9), 18


def operations() -> Iterator[tuple[str, Operation]]:
    for request, version in requests():
        key = request.API_KEY
        frame = memoryview(bytearray(codec.build(request, version)))
        parse = produce.parse_request if isinstance(request, ProduceRequest) else partial(codec.parse_request, key)
        topics = getattr(request, "topics", None)
        what = ", which changes nothing in its session" if topics == [] else ""
        yield f"parse {key.name} {version}{what}", partial(parse, version, frame, 0)


def main() -> None:
    if "--quick" not in sys.argv:
        by_pyperf("benchmarks.steps.hot_requests", "Parsing the requests that clients send most", operations())
        return
    print("| | CPU, µs |\n|---|---:|")
    for what, operation in operations():
        print(f"| {what} | {shown(best_us(operation))} |", flush=True)


if __name__ == "__main__":
    main()
