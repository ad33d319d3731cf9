"""What the benchmarks of Spark share: a run's speed and its CPU time, and how both are shown."""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.measuring.process_cost import TreeWatch
from benchmarks.reporting import report
from benchmarks.reporting.pages import put_between_marks

__all__ = ["Found", "Layout", "Ratios", "Run", "keep", "table", "timed"]

RESULTS: Final = Path("benchmarks/results")


class Run(NamedTuple):
    """Rows a second, and the CPU that Spark, its Python processes and the broker took for a row, in µs.

    On a machine that others use as well, only the second says much.
    """

    rows_per_s: float
    cpu_us: float


Found = dict[str, dict[str, list[Run]]]
"""The runs of each workload, by who ran."""
Ratios = Mapping[str, tuple[str, str]]
"""What each ratio is called, what is compared, and with what."""


class Layout(NamedTuple):
    """The table's rows: how it names each run, and which ratios are below."""

    titles: Mapping[str, str]
    ratios: Ratios


_US_PER_S: Final = 1e6


def timed(rows: int, work: Callable[[], object], *, idle: Collection[int] = ()) -> Run:
    """Run `work`, which handles this many rows.

    The CPU is that of this process and all that it has started, except for the brokers in `idle`.
    """
    watch, started = TreeWatch(os.getpid(), without=idle), time.perf_counter()
    try:
        work()
    finally:
        seconds = time.perf_counter() - started
        cpu_s = watch.stop()
    return Run(rows / seconds, cpu_s * _US_PER_S / rows)


def table(found: Found, layout: Layout, *, busy: bool) -> str:
    """A column for each workload: medians, and below them the ratios. Above 1 means that the first is ahead."""
    medians = {
        workload: {
            who: Run(*(statistics.median(part) for part in zip(*each, strict=True))) for who, each in runs.items()
        }
        for workload, runs in found.items()
    }
    unit = "CPU, µs a row" if busy else "1,000 rows/s (CPU, µs a row)"
    lines = [f"| {unit} | {' | '.join(found)} |", "|---|" + "---:|" * len(found)]
    for who, title in layout.titles.items():
        lines.append(f"| {title} | {' | '.join(_cell(held[who], busy=busy) for held in medians.values())} |")
    for title, (first, second) in layout.ratios.items():
        shown = [_ratio(held[first], held[second], busy=busy) for held in medians.values()]
        lines.append(f"| {title} | {' | '.join(shown)} |")
    return "\n".join(lines)


def keep(name: str, about: str, spark_version: str, found: Found, layout: Layout, *, busy: bool) -> None:
    """Write the runs into benchmarks/results, and the table into the page, between the marks of this name.

    On a busy machine they have a place of their own, so that earlier rates from a quiet one stay.
    """
    place = f"{name} cpu" if busy else name
    machine = report.machine()
    RESULTS.mkdir(parents=True, exist_ok=True)
    held = {"machine": machine, "spark": spark_version, "runs": found}
    (RESULTS / f"{place.replace(' ', '_')}.json").write_text(json.dumps(held, indent=1) + "\n")
    load = f"load {os.getloadavg()[2]:.0f}"
    shared = f"with others at work on the same machine ({load})" if busy else f"which all share ({load})"
    text = (
        f"{about} on {machine['cores']} cores of {machine['cpu']}, {machine['memory_gib']} GiB, "
        f"Python {machine['python']}, {shared}.\n\n{table(found, layout, busy=busy)}"
    )
    put_between_marks(report.PAGE, place, text)


def _cell(run: Run, *, busy: bool) -> str:
    return f"{run.cpu_us:.2f}" if busy else f"{run.rows_per_s / 1000:,.0f} ({run.cpu_us:.2f})"


def _ratio(first: Run, second: Run, *, busy: bool) -> str:
    cpu, rate = second.cpu_us / first.cpu_us, first.rows_per_s / second.rows_per_s
    return f"{cpu:.2f}×" if busy else f"{rate:.2f}× ({cpu:.2f}×)"  # noqa: RUF001
