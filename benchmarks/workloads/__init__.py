"""Every workload by the name that it has in the table."""

from __future__ import annotations

from typing import Final

from benchmarks.workloads.base import LOWER_IS_BETTER, PRODUCER, Figures, Workload, create_topic
from benchmarks.workloads.idle import idle
from benchmarks.workloads.java import java
from benchmarks.workloads.latency import latency
from benchmarks.workloads.rdkafka import rdkafka
from benchmarks.workloads.requests import empty_fetch, list_offsets, metadata, offset_commit, producers, small
from benchmarks.workloads.start import start
from benchmarks.workloads.throughput import catch_up, tail, throughput

__all__ = ["LOWER_IS_BETTER", "PRODUCER", "QUICK", "WORKLOADS", "Figures", "Workload", "create_topic"]

# Apache Kafka writes 8 to 20 MB/s into so many partitions.
_FEWER_BYTES: Final = 300_000_000

WORKLOADS: Final[dict[str, Workload]] = {
    "100 B": throughput(100),
    "1 KB": throughput(1_000),
    "10 KB": throughput(10_000),
    "1 KB, acks=all": throughput(1_000, acks="all"),
    "1 KB, lz4": throughput(1_000, extra=("compression.codec=lz4",)),
    "1 KB, zstd": throughput(1_000, extra=("compression.codec=zstd",)),
    "Java, 100 B": java(100),
    "Java, 1 KB": java(1_000),
    "Java, 10 KB": java(10_000),
    "rdkafka_performance, 100 B": rdkafka(100, recycles=True),
    "rdkafka_performance, 1 KB": rdkafka(1_000, recycles=True),
    "rdkafka_performance, 10 KB": rdkafka(10_000, recycles=True),
    "rdkafka_performance, 100 B, any memory": rdkafka(100, recycles=False),
    "rdkafka_performance, 1 KB, any memory": rdkafka(1_000, recycles=False),
    "rdkafka_performance, 10 KB, any memory": rdkafka(10_000, recycles=False),
    "1 KB, 1 partition": throughput(1_000, partitions=1),
    "1 KB, 100 partitions": throughput(1_000, partitions=100),
    "1 KB, 1,000 partitions": throughput(1_000, partitions=1_000),
    "1 KB, 5,000 partitions": throughput(1_000, partitions=5_000, total_bytes=_FEWER_BYTES),
    "1 KB, 10,000 partitions": throughput(1_000, partitions=10_000, total_bytes=_FEWER_BYTES),
    "1 KB, 1,000 partitions, flush.messages=1": throughput(1_000, partitions=1_000, config={"flush.messages": "1"}),
    "1 KB, read while written": tail(1_000),
    "1 KB, read after a restart": catch_up(1_000),
    "1 connection": producers(1),
    "10 connections": producers(10),
    "100 connections": producers(100),
    "1,000 connections": producers(1_000),
    "latency at 200/s": latency(200),
    "latency at 1,000/s": latency(1_000),
    "latency at 1,000/s, a core each": latency(1_000, pinned=True),
    "latency at 5,000/s": latency(5_000),
    "Metadata": small(metadata),
    "ListOffsets": small(list_offsets),
    "OffsetCommit": small(offset_commit),
    "empty Fetch": small(empty_fetch),
    "start": start(),
    "idle, 1,000 connections, 10,000 partitions": idle(1_000, 10_000),
}
QUICK: Final = ("100 B", "1 KB", "10 KB", "latency at 1,000/s")
