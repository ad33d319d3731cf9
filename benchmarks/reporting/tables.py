"""The tables of the workloads: one line each, and behind each ratio Ottla's median and Apache Kafka's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.reporting.figures import shown, times_as_good
from benchmarks.reporting.results import Result, Results


@dataclass(frozen=True, slots=True)
class Line:
    """One line: its label, whose figures it shows, and which of them in each of the table's columns."""

    label: str
    workload: str
    figures: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Table:
    """A title, what the lines differ in, and the lines; the columns are all those that a line has."""

    title: str
    first: str
    lines: Sequence[Line]


def _lines(figures: Mapping[str, str], *workloads: str) -> tuple[Line, ...]:
    return tuple(Line(workload, workload, figures) for workload in workloads)


_THROUGHPUT: Final = {
    "produce MB/s": "produce_mb_per_s",
    "produce CPU s/GB": "produce_cpu_s_per_gb",
    "consume MB/s": "consume_mb_per_s",
    "consume CPU s/GB": "consume_cpu_s_per_gb",
    "resident MB": "resident_mb",
}
_PARTITIONS: Final = {**_THROUGHPUT, "open files": "open_files"}
_ACKNOWLEDGEMENT: Final = {"ack p50 ms": "acknowledgement_p50_ms", "ack p99 ms": "acknowledgement_p99_ms"}
_READ: Final = ("cold", "warm")
_PARTITION_COUNTS: Final = {
    "1": "1 KB, 1 partition",
    "4": "1 KB",
    "100": "1 KB, 100 partitions",
    "1,000": "1 KB, 1,000 partitions",
    "1,000, flush.messages=1": "1 KB, 1,000 partitions, flush.messages=1",
    "5,000": "1 KB, 5,000 partitions",
    "10,000": "1 KB, 10,000 partitions",
}
_CONNECTION_COUNTS: Final = {
    "1": "1 connection",
    "10": "10 connections",
    "100": "100 connections",
    "1,000": "1,000 connections",
}

TABLES: Final = (
    Table(
        "Throughput",
        "records",
        (
            *_lines(_THROUGHPUT, "100 B", "1 KB", "10 KB", "1 KB, acks=all", "1 KB, lz4", "1 KB, zstd"),
            Line(
                "1 KB, read while written (CPU of both)",
                "1 KB, read while written",
                {
                    "produce MB/s": "produce_mb_per_s",
                    "consume MB/s": "consume_mb_per_s",
                    "consume CPU s/GB": "both_cpu_s_per_gb",
                },
            ),
            *(
                Line(
                    f"1 KB, read after a restart, {cache} cache",
                    "1 KB, read after a restart",
                    {"consume MB/s": f"{cache}_mb_per_s", "consume CPU s/GB": f"{cache}_cpu_s_per_gb"},
                )
                for cache in _READ
            ),
        ),
    ),
    Table(
        "Java's producer and consumer (`kafka-producer-perf-test`, `kafka-consumer-perf-test`)",
        "records",
        _lines({**_THROUGHPUT, **_ACKNOWLEDGEMENT}, "Java, 100 B", "Java, 1 KB", "Java, 10 KB"),
    ),
    Table(
        "librdkafka's own `rdkafka_performance`, written into recycled memory, and into any that there is",
        "records",
        _lines(
            _THROUGHPUT,
            *(
                f"rdkafka_performance, {size}{memory}"
                for memory in ("", ", any memory")
                for size in ("100 B", "1 KB", "10 KB")
            ),
        ),
    ),
    Table(
        "Partitions, records of 1 KB",
        "partitions",
        tuple(Line(label, workload, _PARTITIONS) for label, workload in _PARTITION_COUNTS.items()),
    ),
    Table(
        "Connections that each send 16 KB and wait for the acknowledgement",
        "connections",
        tuple(
            Line(
                label,
                workload,
                {
                    "produce MB/s": "produce_mb_per_s",
                    "produce CPU s/GB": "produce_cpu_s_per_gb",
                    **_ACKNOWLEDGEMENT,
                },
            )
            for label, workload in _CONNECTION_COUNTS.items()
        ),
    ),
    Table(
        "Latency in ms, records of 100 B, each sent by itself",
        "records/s",
        tuple(
            Line(
                f"{rate}{pinned}",
                f"latency at {rate}/s{pinned}",
                {
                    f"{short} {percentile}": f"{name}_{percentile.replace('.', '')}_ms"
                    for short, name in (("end to end", "end_to_end"), ("ack", "acknowledgement"))
                    for percentile in ("p50", "p99", "p99.9")
                },
            )
            for rate, pinned in (("200", ""), ("1,000", ""), ("1,000", ", a core each"), ("5,000", ""))
        ),
    ),
    Table(
        "Small requests from ten connections",
        "request",
        _lines(
            {
                "requests/s": "requests_per_s",
                "broker CPU µs each": "request_cpu_us",
                "p50 ms": "p50_ms",
                "p99 ms": "p99_ms",
            },
            "Metadata",
            "ListOffsets",
            "OffsetCommit",
            "empty Fetch",
        ),
    ),
    Table(
        "Start and idleness",
        "",
        _lines(
            {
                "start to first answer, ms": "first_answer_ms",
                "resident MB": "resident_mb",
                "open files": "open_files",
                "CPU, % of a core": "idle_cpu_percent",
            },
            "start",
            "idle, 1,000 connections, 10,000 partitions",
        ),
    ),
)


def compact(table: Table, results: Results) -> str:
    """The lines whose workloads were run, each figure as `ratio (Ottla; Apache Kafka)`; empty if none was."""
    lines = [line for line in table.lines if line.workload in results]
    if not lines:
        return ""
    columns = list(dict.fromkeys(column for line in lines for column in line.figures))
    rows = [_row([table.first, *columns]), "|---|" + "---:|" * len(columns)]
    for line in lines:
        result = results[line.workload]
        rows.append(_row([line.label, *(_cell(result, line.figures.get(column)) for column in columns)]))
    return "\n".join(rows)


def by_figure(results: Results) -> str:
    """One row for each figure of the workloads that were run."""
    rows = [_row(["workload", "figure", "ratio", "Ottla", "Apache Kafka"]), "|---|---|---:|---:|---:|"]
    for name, result in results.items():
        for figure in next(iter(result.runs.values()))[0]:
            ours, theirs = result.median("ottla", figure), result.median("kafka", figure)
            rows.append(
                _row([name, figure.replace("_", " "), times_as_good(figure, ours, theirs), shown(ours), shown(theirs)])
            )
    return "\n".join(rows)


def holds(results: Results) -> str:
    """The longest hold of the event loop in each workload that was looked at; empty if none was."""
    held = {name: result.hold for name, result in results.items() if result.hold is not None}
    if not held:
        return ""
    rows = ["| workload | holds | longest, ms | longest CPU, ms | of the task |", "|---|---:|---:|---:|---|"]
    for name, hold in held.items():
        rows.append(f"| {name} | {hold.times:,} | {hold.longest_ms:.1f} | {hold.longest_cpu_ms:.1f} | {hold.by} |")
    return "\n".join(rows)


def _cell(result: Result, figure: str | None) -> str:
    if figure is None:
        return ""
    ours, theirs = result.median("ottla", figure), result.median("kafka", figure)
    if ours is None and theirs is None:
        return ""
    return f"{times_as_good(figure, ours, theirs)} ({shown(ours)}; {shown(theirs)})".lstrip()


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"
