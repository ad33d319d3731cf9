"""The figures of every run, kept as JSON: a workload's results replace what the file had of it, and nothing else."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.workloads import WORKLOADS, Figures

Machine = dict[str, Any]


class Hold(NamedTuple):
    """Steps of tasks that took 0.5 ms or longer: how many, the longest, the longest in CPU time and its task."""

    times: int
    longest_ms: float
    longest_cpu_ms: float
    by: str = ""


@dataclass(slots=True)
class Result:
    """One workload: how many runs each broker had, their figures, when and where, and Ottla's longest hold."""

    pairs: int
    runs: dict[str, list[Figures]]
    hold: Hold | None = None
    date: str = ""
    machine: Machine = field(default_factory=dict)

    def median(self, broker: str, figure: str) -> float | None:
        """The median over a broker's runs, None if it was not measured."""
        values = [run[figure] for run in self.runs.get(broker, []) if figure in run]
        return statistics.median(values) if values else None


Results = dict[str, Result]


def machine() -> Machine:
    """What the figures depend on besides the brokers."""
    cpu = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), "")
    memory_kib = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    return {
        "cpu": cpu,
        "cores": len([line for line in _lines("/proc/cpuinfo") if line.startswith("processor")]),
        "memory_gib": round(memory_kib / 2**20),
        "kernel": platform.release(),
        "python": platform.python_version(),
    }


def load(path: Path) -> Results:
    """What a file holds, in the order of the table; nothing if there is none."""
    if not path.exists():
        return {}
    stored = json.loads(path.read_text())["results"]
    return {name: _result(stored[name]) for name in WORKLOADS if name in stored}


def merge(results: Results, path: Path) -> None:
    """Put the workloads that were run in place of what the file has of them. A crash leaves the old file whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    both = load(path) | results
    text = json.dumps({"results": {name: asdict(both[name]) for name in WORKLOADS if name in both}}, indent=1)
    beside = path.with_suffix(".new")
    beside.write_text(text + "\n")
    os.replace(beside, path)


def _result(stored: dict[str, Any]) -> Result:
    hold = Hold(*stored["hold"]) if stored["hold"] else None
    return Result(stored["pairs"], stored["runs"], hold, stored["date"], stored["machine"])


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()
