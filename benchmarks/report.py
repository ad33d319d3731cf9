"""Results as JSON, and as the table in docs/performance.md."""

from __future__ import annotations

import json
import platform
import statistics
from pathlib import Path
from typing import Any

from benchmarks.workloads import LOWER_IS_BETTER

PAGE = Path("docs/performance.md")
START, END = "<!-- benchmarks: start -->", "<!-- benchmarks: end -->"

Results = dict[str, dict[str, list[dict[str, float]]]]
"""Workload -> broker -> the figures of each run."""


def machine() -> dict[str, Any]:
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": cpu,
        "cores": len([line for line in _lines("/proc/cpuinfo") if line.startswith("processor")]),
        "memory_gib": round(memory_kib / 2**20),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def table(results: Results) -> str:
    """One row a figure: Ottla's median, Apache Kafka's, and the ratio in which more than 1 is better for Ottla."""
    rows = ["| workload | figure | ratio | Ottla | Apache Kafka |", "|---|---|---:|---:|---:|"]
    for workload, brokers in results.items():
        for figure in brokers["ottla"][0]:
            ours = statistics.median(run[figure] for run in brokers["ottla"])
            theirs = [run[figure] for run in brokers.get("kafka", [])]
            median = statistics.median(theirs) if theirs else None
            rows.append(
                f"| {workload} | {_title(figure)} | {_ratio(figure, ours, median)} | {_n(ours)} | {_n(median)} |"
            )
    return "\n".join(rows)


def _ratio(figure: str, ours: float, theirs: float | None) -> str:
    if theirs is None or not ours or not theirs:
        return "–"  # noqa: RUF001 - a dash that is read, not parsed
    better = theirs / ours if figure.endswith(LOWER_IS_BETTER) else ours / theirs
    return f"{better:.2f}×"  # noqa: RUF001


def _title(figure: str) -> str:
    return figure.replace("_per_", "/").replace("_", " ").replace("cpu s/gb", "broker CPU s/GB").replace("mb/s", "MB/s")


def _n(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def write(results: Results, path: Path, command: str, pairs: int) -> None:
    """Write the JSON, and replace the part of the page that is between the marks."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "command": command, "results": results}, indent=1) + "\n")
    if not PAGE.exists() or START not in PAGE.read_text():
        return
    about = machine()
    text = (
        f"`{command}`, medians of {pairs} alternating runs on {about['cores']} cores of {about['cpu']}, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}.\n"
        "A ratio above 1 means that Ottla is ahead.\n\n" + table(results)
    )
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{text}\n{END}{after}")
