"""The tools that Apache Kafka measures itself by, as clients of either broker."""

from __future__ import annotations

from typing import Final

from benchmarks.measuring import java_tools
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import (
    Figures,
    Workload,
    create_topic,
    records_per_run,
    recycled_memory,
    unique,
    warm_up,
)
from compat_tests.brokers.process import BrokerProcess

_PROPERTIES: Final = ("acks=1", "linger.ms=5", "batch.size=100000")


def java(size_bytes: int, *, partitions: int = 4) -> Workload:
    """Produce as fast as the broker takes it, then read all of it from the beginning; each tool is a fresh JVM."""

    def run(broker: BrokerProcess) -> Figures:
        count = records_per_run(size_bytes)
        topic = unique(f"java-{size_bytes}")
        with recycled_memory(broker):
            warm_up(broker, size_bytes)
            create_topic(broker, topic, partitions)
        before = cost(broker.pid)
        produced = java_tools.produce(broker.bootstrap, topic, count, size_bytes, *_PROPERTIES)
        between = cost(broker.pid)
        consumed = java_tools.consume(broker.bootstrap, topic, count)
        after = cost(broker.pid)
        gigabytes = count * size_bytes / 1e9
        return {
            "produce_mb_per_s": produced["records_per_s"] * size_bytes / 1e6,
            "produce_records_per_s": produced["records_per_s"],
            "produce_cpu_s_per_gb": (between.cpu_s - before.cpu_s) / gigabytes,
            "acknowledgement_p50_ms": produced["p50_ms"],
            "acknowledgement_p99_ms": produced["p99_ms"],
            "consume_mb_per_s": consumed["records_per_s"] * size_bytes / 1e6,
            "consume_records_per_s": consumed["records_per_s"],
            "consume_cpu_s_per_gb": (after.cpu_s - between.cpu_s) / gigabytes,
            "resident_mb": after.resident_mb,
            "peak_mb": after.peak_mb,
        }

    return run
