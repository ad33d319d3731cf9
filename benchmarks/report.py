"""Results as JSON, and as the table in docs/performance.md."""

from __future__ import annotations

import json
import platform
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.profile import Hold
from benchmarks.workloads import LOWER_IS_BETTER, WORKLOADS, Figures

PAGE = Path("docs/performance.md")
START, END = "<!-- benchmarks: start -->", "<!-- benchmarks: end -->"


@dataclass(slots=True)
class Result:
    """One workload: how many runs each broker had, their figures, and Ottla's longest hold of its loop."""

    pairs: int
    runs: dict[str, list[Figures]]
    hold: Hold | None = None

    def median(self, broker: str, figure: str) -> float | None:
        """The median over a broker's runs, None if it had none."""
        values = [run[figure] for run in self.runs.get(broker, [])]
        return statistics.median(values) if values else None


Results = dict[str, Result]


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


def load(path: Path) -> Results:
    """What a file holds, in the order of the table."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())["results"]
    return {
        name: Result(each["pairs"], each["runs"], Hold(*each["hold"]) if each["hold"] else None)
        for name in WORKLOADS
        if (each := stored.get(name))
    }


def merge(results: Results, path: Path) -> None:
    """Put the workloads that were run in the place of what the file has of them."""
    path.parent.mkdir(parents=True, exist_ok=True)
    both = load(path) | results
    text = json.dumps({"machine": machine(), "results": {name: asdict(both[name]) for name in both}}, indent=1)
    path.write_text(text + "\n")


def table(results: Results) -> str:
    """One row a figure: Ottla's median, Apache Kafka's, and the ratio in which more than 1 is better for Ottla."""
    rows = ["| workload | figure | ratio | Ottla | Apache Kafka |", "|---|---|---:|---:|---:|"]
    for workload, result in results.items():
        for figure in next(iter(result.runs.values()))[0]:
            ours, theirs = result.median("ottla", figure), result.median("kafka", figure)
            rows.append(
                f"| {workload} | {_title(figure)} | {ratio(figure, ours, theirs)} | {_n(ours)} | {_n(theirs)} |"
            )
        if result.hold is not None:
            hold = f"{result.hold.longest_ms:.1f} ({result.hold.longest_cpu_ms:.1f})"
            rows.append(f"| {workload} | longest hold of the loop, ms (its CPU, ms) | | {hold} | |")
    return "\n".join(rows)


def ratio(figure: str, ours: float | None, theirs: float | None) -> str:
    """How many times as good as Apache Kafka Ottla is in a figure."""
    if not ours or not theirs:
        return ""
    better = theirs / ours if figure.endswith(LOWER_IS_BETTER) else ours / theirs
    return f"{better:.2f}×"  # noqa: RUF001


def _title(figure: str) -> str:
    title = figure.replace("_per_", "/").replace("_", " ").replace("cpu s/gb", "broker CPU s/GB")
    return title.replace("mb/s", "MB/s").replace("cpu us", "broker CPU µs").replace("resident mb", "resident MB")


def _n(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def write_page(results: Results) -> None:
    """Replace the part of the page that is between the marks."""
    about = machine()
    often = max(result.pairs for result in results.values())
    seldom = [name for name, result in results.items() if result.pairs < often]
    fewer = f" Fewer runs, and so less sure: {'; '.join(seldom)}." if seldom else ""
    text = (
        f"`python -m benchmarks`, medians of {often} alternating runs on {about['cores']} cores of {about['cpu']}, "
        f"{about['memory_gib']} GiB, Linux {about['kernel']}, Python {about['python']}.\n"
        f"A ratio above 1 means that Ottla is ahead.{fewer}\n\n" + table(results)
    )
    before, _, rest = PAGE.read_text().partition(START)
    after = rest.partition(END)[2]
    PAGE.write_text(f"{before}{START}\n{text}\n{END}{after}")
