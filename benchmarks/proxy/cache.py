"""What the proxy's cache gives: `python -m benchmarks.proxy.cache [--broker ottla|kafka] [--readers 10] [--records N]`.

Records of 1 KB are read directly from a broker, and then by one reader after the other through `ottla proxy --cache`.
Printed are the speeds, the CPU that it takes, and how many bytes of Fetch answers the proxy has had from the broker.
"""

from __future__ import annotations

import argparse
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

from benchmarks import librdkafka
from benchmarks.measuring.brokers import BROKERS
from benchmarks.measuring.process_cost import cost
from benchmarks.workloads.base import PRODUCER, create_topic, unique
from compat_tests.brokers.proxied import start_proxy

_SIZE_BYTES = 1_000
_PARTITIONS = 4


def fetched_bytes(http: str) -> float:
    """The bytes of Fetch answers that upstream has sent."""
    with urllib.request.urlopen(f"http://{http}/metrics", timeout=10) as answer:
        found = re.search(
            r'^ottla_proxy_response_bytes_total\{api="Fetch"\} (\S+)$', answer.read().decode(), re.MULTILINE
        )
    return 0.0 if found is None else float(found[1])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.proxy.cache", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--broker", choices=BROKERS, default="ottla")
    parser.add_argument("--readers", type=int, default=10)
    parser.add_argument("--records", type=int, default=500_000)
    asked = parser.parse_args()
    librdkafka.build()
    gigabytes = asked.records * _SIZE_BYTES / 1e9
    with (
        tempfile.TemporaryDirectory(prefix="ottla-bench-") as folder,
        BROKERS[asked.broker](Path(folder) / "b") as broker,
    ):
        topic = unique("cached")
        create_topic(broker, topic, _PARTITIONS)
        where = (topic, _PARTITIONS, asked.records)
        librdkafka.run("produce", broker.bootstrap, *where, _SIZE_BYTES, "acks=1", *PRODUCER)
        with socket.create_server(("127.0.0.1", 0)) as taken:
            http = f"127.0.0.1:{taken.getsockname()[1]}"
        flags = ("--cache", "10GiB", "--cache-dir", folder, "--http", http)
        proxy, port = start_proxy(broker.bootstrap, Path(folder) / "proxy.log", 0, *flags)
        try:

            def read(bootstrap: str, pid: int) -> tuple[float, float]:
                before = cost(pid).cpu_s
                seconds = librdkafka.run("consume", bootstrap, *where)["seconds"]
                return gigabytes * 1e3 / seconds, (cost(pid).cpu_s - before) / gigabytes

            direct = [read(broker.bootstrap, broker.pid) for _ in range(3)]
            first = read(f"127.0.0.1:{port}", proxy.pid)
            once = fetched_bytes(http)
            others = [read(f"127.0.0.1:{port}", proxy.pid) for _ in range(asked.readers - 1)]
            again = fetched_bytes(http) - once
            print(f"| 1 KB, {asked.broker} | MB/s | CPU s/GB |\n|---|---:|---:|")
            for name, runs in (
                ("direct (the broker's CPU)", direct),
                ("first reader", [first]),
                ("later readers", others),
            ):
                speed, cpu = (statistics.median(column) for column in zip(*runs, strict=True))
                print(f"| {name} | {speed:.0f} | {cpu:.2f} |")
            print(f"| fetched for the first reader | {once / 1e6:.1f} MB | |")
            print(f"| fetched for {len(others)} more | {again / 1e6:.3f} MB | |")
        finally:
            proxy.terminate()
            proxy.wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except subprocess.CalledProcessError as error:
        sys.exit(str(error.stderr))
