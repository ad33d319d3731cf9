"""The workloads: each runs against one broker and returns its figures by name.

A figure's name carries its unit, and its direction is told by `LOWER_IS_BETTER`. Records are spread over the partitions
sixteen at a time; payloads are random letters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from benchmarks import librdkafka
from benchmarks.process_cost import cost
from compat_tests.process import BrokerProcess

Figures = dict[str, float]
Workload = Callable[[BrokerProcess], Figures]

LOWER_IS_BETTER: Final = ("_ms", "cpu_s_per_gb", "_mb", "open_files")
PRODUCER: Final = ("linger.ms=5", "batch.size=1000000")
BYTES_PER_RUN: Final = 600_000_000


def create_topic(broker: BrokerProcess, name: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    topic = NewTopic(name, partitions, 1, config=dict(config or {}))
    for created in admin.create_topics([topic], request_timeout=120).values():
        created.result()
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        described = admin.list_topics(name, timeout=30).topics[name]
        if len(described.partitions) == partitions and all(p.leader >= 0 for p in described.partitions.values()):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{name} has no leaders")


def throughput(
    size_bytes: int,
    *,
    partitions: int = 4,
    acks: str = "1",
    extra: tuple[str, ...] = (),
    config: Mapping[str, str] | None = None,
) -> Workload:
    """Produce as fast as the broker takes it, then read all of it from the beginning."""

    def run(broker: BrokerProcess) -> Figures:
        count = min(4_000_000, BYTES_PER_RUN // size_bytes)
        topic = f"throughput-{size_bytes}-{partitions}-{time.monotonic_ns()}"
        create_topic(broker, topic, partitions, config)
        before = cost(broker.pid)
        produced = librdkafka.run(
            "produce", broker.bootstrap, topic, partitions, count, size_bytes, f"acks={acks}", *PRODUCER, *extra
        )
        between = cost(broker.pid)
        consumed = librdkafka.run("consume", broker.bootstrap, topic, partitions, count)
        after = cost(broker.pid)
        gigabytes = count * size_bytes / 1e9
        return {
            "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
            "produce_records_per_s": count / produced["seconds"],
            "produce_cpu_s_per_gb": (between.cpu_s - before.cpu_s) / gigabytes,
            "consume_mb_per_s": gigabytes * 1e3 / consumed["seconds"],
            "consume_records_per_s": count / consumed["seconds"],
            "consume_cpu_s_per_gb": (after.cpu_s - between.cpu_s) / gigabytes,
            "resident_mb": after.resident_mb,
            "open_files": after.open_files,
        }

    return run


def latency(rate_per_s: int, *, seconds: int = 8, size_bytes: int = 100) -> Workload:
    """Records at a steady rate, one partition, no linger: from send to acknowledgement, and to a tailing consumer."""

    def run(broker: BrokerProcess) -> Figures:
        topic = f"latency-{rate_per_s}-{time.monotonic_ns()}"
        create_topic(broker, topic, 1)
        measured = librdkafka.run(
            "latency", broker.bootstrap, topic, rate_per_s, seconds, size_bytes, "acks=1", "linger.ms=0"
        )
        return {
            f"{name}_{percentile}_ms": measured[f"{name}_ms"][percentile]
            for name in ("end_to_end", "acknowledgement")
            for percentile in ("p50", "p99", "p999")
        }

    return run


WORKLOADS: Final[dict[str, Workload]] = {
    "100 B": throughput(100),
    "1 KB": throughput(1_000),
    "10 KB": throughput(10_000),
    "1 KB, acks=all": throughput(1_000, acks="all"),
    "1 KB, lz4": throughput(1_000, extra=("compression.codec=lz4",)),
    "1 KB, zstd": throughput(1_000, extra=("compression.codec=zstd",)),
    "1 KB, 1 partition": throughput(1_000, partitions=1),
    "1 KB, 100 partitions": throughput(1_000, partitions=100),
    "1 KB, 1,000 partitions": throughput(1_000, partitions=1_000),
    "1 KB, 5,000 partitions": throughput(1_000, partitions=5_000),
    "1 KB, 1,000 partitions, flush.messages=1": throughput(1_000, partitions=1_000, config={"flush.messages": "1"}),
    "latency at 200/s": latency(200),
    "latency at 1,000/s": latency(1_000),
    "latency at 5,000/s": latency(5_000),
}
QUICK: Final = ("100 B", "1 KB", "10 KB", "latency at 1,000/s")
