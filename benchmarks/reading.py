"""What reading costs a broker: the CPU for a GB that consumers read again and again from the page cache.

    python -m benchmarks.reading [--rounds 9] [--sizes 1000 10000] [--mb 400] [--kafka]
                                 [--client franz-go] [--broker PROGRAM] [--against PROGRAM]

Each broker has a topic of four partitions for each size of records, written by librdkafka. A round reads all of it once
from each broker, in an order by chance, by librdkafka or by `--client`; the first round does not count. Figures are the
CPU time of the whole process, in s/GB, as medians. The ratios are those of the first broker to each other one: the
median of the rounds' ratios, and that of the sums. `--broker` names the `ottla` of another checkout, `--against` one
more to compare with, `--kafka` adds Apache Kafka. The speed is shown as well, but clients and brokers share the
machine.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections import defaultdict
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

from benchmarks import franz_go, librdkafka
from benchmarks.echoes import Broker
from benchmarks.measuring.brokers import BROKERS
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import PRODUCER, create_topic, warm_up
from compat_tests.brokers.process import BrokerProcess

_PARTITIONS: Final = 4


Consume = Callable[[str, str, int, int], dict[str, Any]]
"""Reads so many records, the last argument, of a topic with so many partitions; says how many seconds that took."""


def _by_librdkafka(bootstrap: str, topic: str, partitions: int, count: int) -> dict[str, Any]:
    return librdkafka.run("consume", bootstrap, topic, partitions, count)


CLIENTS: Final[dict[str, Consume]] = {"librdkafka": _by_librdkafka, "franz-go": franz_go.consume}


class Read(NamedTuple):
    """One topic read to its end."""

    cpu_s_per_gb: float
    mb_per_s: float


def fill(broker: BrokerProcess, size_bytes: int, count: int) -> str:
    """Write a topic of such records, and return its name."""
    topic = f"reading-{size_bytes}"
    create_topic(broker, topic, _PARTITIONS)
    librdkafka.run("produce", broker.bootstrap, topic, _PARTITIONS, count, size_bytes, "acks=1", *PRODUCER)
    return topic


def read(broker: BrokerProcess, consume: Consume, topic: str, size_bytes: int, count: int) -> Read:
    """Read the topic once."""
    before = cost(broker.pid).cpu_s
    seconds = consume(broker.bootstrap, topic, _PARTITIONS, count)["seconds"]
    gigabytes = count * size_bytes / 1e9
    return Read((cost(broker.pid).cpu_s - before) / gigabytes, gigabytes * 1e3 / seconds)


def measure(brokers: dict[str, BrokerProcess], consume: Consume, size_bytes: int, total_mb: int, rounds: int) -> str:
    """The row of one size of records."""
    count = total_mb * 1_000_000 // size_bytes
    topics = {name: fill(broker, size_bytes, count) for name, broker in brokers.items()}
    reads: defaultdict[str, list[Read]] = defaultdict(list)
    for _ in range(rounds + 1):
        for name in random.sample(list(brokers), len(brokers)):
            reads[name].append(read(brokers[name], consume, topics[name], size_bytes, count))
    costs = {name: [each.cpu_s_per_gb for each in reads[name][1:]] for name in brokers}
    cells = [
        f"{median(costs[name]):.2f} | {median(each.mb_per_s for each in reads[name][1:]):,.0f}" for name in brokers
    ]
    first, *others = costs.values()
    for other in others:
        of_pairs = median(one / two for one, two in zip(first, other, strict=True))
        cells.append(f"{of_pairs:.2f}; {sum(first) / sum(other):.2f}")
    return f"| {size_bytes:,} B | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000, 10_000], help="of records, in bytes")
    parser.add_argument("--mb", type=int, default=400, help="how much each broker has of each size")
    parser.add_argument("--client", choices=CLIENTS, default="librdkafka", help="what reads")
    parser.add_argument("--broker", help="the program `ottla` of another checkout")
    parser.add_argument("--against", help="the program `ottla` of a checkout to compare with")
    parser.add_argument("--kafka", action="store_true", help="compare with Apache Kafka")
    arguments = parser.parse_args()
    with ExitStack() as stack:

        def folder() -> Path:
            return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="ottla-bench-")))

        brokers: dict[str, BrokerProcess] = {"broker": stack.enter_context(Broker(folder(), arguments.broker))}
        if arguments.against:
            brokers["against"] = stack.enter_context(Broker(folder(), arguments.against))
        if arguments.kafka:
            brokers["Apache Kafka"] = stack.enter_context(BROKERS["kafka"](folder()))
        for broker in brokers.values():
            warm_up(broker, max(arguments.sizes))
        others = [f"to {name}: of the pairs; of the sums" for name in list(brokers)[1:]]
        print("| records | " + " | ".join([*(f"{name}, s/GB | MB/s" for name in brokers), *others]) + " |")
        print("|---" + "|---:" * (2 * len(brokers) + len(others)) + "|")
        for size_bytes in arguments.sizes:
            print(measure(brokers, CLIENTS[arguments.client], size_bytes, arguments.mb, arguments.rounds), flush=True)


if __name__ == "__main__":
    main()
