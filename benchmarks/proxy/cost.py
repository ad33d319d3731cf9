"""What the proxy costs: `python -m benchmarks.proxy.cost [--broker ottla|kafka] [--pairs 3] [--records 300000]`.

One broker, and `ottla proxy` in front of it. Records of 1 KB are written and read directly and through the proxy in
turn, the other way first in every second pair, each time followed by 8 s of 1,000 records a second, for their latency.
Printed are the medians, the proxy's CPU seconds for each GB that it forwards, and its memory with 100 connections.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from benchmarks import librdkafka
from benchmarks.measuring.brokers import BROKERS
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import PRODUCER, create_topic, unique
from compat_tests.brokers.process import BrokerProcess
from compat_tests.brokers.proxied import start_proxy
from compat_tests.wire.wire import Wire
from ottla.kproto.messages.topics.metadata import MetadataRequest

_SIZE_BYTES = 1_000
_PARTITIONS = 4
_RATE_PER_S = 1_000
_SECONDS = 8
_CONNECTIONS = 100

Figures = dict[str, float]


def throughput(bootstrap: str, admin: BrokerProcess, records: int, proxy_pid: int) -> Figures:
    """Write, then read all of it."""
    topic = unique("proxy")
    create_topic(admin, topic, _PARTITIONS)
    gigabytes = records * _SIZE_BYTES / 1e9
    where = (bootstrap, topic, _PARTITIONS, records)
    before = cost(proxy_pid).cpu_s
    produced = librdkafka.run("produce", *where, _SIZE_BYTES, "acks=1", *PRODUCER)
    between = cost(proxy_pid).cpu_s
    consumed = librdkafka.run("consume", *where)
    return {
        "produce_mb_per_s": gigabytes * 1e3 / produced["seconds"],
        "consume_mb_per_s": gigabytes * 1e3 / consumed["seconds"],
        "proxy_produce_cpu_s_per_gb": (between - before) / gigabytes,
        "proxy_consume_cpu_s_per_gb": (cost(proxy_pid).cpu_s - between) / gigabytes,
    }


def latency(bootstrap: str, admin: BrokerProcess) -> Figures:
    """From a record's sending to its acknowledgement, and to its arrival at a consumer."""
    topic = unique("proxy-latency")
    create_topic(admin, topic, 1)
    measured = librdkafka.run("latency", bootstrap, topic, _RATE_PER_S, _SECONDS, 100, "acks=1", "linger.ms=0")
    names = ("acknowledgement", "end_to_end")
    return {f"{name}_{part}_ms": measured[f"{name}_ms"][part] for name in names for part in ("p50", "p99")}


def resident_mb(bootstrap: str, pid: int) -> float:
    """The proxy's memory with this many connections, each of which has asked for something."""
    wires = [Wire(bootstrap) for _ in range(_CONNECTIONS)]
    for wire in wires:
        wire.call(MetadataRequest(topics=[]), 12)
    found = cost(pid).resident_mb
    for wire in wires:
        wire.close()
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.proxy.cost", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000)
    asked = parser.parse_args()
    librdkafka.build()
    found: dict[str, dict[str, list[float]]] = {"direct": defaultdict(list), "proxy": defaultdict(list)}
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        BROKERS[asked.broker](Path(folder) / "b") as broker,
    ):
        proxy, port = start_proxy(broker.bootstrap, Path(folder) / "proxy.log")
        try:
            ways = {"direct": broker.bootstrap, "proxy": f"127.0.0.1:{port}"}
            for way in ways:  # warm up
                throughput(ways[way], broker, asked.records, proxy.pid)
            for pair in range(asked.pairs):
                for way in ways if pair % 2 == 0 else reversed(ways):
                    figures = throughput(ways[way], broker, asked.records, proxy.pid) | latency(ways[way], broker)
                    for name, value in figures.items():
                        found[way][name].append(value)
                    print(f"{pair + 1}/{asked.pairs} {way}: {figures}", file=sys.stderr, flush=True)
            print(f"| 1 KB, in front of {asked.broker} | direct | proxy |\n|---|---:|---:|")
            for name in found["direct"]:
                direct, through = (statistics.median(found[way][name]) for way in ways)
                print(f"| {name} | {direct:.2f} | {through:.2f} |")
            print(f"| resident_mb, {_CONNECTIONS} connections | | {resident_mb(ways['proxy'], proxy.pid):.1f} |")
        finally:
            proxy.terminate()
            proxy.wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(str(error.stderr))
