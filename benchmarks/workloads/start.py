"""How long a broker takes to answer, and what it holds before anybody has asked for much."""

from __future__ import annotations

import statistics
import time
from contextlib import closing
from typing import Final

from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import Figures, Workload
from compat_tests.brokers.process import BrokerProcess
from ottla.client.addresses import parse_address
from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.topics.metadata import MetadataRequest

_STARTS: Final = 3
_SETTLE_S: Final = 2


def start() -> Workload:
    """From the start of the process to the first answered Metadata, on a folder without topics; medians of starts."""

    def run(broker: BrokerProcess) -> Figures:
        answered_ms = []
        for _ in range(_STARTS):
            broker.stop()
            began = time.perf_counter()
            broker.start()
            with closing(BrokerConnection(*parse_address(broker.bootstrap), 60)) as connection:
                connection.call(MetadataRequest(topics=[]))
            answered_ms.append((time.perf_counter() - began) * 1e3)
        time.sleep(_SETTLE_S)
        idle = cost(broker.pid)
        return {
            "first_answer_ms": statistics.median(answered_ms),
            "resident_mb": idle.resident_mb,
            "open_files": idle.open_files,
        }

    return run
