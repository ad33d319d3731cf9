"""What Ottla should reach beside Apache Kafka, and whether it does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.reporting.figures import better, shown, times_as_good
from benchmarks.reporting.results import Result, Results

_DASH: Final = "–"  # noqa: RUF001
_NOTHING: Final = Result(0, {})


@dataclass(frozen=True, slots=True)
class Target:
    """One figure of a workload, and its target: a number of times as good as Kafka, or no more than a limit."""

    title: str
    workload: str
    figure: str
    times: float | None = None
    at_most: float | None = None

    def aim(self) -> str:
        """The target in the terms of the figure: of what should be small, at most a number of times Kafka's."""
        if self.at_most is not None:
            return f"≤ {self.at_most:g}"
        assert self.times is not None
        lower = better(self.figure, 2, 1) < 1
        return f"≤ {1 / self.times:.2g} × Kafka's" if lower else f"≥ {self.times:g} × Kafka's"  # noqa: RUF001

    def reached(self, ours: float, theirs: float | None) -> bool | None:
        """None where Kafka, with which it is to be compared, was not measured."""
        if self.at_most is not None:
            return ours <= self.at_most
        assert self.times is not None
        return None if theirs is None else round(better(self.figure, ours, theirs), 2) >= round(self.times, 2)


_AT_1000: Final = "latency at 1,000/s"

_SIZES: Final = ("100 B", "1 KB", "10 KB")
_BULK: Final = (
    # what, figure, times as good as Kafka
    ("produce, MB/s", "produce_mb_per_s", 1.5),
    ("produce, broker CPU s/GB", "produce_cpu_s_per_gb", 1 / 0.6),
    ("consume, MB/s", "consume_mb_per_s", 1.1),
    ("consume, broker CPU s/GB", "consume_cpu_s_per_gb", 1),
)


def _bulk(named: str) -> tuple[Target, ...]:
    """The targets for each size of records; `named` gives the name of a size's workload."""
    return tuple(
        Target(f"{named.format(size)}: {what}", named.format(size), figure, times=times)
        for what, figure, times in _BULK
        for size in _SIZES
    )


TARGETS: Final = (
    *_bulk("{}"),
    *_bulk("rdkafka_performance, {}, any memory"),
    Target("end to end at 1,000 records/s, p50, ms", _AT_1000, "end_to_end_p50_ms", times=1.1),
    Target(
        "… with a core each for broker and clients, p99, ms", f"{_AT_1000}, a core each", "end_to_end_p99_ms", at_most=2
    ),
    Target("acknowledgement at 1,000 records/s, p50, ms", _AT_1000, "acknowledgement_p50_ms", times=1.1),
    Target("start to the first answer, ms", "start", "first_answer_ms", at_most=200),
    Target("resident when idle, MB", "start", "resident_mb", at_most=50),
    Target("resident under load (1 KB), peak, MB", "1 KB", "peak_mb", at_most=300),
)


def table(results: Results) -> str:
    """One row for each target; what was not measured is left empty."""
    rows = ["| | Apache Kafka | Ottla | ratio | target | reached |", "|---|---:|---:|---:|---|---|"]
    rows += [_row(target, results) for target in TARGETS]
    return "\n".join(rows)


def _row(target: Target, results: Results) -> str:
    result = results.get(target.workload, _NOTHING)
    ours, theirs = result.median("ottla", target.figure), result.median("kafka", target.figure)
    reached = None if ours is None else target.reached(ours, theirs)
    verdict = {True: "yes", False: "**no**", None: _DASH}[reached]
    ratio = times_as_good(target.figure, ours, theirs) or _DASH
    return f"| {target.title} | {shown(theirs)} | {shown(ours)} | {ratio} | {target.aim()} | {verdict} |"
