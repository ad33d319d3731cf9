"""Lines and metrics of a running job."""

from __future__ import annotations

import json
from pathlib import Path

from ottla.pipeline.tables.progress import BatchReport, Metrics, as_line

REPORT = BatchReport(table="orders", batch=7, rows=20_000, dead=3, lag=1_204, seconds=2.0)


def test_a_line_for_a_person() -> None:
    assert as_line(REPORT) == "orders: batch 7, 20,000 rows, 3 dead letters, lag 1,204, 2.0 s (10,002 rows/s)"
    quiet = BatchReport(table="orders", batch=8, rows=1, dead=0, lag=None, seconds=0.0)
    assert as_line(quiet) == "orders: batch 8, 1 rows, 0.0 s (0 rows/s)"


def test_a_line_for_a_program() -> None:
    assert json.loads(as_line(REPORT, as_json=True)) == {
        "table": "orders",
        "batch": 7,
        "rows": 20_000,
        "dead": 3,
        "lag": 1_204,
        "seconds": 2.0,
    }


def test_prometheus_counts_over_batches_and_keeps_the_last(tmp_path: Path) -> None:
    path = tmp_path / "job.prom"
    metrics = Metrics(str(path), clock=lambda: 1_700_000_000.0)
    metrics.add(REPORT)
    metrics.add(BatchReport(table="orders", batch=8, rows=5, dead=0, lag=None, seconds=0.5))
    metrics.add(BatchReport(table='odd"name', batch=0, rows=1, dead=0, lag=0, seconds=1.0))
    lines = path.read_text().splitlines()
    assert 'ottla_table_rows_total{table="orders"} 20005' in lines
    assert 'ottla_table_dead_letters_total{table="orders"} 3' in lines
    assert 'ottla_table_batches_total{table="orders"} 2' in lines
    assert 'ottla_table_lag_records{table="orders"} 1204' in lines
    assert 'ottla_table_last_batch_seconds{table="orders"} 0.5' in lines
    assert 'ottla_table_last_batch_timestamp_seconds{table="orders"} 1700000000.0' in lines
    assert 'ottla_table_rows_total{table="odd\\"name"} 1' in lines
    assert lines.count("# TYPE ottla_table_rows_total counter") == 1
    assert [file.name for file in tmp_path.iterdir()] == ["job.prom"]


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.jsonl"
    metrics = Metrics(str(path), clock=lambda: 1.5)
    metrics.add(REPORT)
    metrics.add(REPORT)
    first, second = (json.loads(line) for line in path.read_text().splitlines())
    assert first == second
    assert (first["at"], first["rows"]) == (1.5, 20_000)
