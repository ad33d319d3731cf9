"""How long a broker takes from process start to its first answered Metadata request, and what it holds when idle.

    python -m benchmarks.startup [--runs 20] [--json]

Each run starts `ottla serve --port 0` on a new data folder, connects when the ready line has come, asks for Metadata,
and reads the resident memory from /proc after a moment of idleness. Wall time, and the CPU of the process until the
answer, medians; in turn with them the CPU of `python -c "import trio"`, which no start can be below.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.measuring.process_cost import threads_cpu_s
from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.topics.metadata import MetadataRequest

IDLE_SECONDS = 0.5


def measure() -> tuple[float, float, float, float, float]:
    """One run: seconds to the ready line, seconds to the answer, its CPU, that of importing Trio, and resident MB when
    idle.
    """
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla.cli", "serve", "--port", "0", "--data-dir", folder],
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready: dict[str, Any] = json.loads(process.stdout.readline())
            ready_seconds = time.perf_counter() - started
            connection = BrokerConnection(ready["host"], ready["port"], 10)
            connection.call(MetadataRequest(topics=[]))
            answered_seconds = time.perf_counter() - started
            cpu_seconds = threads_cpu_s(process.pid)
            connection.close()
            time.sleep(IDLE_SECONDS)
            resident_mb = resident_kib(process.pid) / 1024
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        assert process.returncode == 0, f"the broker ended with {process.returncode}"
    return ready_seconds, answered_seconds, cpu_seconds, importing_trio(), resident_mb


def importing_trio() -> float:
    """CPU seconds of a process that does nothing else."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "import trio"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def resident_kib(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    raise AssertionError("no VmRSS in /proc")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    measure()  # warms the page cache and compiles the modules
    runs = [measure() for _ in range(arguments.runs)]
    ready, answered, cpu, trio, resident = (statistics.median(column) for column in zip(*runs, strict=True))
    if arguments.json:
        figures = {"ready_s": ready, "answered_s": answered, "cpu_s": cpu, "trio_cpu_s": trio}
        print(json.dumps(figures | {"idle_resident_mb": resident, "runs": len(runs)}))
        return
    print(f"process start to ready line      {ready * 1000:6.0f} ms")
    print(f"process start to first Metadata  {answered * 1000:6.0f} ms")
    print(f"CPU until then                   {cpu * 1000:6.0f} ms")
    print(f"CPU of importing Trio            {trio * 1000:6.0f} ms")
    print(f"resident when idle               {resident:6.1f} MB")


if __name__ == "__main__":
    main()
