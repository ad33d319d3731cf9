# ruff: noqa: RUF001 - the page has real multiplication signs and dashes
"""The generated part of docs/performance.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.__main__ import RESULTS
from benchmarks.reporting import report, results, summary, tables, targets
from benchmarks.reporting.figures import better, shown
from benchmarks.reporting.pages import between_marks
from benchmarks.reporting.results import Hold, Result, Results
from benchmarks.reporting.targets import TARGETS, Target
from benchmarks.workloads import WORKLOADS

MACHINE = {"cpu": "A CPU", "cores": 2, "memory_gib": 24, "kernel": "6.18", "python": "3.11.7"}
ROOT = Path(__file__).parents[2]


def measured(ottla: dict[str, float], kafka: dict[str, float] | None = None, **fields: object) -> Result:
    runs = {"ottla": [ottla]} | ({"kafka": [kafka]} if kafka else {})
    return Result(1, runs, **({"date": "2026-11-21", "machine": MACHINE} | fields))  # type: ignore[arg-type]


def row_of(table: str, start: str) -> str:
    (row,) = [line for line in table.splitlines() if line.startswith(f"| {start} |")]
    return row


def test_the_pages_are_what_the_results_say() -> None:
    kept = results.load(ROOT / RESULTS)

    assert between_marks(ROOT / report.PAGE, report.MARK) == report.generated(kept).strip()
    assert between_marks(ROOT / report.README, report.MARK) == summary.table(kept)


def test_what_is_not_between_the_marks_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start, end = "<!-- benchmarks: start -->", "<!-- benchmarks: end -->"
    page, readme = tmp_path / "performance.md", tmp_path / "README.md"
    for each in (page, readme):
        each.write_text(f"before\n{start}\nold\n{end}\nafter\n")
    monkeypatch.setattr(report, "PAGE", page)
    monkeypatch.setattr(report, "README", readme)

    report.write_pages({"1 KB": measured({"produce_mb_per_s": 1.0}, {"produce_mb_per_s": 0.5})})

    for each, part in ((page, "2026-11-21"), (readme, "| produce, records of 1 KB, MB/s | 2.00× |")):
        head, _, rest = each.read_text().partition(start)
        middle, _, tail = rest.partition(end)
        assert (head, tail) == ("before\n", "\nafter\n")
        assert "old" not in middle
        assert part in middle


def test_every_workload_is_in_a_table() -> None:
    assert {line.workload for table in tables.TABLES for line in table.lines} == set(WORKLOADS)


def test_every_target_is_of_a_workload() -> None:
    assert {target.workload for target in TARGETS} <= set(WORKLOADS)


@pytest.mark.parametrize(
    ("target", "aim", "ours", "theirs", "reached"),
    [
        (Target("", "", "produce_mb_per_s", times=1.5), "≥ 1.5 × Kafka's", 300.0, 200.0, True),
        (Target("", "", "produce_mb_per_s", times=1.5), "≥ 1.5 × Kafka's", 290.0, 200.0, False),
        (Target("", "", "produce_mb_per_s", times=1.5), "≥ 1.5 × Kafka's", 290.0, None, None),
        (Target("", "", "cpu_s_per_gb", times=2), "≤ 0.5 × Kafka's", 1.0, 2.0, True),
        (Target("", "", "cpu_s_per_gb", times=2), "≤ 0.5 × Kafka's", 1.1, 2.0, False),
        (Target("", "", "cpu_s_per_gb", times=1 / 1.2), "≤ 1.2 × Kafka's", 1.2, 1.0, True),
        (Target("", "", "cpu_s_per_gb", times=1 / 1.2), "≤ 1.2 × Kafka's", 1.3, 1.0, False),
        (Target("", "", "end_to_end_p50_ms", times=1), "≤ 1 × Kafka's", 0.3, 0.3, True),
        (Target("", "", "first_answer_ms", at_most=300), "≤ 300", 300.0, None, True),
        (Target("", "", "first_answer_ms", at_most=300), "≤ 300", 301.0, 2_700.0, False),
    ],
)
def test_a_target_is_reached_or_not(
    target: Target, aim: str, ours: float, theirs: float | None, reached: bool | None
) -> None:
    assert target.aim() == aim
    assert target.reached(ours, theirs) is reached


def test_targets_say_what_was_reached_and_what_was_not_measured() -> None:
    one_kb = measured({"produce_mb_per_s": 300.0, "consume_mb_per_s": 900.0}, {"produce_mb_per_s": 200.0})

    table = targets.table({"1 KB": one_kb, "start": measured({"first_answer_ms": 335.0})})

    assert row_of(table, "1 KB: produce, MB/s").split("|")[2:7] == [
        " 200 ",
        " 300 ",
        " 1.50× ",
        " ≥ 1.5 × Kafka's ",
        " yes ",
    ]
    assert row_of(table, "1 KB: consume, MB/s").endswith("| – |")
    assert row_of(table, "start to the first answer, ms").endswith("| **no** |")
    assert row_of(table, "10 KB: produce, MB/s").endswith("| – |")


def test_a_line_has_the_ratio_then_both_medians() -> None:
    (throughput,) = [table for table in tables.TABLES if table.title == "Throughput"]
    catch_up = measured(
        {"cold_mb_per_s": 500.0, "warm_mb_per_s": 600.0}, {"cold_mb_per_s": 250.0, "warm_mb_per_s": 800.0}
    )

    lines = tables.compact(throughput, {"1 KB, read after a restart": catch_up})

    assert row_of(lines, "1 KB, read after a restart, cold cache").split("|")[2] == " 2.00× (500; 250) "
    assert row_of(lines, "1 KB, read after a restart, warm cache").split("|")[2] == " 0.75× (600; 800) "


def test_a_table_without_results_is_left_out() -> None:
    assert [tables.compact(table, {}) for table in tables.TABLES] == [""] * len(tables.TABLES)
    assert tables.holds({"1 KB": measured({"produce_mb_per_s": 1.0})}) == ""


def test_holds_name_the_task() -> None:
    table = tables.holds({"1 KB": measured({}, hold=Hold(1_234, 3.26, 0.71, "serve"))})

    assert row_of(table, "1 KB") == "| 1 KB | 1,234 | 3.3 | 0.7 | serve |"


def test_workloads_with_fewer_runs_dates_and_machines_are_named() -> None:
    often = Result(3, {}, date="2026-11-22", machine=MACHINE)
    seldom = Result(1, {}, date="2026-11-20", machine=MACHINE | {"cores": 64})
    both: Results = {"1 KB": often, "10 KB": seldom}

    about = report.about(both)

    assert "medians of 3 alternating runs and more on 2 cores of A CPU" in about
    assert "64 cores" in about
    assert "2026-11-20 to 2026-11-22" in about
    assert "Fewer runs, so less certain: 10 KB." in about
    assert "Fewer runs" not in report.about({"1 KB": often})


def test_more_than_one_is_better_whichever_way_is_good() -> None:
    assert better("produce_mb_per_s", 300, 200) == 1.5
    assert better("p99_ms", 2, 3) == 1.5


@pytest.mark.parametrize(
    ("value", "text"), [(None, ""), (0.066, "0.07"), (9.99, "9.99"), (12.34, "12.3"), (1234.5, "1,234"), (0, "0.00")]
)
def test_figures_have_the_digits_that_count(value: float | None, text: str) -> None:
    assert shown(value) == text
