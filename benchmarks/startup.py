"""How long a broker takes from process start to its first answered Metadata request, and what it holds when idle.

    python benchmarks/startup.py [--runs 20] [--json]

Each run starts `ottla serve --port 0` on a new data folder, connects when the ready line has come, asks for Metadata,
and reads the resident memory from /proc after a moment of idleness. Wall time, medians.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from ottla.client.connection import BrokerConnection
from ottla.kproto.messages.topics.metadata import MetadataRequest

IDLE_SECONDS = 0.5


def measure() -> tuple[float, float, float]:
    """One run: seconds to the ready line, seconds to the answer, resident MB when idle."""
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
            connection.close()
            time.sleep(IDLE_SECONDS)
            resident_mb = resident_kib(process.pid) / 1024
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
        assert process.returncode == 0, f"the broker ended with {process.returncode}"
    return ready_seconds, answered_seconds, resident_mb


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
    measure()  # warms the page cache and compiles the modules
    runs = [measure() for _ in range(arguments.runs)]
    ready, answered, resident = (statistics.median(column) for column in zip(*runs, strict=True))
    if arguments.json:
        print(json.dumps({"ready_s": ready, "answered_s": answered, "idle_resident_mb": resident, "runs": len(runs)}))
        return
    print(f"process start to ready line      {ready * 1000:6.0f} ms")
    print(f"process start to first Metadata  {answered * 1000:6.0f} ms")
    print(f"resident when idle               {resident:6.1f} MB")


if __name__ == "__main__":
    main()
