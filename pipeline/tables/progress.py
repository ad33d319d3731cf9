"""What can be seen of a running job: a line for each batch, the same as JSON, and metrics in a file."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

__all__ = ["BatchReport", "Counts", "Metrics", "as_line"]

NAMES: Final = {
    "rows": ("ottla_table_rows_total", "counter", "Rows written into the table by this process."),
    "dead": ("ottla_table_dead_letters_total", "counter", "Records written to the dead letters by this process."),
    "batches": ("ottla_table_batches_total", "counter", "Batches done by this process."),
    "lag": ("ottla_table_lag_records", "gauge", "Records between the last batch and the end of the topic."),
    "seconds": ("ottla_table_last_batch_seconds", "gauge", "How long the last batch took."),
    "at": ("ottla_table_last_batch_timestamp_seconds", "gauge", "When the last batch was done, since 1970."),
}


@dataclass(frozen=True, slots=True)
class Counts:
    """How many records of a batch went into the table, and how many to the dead letters."""

    rows: int
    dead: int


@dataclass(frozen=True, slots=True)
class BatchReport:
    """One batch of one table. `lag` is None where it is not known."""

    table: str
    batch: int
    rows: int
    dead: int
    lag: int | None
    seconds: float


def as_line(report: BatchReport, *, as_json: bool = False) -> str:
    """The line that a person, or a program, reads."""
    if as_json:
        return json.dumps(asdict(report))
    dead = f", {report.dead:,} dead letters" if report.dead else ""
    lag = "" if report.lag is None else f", lag {report.lag:,}"
    rate = (report.rows + report.dead) / report.seconds if report.seconds else 0.0
    return (
        f"{report.table}: batch {report.batch}, {report.rows:,} rows{dead}{lag}, "
        f"{report.seconds:.1f} s ({rate:,.0f} rows/s)"
    )


class Metrics:
    """Keeps a file up to date: `*.prom` for Prometheus' textfile collector, anything else gets a JSON line a batch."""

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self._path = Path(path)
        self._clock = clock
        self._values: dict[str, dict[str, float]] = {name: {} for name in NAMES}

    def add(self, report: BatchReport) -> None:
        """Take a batch in, and write the file."""
        if self._path.suffix == ".prom":
            self._count(report)
            self._write_prometheus()
        else:
            with self._path.open("a") as file:
                file.write(json.dumps({"at": round(self._clock(), 3), **asdict(report)}) + "\n")

    def _count(self, report: BatchReport) -> None:
        for name, value in (("rows", report.rows), ("dead", report.dead), ("batches", 1)):
            held = self._values[name]
            held[report.table] = held.get(report.table, 0) + value
        for name, now in (("lag", report.lag), ("seconds", report.seconds), ("at", self._clock())):
            if now is not None:
                self._values[name][report.table] = now

    def _write_prometheus(self) -> None:
        lines = []
        for name, (metric, kind, text) in NAMES.items():
            if self._values[name]:
                lines += [f"# HELP {metric} {text}", f"# TYPE {metric} {kind}"]
                lines += [f'{metric}{{table="{_label(table)}"}} {value}' for table, value in self._values[name].items()]
        beside = self._path.with_name(self._path.name + ".new")
        beside.write_text("\n".join(lines) + "\n")
        os.replace(beside, self._path)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
