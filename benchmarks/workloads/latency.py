"""Records at a steady rate: from send to acknowledgement, and to a consumer that waits for them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from benchmarks import librdkafka
from benchmarks.workloads.base import Figures, Workload, create_topic, unique
from compat_tests.brokers.process import BrokerProcess

_WARM_UP = (5_000, 3)


def latency(rate_per_s: int, *, seconds: int = 8, size_bytes: int = 100, pinned: bool = False) -> Workload:
    """One partition, no linger. A run before it, which is not counted, warms the broker: a JVM needs that.

    With `pinned`, broker and client have a core each, so that neither waits for the other's.
    """

    def run(broker: BrokerProcess) -> Figures:
        with _a_core_each(broker.pid) if pinned else nullcontext():
            for rate, length in (_WARM_UP, (rate_per_s, seconds)):
                topic = unique(f"latency-{rate}")
                create_topic(broker, topic, 1)
                measured = librdkafka.run(
                    "latency", broker.bootstrap, topic, rate, length, size_bytes, "acks=1", "linger.ms=0"
                )
        return {
            f"{name}_{percentile}_ms": measured[f"{name}_ms"][percentile]
            for name in ("end_to_end", "acknowledgement")
            for percentile in ("p50", "p99", "p999")
        }

    return run


@contextmanager
def _a_core_each(pid: int) -> Iterator[None]:
    """A core for the process with all its threads, and another one for this process and what it starts meanwhile."""
    cores = os.sched_getaffinity(0)
    first, second, *_ = sorted(cores)
    for thread in Path(f"/proc/{pid}/task").iterdir():
        os.sched_setaffinity(int(thread.name), {first})
    os.sched_setaffinity(0, {second})
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
