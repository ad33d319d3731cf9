"""Takes README.md's figures over from docs/performance.md: `python docs/generate_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
README: Final = DOCS.parent / "README.md"
START: Final = (
    "| beside Apache Kafka 4.3.1, on one small machine | ratio | Ottla | Apache Kafka |\n|---|---:|---:|---:|\n"
)

#: (workload, figure) of the page's table, and what README calls it.
ROWS: Final = {
    ("100 B", "produce records/s"): "produce, records of 100 B, records/s",
    ("1 KB", "produce MB/s"): "produce, records of 1 KB, MB/s",
    ("1 KB", "consume MB/s"): "consume, records of 1 KB, MB/s",
    ("1 KB", "produce broker CPU s/GB"): "the broker's CPU for that, s/GB produced",
    ("1 KB", "resident MB"): "its memory meanwhile, MB",
    ("latency at 1,000/s", "end to end p50 ms"): "latency at 1,000 records/s, median, ms",
}


def table(page: str) -> str:
    """The rows that the page has figures of both brokers for."""
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", page, re.MULTILINE)
    figures = {(workload, figure): (ratio, ottla, kafka) for workload, figure, ratio, ottla, kafka in found}
    rows = [f"| {name} | {' | '.join(figures[key])} |\n" for key, name in ROWS.items() if key in figures]
    return "".join(rows)


def readme(text: str, page: str) -> str:
    """README.md with the page's figures; as it is where the page has none."""
    before, start, rest = text.partition(START)
    rows = table(page)
    if not rows or not start:
        return text
    after = rest[re.match(r"(?:\|[^\n]*\n)*", rest).end() :]  # type: ignore[union-attr]
    return before + start + rows + after


if __name__ == "__main__":
    README.write_text(readme(README.read_text(), (DOCS / "performance.md").read_text()))
