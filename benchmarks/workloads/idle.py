"""What a broker uses while nothing happens."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack

from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import Figures, Workload, create_topic, unique
from compat_tests.brokers.process import BrokerProcess

_SETTLE_S = 5
_SECONDS = 10


def idle(connections: int, partitions: int) -> Workload:
    """CPU and memory with connections that say nothing and partitions that nobody writes to."""

    def run(broker: BrokerProcess) -> Figures:
        host, _, port = broker.bootstrap.rpartition(":")
        create_topic(broker, unique("idle"), partitions)
        with ExitStack() as open_connections:
            for _ in range(connections):
                open_connections.enter_context(socket.create_connection((host, int(port)), timeout=30))
            time.sleep(_SETTLE_S)
            before = cost(broker.pid)
            time.sleep(_SECONDS)
            after = cost(broker.pid)
        return {
            "idle_cpu_percent": (after.cpu_s - before.cpu_s) / _SECONDS * 100,
            "resident_mb": after.resident_mb,
            "open_files": after.open_files - connections,
        }

    return run
