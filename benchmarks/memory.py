"""Memory under load: much is produced and then consumed, and the broker's resident set is watched.

    python -m benchmarks.memory [--gigabytes 10] [--partitions 4] [--bytes 1000] [--broker ottla|kafka|both]

The peak is the kernel's own (VmHWM), after the produce and after the consume; `resident_mb` is what is held at the end.
One topic is filled and read by the load generator, in one run each.
"""

from __future__ import annotations

import argparse
import json

from benchmarks import librdkafka
from benchmarks.measuring.brokers import fresh
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads import PRODUCER, create_topic
from compat_tests.brokers.process import BrokerProcess

TOPIC = "memory"


def measure(broker: BrokerProcess, gigabytes: float, partitions: int, size_bytes: int) -> dict[str, float]:
    """Produce and consume; returns the memory of the broker's process in MB (10^6 bytes)."""
    count = int(gigabytes * 1e9 / size_bytes)
    idle = cost(broker.pid)
    create_topic(broker, TOPIC, partitions)
    produced = librdkafka.run("produce", broker.bootstrap, TOPIC, partitions, count, size_bytes, "acks=1", *PRODUCER)
    after_produce = cost(broker.pid)
    consumed = librdkafka.run("consume", broker.bootstrap, TOPIC, partitions, count)
    after_consume = cost(broker.pid)
    return {
        "idle_mb": idle.resident_mb,
        "produce_peak_mb": after_produce.peak_mb,
        "consume_peak_mb": after_consume.peak_mb,
        "resident_mb": after_consume.resident_mb,
        "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
        "consume_mb_per_s": gigabytes * 1e3 / consumed["seconds"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=10)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--bytes", type=int, default=1_000, help="the size of a record")
    parser.add_argument("--broker", choices=("ottla", "kafka", "both"), default="both")
    parser.add_argument("--folder", help="where the data goes (default: the system's temporary folder)")
    arguments = parser.parse_args()
    librdkafka.build()
    for kind in ("ottla", "kafka") if arguments.broker == "both" else (arguments.broker,):
        with fresh(kind, arguments.folder) as broker:
            measured = measure(broker, arguments.gigabytes, arguments.partitions, arguments.bytes)
        print(json.dumps({kind: {name: round(value, 1) for name, value in measured.items()}}), flush=True)


if __name__ == "__main__":
    main()
