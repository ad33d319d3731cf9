"""Throughput over record size and over partitions, as pictures for docs/performance.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from benchmarks.reporting.results import Results

FOLDER: Final = Path("docs/images")
_SIZES: Final = {"100 B": "100 B", "1 KB": "1 KB", "10 KB": "10 KB"}
_PARTITIONS: Final = {
    "1 KB, 1 partition": "1",
    "1 KB": "4",
    "1 KB, 100 partitions": "100",
    "1 KB, 1,000 partitions": "1,000",
    "1 KB, 5,000 partitions": "5,000",
    "1 KB, 10,000 partitions": "10,000",
}
_BROKERS: Final = {"ottla": ("Ottla", "#0b7285"), "kafka": ("Apache Kafka 4.3.1", "#adb5bd")}
_DIRECTIONS: Final = {"produce_mb_per_s": "produce", "consume_mb_per_s": "consume"}


def draw(results: Results) -> None:
    """Draw each picture that there are results for."""
    _bars(results, _SIZES, "record size", FOLDER / "throughput-by-size.svg")
    _bars(results, _PARTITIONS, "partitions, records of 1 KB", FOLDER / "throughput-by-partitions.svg")


def _bars(results: Results, workloads: dict[str, str], axis: str, path: Path) -> None:
    """Two panels, produce and consume, each with a group of bars for every workload, one bar for each broker."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    present = [name for name in workloads if name in results]
    if not present:
        return
    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for number, (name, title) in enumerate(_DIRECTIONS.items()):
        panel = figure.add_subplot(1, 2, number + 1)
        for side, (broker, (label, color)) in enumerate(_BROKERS.items()):
            at = [index + (side - 0.5) * 0.38 for index in range(len(present))]
            panel.bar(at, [results[each].median(broker, name) or 0 for each in present], 0.36, label=label, color=color)
        panel.set_xticks(range(len(present)), [workloads[each] for each in present])
        panel.set_title(title)
        panel.set_xlabel(axis)
        panel.set_ylabel("MB/s")
        panel.spines[["top", "right"]].set_visible(False)
        panel.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    with rc_context({"svg.hashsalt": path.stem}):  # the same figures give the same file
        figure.savefig(path, metadata={"Date": None})
