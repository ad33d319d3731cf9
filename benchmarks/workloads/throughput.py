"""Records as fast as they go: written and read, and read while they are written.

Records are spread over the partitions sixteen at a time; payloads are letters that compress to a
third (zstd) or two thirds (lz4).
"""

from __future__ import annotations

from collections.abc import Mapping

from benchmarks import librdkafka
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import (
    BYTES_PER_RUN,
    PRODUCER,
    Figures,
    Workload,
    create_topic,
    forget_cached,
    records_per_run,
    recycled_memory,
    unique,
    warm_up,
)
from compat_tests.brokers.process import BrokerProcess


def throughput(
    size_bytes: int,
    *,
    partitions: int = 4,
    acks: str = "1",
    extra: tuple[str, ...] = (),
    config: Mapping[str, str] | None = None,
    total_bytes: int = BYTES_PER_RUN,
) -> Workload:
    """Produce as fast as the broker takes it, then read all of it from the beginning."""

    def run(broker: BrokerProcess) -> Figures:
        count = records_per_run(size_bytes, total_bytes)
        topic = unique(f"throughput-{size_bytes}-{partitions}")
        with recycled_memory(broker):
            warm_up(broker, size_bytes)
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
            "peak_mb": after.peak_mb,
            "open_files": after.open_files,
        }

    return run


def tail(size_bytes: int, *, partitions: int = 4) -> Workload:
    """Produce as fast as the broker takes it while a consumer reads along."""

    def run(broker: BrokerProcess) -> Figures:
        count = records_per_run(size_bytes)
        topic = unique(f"tail-{size_bytes}")
        with recycled_memory(broker):
            warm_up(broker, size_bytes)
            create_topic(broker, topic, partitions)
        before = cost(broker.pid)
        consumer = librdkafka.start("consume", broker.bootstrap, topic, partitions, count)
        produced = librdkafka.run(
            "produce", broker.bootstrap, topic, partitions, count, size_bytes, "acks=1", *PRODUCER
        )
        consumed = librdkafka.result(consumer)
        after = cost(broker.pid)
        gigabytes = count * size_bytes / 1e9
        return {
            "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
            "consume_mb_per_s": gigabytes * 1e3 / consumed["seconds"],
            "both_cpu_s_per_gb": (after.cpu_s - before.cpu_s) / gigabytes,
        }

    return run


def catch_up(size_bytes: int, *, partitions: int = 4) -> Workload:
    """Read what was written before the broker's start: from the disk, then from the page cache.

    Writes of others come between, so that the new process is warm but has nothing of what is read.
    """

    def run(broker: BrokerProcess) -> Figures:
        count = records_per_run(size_bytes)
        topic = unique(f"catch-up-{size_bytes}")
        create_topic(broker, topic, partitions)
        librdkafka.run("produce", broker.bootstrap, topic, partitions, count, size_bytes, "acks=1", *PRODUCER)
        broker.stop()
        broker.start()
        warm_up(broker, size_bytes)
        forget_cached(broker.folder)
        gigabytes = count * size_bytes / 1e9
        figures: Figures = {}
        for cache in ("cold", "warm"):
            before = cost(broker.pid)
            consumed = librdkafka.run("consume", broker.bootstrap, topic, partitions, count)
            figures[f"{cache}_mb_per_s"] = gigabytes * 1e3 / consumed["seconds"]
            figures[f"{cache}_cpu_s_per_gb"] = (cost(broker.pid).cpu_s - before.cpu_s) / gigabytes
        return figures

    return run
