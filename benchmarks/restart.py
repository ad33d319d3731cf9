"""Time from a start after `kill -9` to the first answered fetch, with much data in many partitions.

    python -m benchmarks.restart [--gigabytes 12] [--partitions 7000] [--broker ottla|kafka|both]

The data is written by the load generator, the process killed, started again on the same folder, and asked at once for
the first record of one partition until it answers.
"""

from __future__ import annotations

import argparse
import json
import time

from benchmarks import librdkafka
from benchmarks.measuring.brokers import fresh
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads import PRODUCER, create_topic
from compat_tests.brokers.process import BrokerProcess

SIZE_BYTES = 1_000
TOPIC = "restart"


def measure(broker: BrokerProcess, gigabytes: float, partitions: int) -> dict[str, float]:
    """Fill, kill, start, fetch."""
    count = int(gigabytes * 1e9 / SIZE_BYTES)
    create_topic(broker, TOPIC, partitions)
    produced = librdkafka.run(
        "produce",
        broker.bootstrap,
        TOPIC,
        partitions,
        count,
        SIZE_BYTES,
        "acks=1",
        *PRODUCER,
    )
    loaded = cost(broker.pid)
    broker.kill()
    start = time.perf_counter()
    broker.start()
    ready_s = time.perf_counter() - start
    first = librdkafka.run("consume", broker.bootstrap, TOPIC, 1, 1)
    return {
        "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
        "ready_s": ready_s,
        "first_fetch_s": ready_s + first["seconds"],
        "resident_mb": loaded.resident_mb,
        "open_files": loaded.open_files,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=12)
    parser.add_argument("--partitions", type=int, default=7_000)
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    arguments = parser.parse_args()
    for kind in ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,):
        with fresh(kind) as broker:
            broker.start_timeout_s = 300
            measured = measure(broker, arguments.gigabytes, arguments.partitions)
        print(json.dumps({kind: measured}), flush=True)


if __name__ == "__main__":
    main()
