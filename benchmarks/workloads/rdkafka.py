"""librdkafka's own load generator, as a client of either broker."""

from __future__ import annotations

from contextlib import nullcontext

from benchmarks import rdkafka_performance
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import Figures, Workload, create_topic, records_per_run, recycled_memory, unique
from compat_tests.brokers.process import BrokerProcess

_PARTITIONS = 4
_WARM_UP_BYTES = 400_000_000


def rdkafka(size_bytes: int, *, recycles: bool) -> Workload:
    """Produce as fast as the broker takes it, then read all of it from the beginning.

    `recycles` says whether what is written goes into memory that was in use a moment ago (`recycled_memory`), or into
    whatever the machine has, as for a user.
    """

    def run(broker: BrokerProcess) -> Figures:
        count = records_per_run(size_bytes)
        with recycled_memory(broker) if recycles else nullcontext():
            _load(broker, records_per_run(size_bytes, _WARM_UP_BYTES), size_bytes)
        return _load(broker, count, size_bytes)

    return run


def _load(broker: BrokerProcess, count: int, size_bytes: int) -> Figures:
    topic = unique(f"rdkafka-{size_bytes}")
    create_topic(broker, topic, _PARTITIONS)
    gigabytes = count * size_bytes / 1e9
    before = cost(broker.pid)
    produce_s = rdkafka_performance.produce(broker.bootstrap, topic, count, size_bytes)
    between = cost(broker.pid)
    consume_s = rdkafka_performance.consume(broker.bootstrap, topic, _PARTITIONS, count)
    after = cost(broker.pid)
    return {
        "produce_mb_per_s": gigabytes * 1e3 / produce_s,
        "produce_records_per_s": count / produce_s,
        "produce_cpu_s_per_gb": (between.cpu_s - before.cpu_s) / gigabytes,
        "consume_mb_per_s": gigabytes * 1e3 / consume_s,
        "consume_records_per_s": count / consume_s,
        "consume_cpu_s_per_gb": (after.cpu_s - between.cpu_s) / gigabytes,
        "resident_mb": after.resident_mb,
        "peak_mb": after.peak_mb,
    }
