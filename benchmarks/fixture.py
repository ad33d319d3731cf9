"""What the broker of tests costs: its start, a reset, a test.

    python -m benchmarks.fixture [--runs 20] [--json FILE]

Starts are measured in fresh processes, resets in one broker, tests by running pytest on a hundred of them with and
without the fixture. Wall time, medians; `resident` is what the process holds more than before it imported anything of Ottla.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ottla.testing import Broker

TESTS = 100

_START = """
import json, time
from benchmarks.startup import resident_kib
import os
before_kib = resident_kib(os.getpid())
began = time.perf_counter()
from ottla.testing import Broker
imported = time.perf_counter()
broker = Broker()
broker.start()
started = time.perf_counter()
broker.produce("t", "x")
assert broker.records("t")
used = time.perf_counter()
print(json.dumps({
    "import_ms": (imported - began) * 1000,
    "start_ms": (started - imported) * 1000,
    "first_use_ms": (used - started) * 1000,
    "resident_mb": (resident_kib(os.getpid()) - before_kib) / 1024,
}))
broker.close()
"""

_WITH = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_one(ottla_broker, number):
    ottla_broker.produce("t", number)
    assert ottla_broker.records("t")[0].json() == number
"""

_WITHOUT = """
import pytest

@pytest.mark.parametrize("number", range({count}))
def test_one(number):
    assert number >= 0
"""


def starts(runs: int) -> dict[str, float]:
    """The first start in a process, with the imports that it needs."""
    figures = [json.loads(_python("-c", _START)) for _ in range(runs)]
    return {name: statistics.median(figure[name] for figure in figures) for name in figures[0]}


def warm_starts(runs: int) -> float:
    """Another broker in a process that had one, in ms."""

    def start_and_close() -> float:
        broker = Broker()
        began = time.perf_counter()
        broker.start()
        seconds = time.perf_counter() - began
        broker.close()
        return seconds

    start_and_close()
    return statistics.median(start_and_close() for _ in range(runs)) * 1000


def resets(runs: int) -> dict[str, float]:
    """A reset of a broker with topics of so many partitions, each with records, in ms."""
    shapes: dict[str, Callable[[Broker], None]] = {
        "1 topic": lambda broker: _fill(broker, 1, 1),
        "5 topics of 3 partitions": lambda broker: _fill(broker, 5, 3),
        "1 topic of 50 partitions": lambda broker: _fill(broker, 1, 50),
    }
    medians = {}
    with Broker() as broker:
        for name, fill in shapes.items():
            seconds = []
            for _ in range(runs):
                fill(broker)
                began = time.perf_counter()
                broker.reset()
                seconds.append(time.perf_counter() - began)
            medians[name] = statistics.median(seconds) * 1000
    return medians


def overhead(runs: int) -> dict[str, float]:
    """What a test costs that produces a record and reads it, and what one without a broker does, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        for name, code in (("with", _WITH), ("without", _WITHOUT)):
            for count in (1, TESTS + 1):
                Path(folder, f"test_{name}_{count}.py").write_text(code.format(count=count))
        return {name: _per_test(folder, name, runs) for name in ("with", "without")}


def _per_test(folder: str, name: str, runs: int) -> float:
    def seconds(count: int) -> float:
        began = time.perf_counter()
        _python("-m", "pytest", "-q", "-p", "no:cacheprovider", f"test_{name}_{count}.py", folder=folder)
        return time.perf_counter() - began

    return statistics.median((seconds(TESTS + 1) - seconds(1)) / TESTS * 1000 for _ in range(runs))


def _fill(broker: Broker, topics: int, partitions: int) -> None:
    for number in range(topics):
        broker.create_topic(f"t{number}", partitions)
        broker.produce(f"t{number}", *range(100))


def _python(*words: str, folder: str | None = None) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fixture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    start, warm_ms, reset_ms = starts(arguments.runs), warm_starts(arguments.runs), resets(arguments.runs)
    test_ms = overhead(max(1, arguments.runs // 5))
    if arguments.json is not None:
        figures = {"first_start": start, "warm_start_ms": warm_ms, "reset_ms": reset_ms, "test_ms": test_ms}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")
    print(f"import, the first time in a process  {start['import_ms']:7.1f} ms")
    print(f"start                                {start['start_ms']:7.1f} ms")
    print(f"the first record sent and read       {start['first_use_ms']:7.1f} ms")
    print(f"resident                             {start['resident_mb']:7.1f} MB")
    print(f"start of another broker              {warm_ms:7.1f} ms")
    for shape, median_ms in reset_ms.items():
        print(f"reset, {shape:30}{median_ms:7.1f} ms")
    for name, each_ms in test_ms.items():
        print(f"a test {name:7} the fixture           {each_ms:7.1f} ms")


if __name__ == "__main__":
    main()
