"""The file of results: a workload replaces itself and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.reporting import results
from benchmarks.reporting.results import Hold, Result


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results" / "throughput.json"


def one_pair(ottla: float, kafka: float, **fields: object) -> Result:
    runs = {"ottla": [{"produce_mb_per_s": ottla}], "kafka": [{"produce_mb_per_s": kafka}]}
    return Result(1, runs, **fields)  # type: ignore[arg-type]


def test_what_is_kept_is_what_comes_back(path: Path) -> None:
    kept = one_pair(300, 200, hold=Hold(7, 3.5, 1.5, "serve"), date="2026-11-21", machine={"cores": 2})

    results.merge({"1 KB": kept}, path)

    assert results.load(path) == {"1 KB": kept}


def test_a_workload_replaces_itself_and_nothing_else(path: Path) -> None:
    first = one_pair(300, 200, date="2026-11-20", machine={"cores": 2})
    results.merge({"1 KB": first, "100 B": one_pair(1, 2)}, path)
    again = Result(3, {"ottla": [{"produce_mb_per_s": 5.0}] * 3}, date="2026-11-21", machine={"cores": 64})

    results.merge({"100 B": again}, path)

    assert results.load(path) == {"100 B": again, "1 KB": first}


def test_workloads_come_in_the_order_of_the_table(path: Path) -> None:
    results.merge({"Metadata": one_pair(1, 1)}, path)
    results.merge({"100 B": one_pair(1, 1)}, path)

    assert list(results.load(path)) == ["100 B", "Metadata"]


def test_a_workload_that_is_no_more_is_left_out(path: Path) -> None:
    results.merge({"1 KB": one_pair(1, 1)}, path)
    path.write_text(path.read_text().replace('"1 KB"', '"1 MB"'))

    assert results.load(path) == {}


def test_there_need_not_be_a_file(path: Path) -> None:
    assert results.load(path) == {}


def test_medians_are_of_the_runs_that_have_the_figure() -> None:
    result = Result(3, {"ottla": [{"p50_ms": 3.0}, {"p50_ms": 1.0}, {"p50_ms": 20.0}, {"p99_ms": 50.0}]})

    assert result.median("ottla", "p50_ms") == 3
    assert result.median("ottla", "peak_mb") is None
    assert result.median("kafka", "p50_ms") is None
