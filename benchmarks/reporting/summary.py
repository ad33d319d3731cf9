"""The table of README.md: a few of the figures, whoever is ahead."""

from __future__ import annotations

from typing import Final, NamedTuple

from benchmarks.reporting.figures import shown, times_as_good
from benchmarks.reporting.results import Result, Results

__all__ = ["table"]

_NOTHING: Final = Result(0, {})


class _Row(NamedTuple):
    """A figure of a workload."""

    title: str
    workload: str
    figure: str


_ROWS: Final = (
    _Row("produce, records of 100 B, MB/s", "100 B", "produce_mb_per_s"),
    _Row("produce, records of 1 KB, MB/s", "1 KB", "produce_mb_per_s"),
    _Row("consume, records of 1 KB, MB/s", "1 KB", "consume_mb_per_s"),
    _Row("the broker's CPU for producing, s/GB", "1 KB", "produce_cpu_s_per_gb"),
    _Row("the broker's CPU for consuming, s/GB", "1 KB", "consume_cpu_s_per_gb"),
    _Row("its memory at most, MB", "1 KB", "peak_mb"),
    _Row("latency at 1,000 records/s, median, ms", "latency at 1,000/s", "end_to_end_p50_ms"),
    _Row("99th percentile, with a core for the broker, ms", "latency at 1,000/s, a core each", "end_to_end_p99_ms"),
    _Row("start to the first answer, ms", "start", "first_answer_ms"),
)


def table(results: Results) -> str:
    """One row for each figure that was measured with both brokers."""
    rows = [
        "| beside Apache Kafka, with librdkafka, on one small machine | ratio | Ottla | Apache Kafka |",
        "|---|---:|---:|---:|",
    ]
    for row in _ROWS:
        result = results.get(row.workload, _NOTHING)
        ours, theirs = result.median("ottla", row.figure), result.median("kafka", row.figure)
        if ours and theirs:
            rows.append(
                f"| {row.title} | {times_as_good(row.figure, ours, theirs)} | {shown(ours)} | {shown(theirs)} |"
            )
    return "\n".join(rows)
