"""Takes README.md's figures over from docs/performance.md: `python docs/generate_readme.py`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parent
README: Final = DOCS.parent / "README.md"
START: Final = (
    "| beside Apache Kafka 4.3.1, with librdkafka, on one small machine | ratio | Ottla | Apache Kafka |\n"
    "|---|---:|---:|---:|\n"
)

#: A row of the page's first table, and what README calls it.
ROWS: Final = {
    "100 B: produce, MB/s": "produce, records of 100 B, MB/s",
    "1 KB: produce, MB/s": "produce, records of 1 KB, MB/s",
    "1 KB: consume, MB/s": "consume, records of 1 KB, MB/s",
    "1 KB: produce, broker CPU s/GB": "the broker's CPU for producing, s/GB",
    "resident under load (1 KB), peak, MB": "its memory at most, MB",
    "end to end at 1,000 records/s, p50, ms": "latency at 1,000 records/s, median, ms",
    "… with a core each for broker and clients, p99, ms": "99th percentile, with a core for the broker, ms",
    "start to the first answer, ms": "start to the first answer, ms",
}


def table(page: str) -> str:
    """The rows that the page has figures of both brokers for."""
    found = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([\d.,]+\S) \| [^|]+ \| [^|]+ \|$", page, re.MULTILINE)
    figures = {title: (ratio, ottla, kafka) for title, kafka, ottla, ratio in found}
    return "".join(f"| {name} | {' | '.join(figures[key])} |\n" for key, name in ROWS.items() if key in figures)


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
