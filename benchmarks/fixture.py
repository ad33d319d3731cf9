"""What the broker of tests costs: its start, a reset, a test.

    python -m benchmarks.fixture [--runs 20] [--workers 8] [--json FILE]

Starts are measured in fresh processes, resets in one broker, tests by running pytest on a hundred of them with and
without the fixture, and a suite of a hundred by its whole run, from the start of the interpreter to its end, by itself
and with so many workers of pytest-xdist. Each of its tests fails if it finds anything of another one. Wall time: the
median and the lowest, which says more where the machine is busy with other things.
`resident` is how much more the process holds than before it imported anything of Ottla.
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

_TEST = """
import json
import time

import pytest

stamps = []


@pytest.mark.parametrize("number", range({count}))
def test_one({fixture}number):
    {body}
    stamps.append(time.perf_counter())
    if number == {count} - 1:
        print(json.dumps((stamps[-1] - stamps[0]) / ({count} - 1) * 1000))
"""

_SUITE = """
import pytest


@pytest.mark.parametrize("number", range({count}))
def test_an_order_is_billed(ottla_broker, number):
    assert ottla_broker.topics() == {{}}
    assert ottla_broker.groups() == {{}}
    ottla_broker.create_topic("orders", partitions=3)
    ottla_broker.produce("orders", number, key="ann")
    assert [record.json() for record in ottla_broker.wait_for("orders")] == [number]
"""

_BODIES = {
    "with": ("ottla_broker, ", "ottla_broker.produce('t', number); assert len(ottla_broker.records('t')) == 1"),
    "without": ("", "assert number >= 0"),
}


def starts(runs: int) -> dict[str, list[float]]:
    """The first start in a process, with the imports that it needs."""
    figures = [json.loads(_python("-c", _START)) for _ in range(runs)]
    return {name: [figure[name] for figure in figures] for name in figures[0]}


def warm_starts(runs: int) -> list[float]:
    """Another broker in a process that had one, in ms."""
    milliseconds = []
    for _ in range(runs + 1):
        broker = Broker()
        began = time.perf_counter()
        broker.start()
        milliseconds.append((time.perf_counter() - began) * 1000)
        broker.close()
    return milliseconds[1:]


def resets(runs: int) -> dict[str, list[float]]:
    """A reset of a broker with topics of this many partitions, with a hundred records in each topic, in ms."""
    shapes = {"1 topic": (1, 1), "5 topics of 3 partitions": (5, 3), "1 topic of 50 partitions": (1, 50)}
    with Broker() as broker:
        return {name: [_reset(broker, *shape) for _ in range(runs)] for name, shape in shapes.items()}


def _reset(broker: Broker, topics: int, partitions: int) -> float:
    for number in range(topics):
        broker.create_topic(f"t{number}", partitions)
        broker.produce(f"t{number}", *range(100))
    began = time.perf_counter()
    broker.reset()
    return (time.perf_counter() - began) * 1000


def overhead(runs: int) -> dict[str, list[float]]:
    """What a test costs that produces a record and reads it, and what a test without a broker costs, in ms."""
    with tempfile.TemporaryDirectory() as folder:
        return {name: [_per_test(folder, *_BODIES[name]) for _ in range(runs)] for name in _BODIES}


def suites(runs: int, workers: int) -> dict[str, list[float]]:
    """Whole runs of pytest on the suite, in ms: by itself and with workers. Raises if one of its tests fails."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_it.py").write_text(_SUITE.format(count=TESTS))
        alone = [_whole_run(folder) for _ in range(runs)]
        parallel = [_whole_run(folder, "-p", "xdist", "-n", str(workers)) for _ in range(runs)]
    return {f"a suite of {TESTS} tests": alone, f"the suite, {workers} workers": parallel}


def _whole_run(folder: str, *options: str) -> float:
    # Without the plugins that happen to be installed here, which take longer than all the rest.
    plugins = ("-p", "ottla.testing.pytest_plugin", "-p", "no:cacheprovider", *options)
    began = time.perf_counter()
    printed = _python("-m", "pytest", "-q", *plugins, "test_it.py", folder=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    milliseconds = (time.perf_counter() - began) * 1000
    if f"{TESTS} passed" not in printed:
        raise RuntimeError(printed)
    return milliseconds


def _per_test(folder: str, fixture: str, body: str) -> float:
    Path(folder, "test_it.py").write_text(_TEST.format(count=TESTS, fixture=fixture, body=body))
    printed = _python("-m", "pytest", "-qs", "-p", "no:cacheprovider", "test_it.py", folder=folder)
    return next(float(line.lstrip(".")) for line in printed.splitlines() if line.lstrip(".")[:1].isdigit())


def _python(*words: str, folder: str | None = None, **variables: str) -> str:
    environment = {
        **os.environ,
        **variables,
        "PYTHONPATH": os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    }
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fixture", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    start = starts(arguments.runs)
    rows = {
        "import, the first time in a process": start["import_ms"],
        "start": start["start_ms"],
        "the first record sent and read": start["first_use_ms"],
        "start of another broker": warm_starts(arguments.runs),
        **{f"reset, {shape}": milliseconds for shape, milliseconds in resets(arguments.runs).items()},
        **{f"a test {name} the fixture": each for name, each in overhead(max(1, arguments.runs // 5)).items()},
        **suites(max(1, arguments.runs // 5), arguments.workers),
    }
    print(f"{'ms':38}{'median':>8}{'lowest':>8}")
    for name, milliseconds in rows.items():
        print(f"{name:38}{statistics.median(milliseconds):8.1f}{min(milliseconds):8.1f}")
    print(f"resident: {statistics.median(start['resident_mb']):.1f} MB")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps({**rows, "resident_mb": start["resident_mb"]}, indent=2) + "\n")


if __name__ == "__main__":
    main()
