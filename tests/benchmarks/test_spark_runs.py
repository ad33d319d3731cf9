"""What the benchmarks of Spark say: whose CPU time counts, and the table."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks.measuring.process_cost import TreeWatch, tree_cpu_s
from benchmarks.reporting import report
from benchmarks.spark import runs as spark_runs
from benchmarks.spark.runs import Layout, Run

BUSY_S = 0.1
WORK = f"import time\nend = time.process_time() + {BUSY_S}\nwhile time.process_time() < end: pass\n"
# Like Spark's daemon it does not wait for its children.
FORGETFUL = f"""
import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
read, write = os.pipe()
for line in sys.stdin:
    if line == "work\\n":
        child = os.fork()
        if child == 0:
            {WORK.replace(chr(10), chr(10) + " " * 12).rstrip()}
            os.write(write, b"x")
            signal.pause()
        os.read(read, 1)
    else:
        os.kill(child, signal.SIGKILL)
        try:
            os.wait()
        except ChildProcessError:
            pass
    print("done", flush=True)
"""
LAYOUT = Layout({"ours": "`ottla`", "theirs": "connector"}, {"`ottla` / connector": ("ours", "theirs")})
FOUND = {"100 B": {"ours": [Run(2e6, 1.0), Run(9e6, 9.0), Run(3e6, 2.0)], "theirs": [Run(1e6, 5.0)] * 3}}


@contextmanager
def worker() -> Iterator[subprocess.Popen[str]]:
    """A process that has worked, and then waits."""
    command = [sys.executable, "-c", f"{WORK}print('done', flush=True)\ninput()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
        process.communicate("\n")


def test_processes_that_run_and_those_that_have_ended_count_except_the_idle_ones() -> None:
    me = os.getpid()
    with worker() as idle:
        before = tree_cpu_s(me, without=[idle.pid])
        with worker():
            running = tree_cpu_s(me, without=[idle.pid])
        ended = tree_cpu_s(me, without=[idle.pid])
        assert running - before >= BUSY_S - 0.02
        assert ended >= running
        assert tree_cpu_s(me) - ended >= BUSY_S - 0.02


def test_what_ends_under_watch_counts_though_nobody_inherits_it() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", FORGETFUL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        answers = parent.stdout

        def say(line: str) -> None:
            print(line, file=parent.stdin, flush=True)
            answers.readline()

        say("work")
        of_idle_child = TreeWatch(parent.pid)
        say("end")
        assert 0 <= of_idle_child.stop() <= BUSY_S / 2
        of_busy_child = TreeWatch(parent.pid)
        say("work")
        of_busy_child.look()
        say("end")
        assert of_busy_child.stop() >= BUSY_S - 0.02
        parent.communicate()


def test_medians_and_their_ratios_are_told() -> None:
    assert spark_runs.table(FOUND, LAYOUT, busy=False).splitlines() == [
        "| 1,000 rows/s (CPU, µs a row) | 100 B |",
        "|---|---:|",
        "| `ottla` | 3,000 (2.00) |",
        "| connector | 1,000 (5.00) |",
        "| `ottla` / connector | 3.00× (2.50×) |",  # noqa: RUF001
    ]


def test_of_a_busy_machine_cpu_time_alone_is_told() -> None:
    assert spark_runs.table(FOUND, LAYOUT, busy=True).splitlines() == [
        "| CPU, µs a row | 100 B |",
        "|---|---:|",
        "| `ottla` | 2.00 |",
        "| connector | 5.00 |",
        "| `ottla` / connector | 2.50× |",  # noqa: RUF001
    ]


def test_rates_of_a_quiet_machine_stay_when_a_busy_one_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, kept = tmp_path / "page.md", tmp_path / "results"
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(spark_runs, "RESULTS", kept)
    monkeypatch.setattr(os, "getloadavg", lambda: (9.0, 8.0, 6.6))
    page.write_text("<!-- x: start -->\nold\n<!-- x: end -->\n<!-- x cpu: start --><!-- x cpu: end -->\nend")
    spark_runs.keep("x", "Measured", "4.2", FOUND, LAYOUT, busy=True)
    text = page.read_text()
    assert text.startswith("<!-- x: start -->\nold\n<!-- x: end -->\n<!-- x cpu: start -->\nMeasured on ")
    assert "with others at work on the same machine (load 7)." in text
    assert text.endswith("| 2.50× |\n<!-- x cpu: end -->\nend")  # noqa: RUF001
    assert [path.name for path in kept.iterdir()] == ["x_cpu.json"]


def test_a_page_without_the_marks_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(spark_runs, "RESULTS", tmp_path)
    page.write_text("<!-- x: start -->\nold")
    with pytest.raises(ValueError, match=r"has no <!-- x: start --> and <!-- x: end -->"):
        spark_runs.keep("x", "Measured", "4.2", FOUND, LAYOUT, busy=False)
    assert page.read_text() == "<!-- x: start -->\nold"
