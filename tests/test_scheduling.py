"""The units that workers are given are of files that there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.scheduling import FIRST, NODES, TOGETHER, unit_of

ROOT = Path(__file__).resolve().parents[1]


def test_what_is_named_is_there() -> None:
    units = {NODES, *TOGETHER}
    named = [
        *(name for name in FIRST if name not in units),
        *(path for paths in TOGETHER.values() for path in paths),
    ]
    assert [path for path in named if not (ROOT / path).exists()] == []
    assert units < set(FIRST)
    assert len(set(FIRST)) == len(FIRST)
    assert [path for path in FIRST if path not in units and unit_of(path) != path] == []


def test_whoever_needs_spark_shares_a_worker() -> None:
    users = [path for path in (ROOT / "tests").rglob("test_*.py") if "spark: SparkSession" in path.read_text()]
    found = {str(path.relative_to(ROOT)): unit_of(f"{path.relative_to(ROOT)}::test_any[1]") for path in users}
    assert {path for path, unit in found.items() if unit != "Spark" and path != "tests/test_scheduling.py"} == set()
    assert len(found) > 4


def test_whoever_needs_apache_kafka_beside_the_broker_shares_a_worker() -> None:
    sources = {path: path.read_text() for path in (ROOT / "compat_tests").rglob("test_*.py")}
    users = [path for path, text in sources.items() if re.search(r"[(\s]both: ", text) and "def both(" not in text]
    units = {unit_of(f"{path.relative_to(ROOT)}::test_any[1]") for path in users}
    assert units == {"Apache Kafka"}
    assert len(users) > 2
