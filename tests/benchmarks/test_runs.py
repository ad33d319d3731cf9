"""The order of the runs, and what happens when one fails or is interrupted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from benchmarks import __main__ as command
from benchmarks.measuring import profile
from benchmarks.measuring.c_program import MissingToolError
from benchmarks.measuring.profile import Seen
from benchmarks.reporting import results
from benchmarks.reporting.results import Hold
from benchmarks.workloads import Figures

BOTH = ("ottla", "kafka")
Run = Callable[[str], Figures]


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The brokers in the order of their runs; none of them is started."""
    order: list[str] = []

    @contextmanager
    def fresh(kind: str) -> Iterator[str]:
        order.append(kind)
        yield kind

    monkeypatch.setattr(command, "fresh", fresh)
    return order


def workloads(monkeypatch: pytest.MonkeyPatch, **runs: Run) -> None:
    named = {name.replace("_", " "): run for name, run in runs.items()}
    monkeypatch.setattr(command, "WORKLOADS", named)
    monkeypatch.setattr(results, "WORKLOADS", named)


def well(kind: str) -> Figures:
    return {"requests_per_s": float(len(kind))}


def fails(kind: str) -> Figures:
    raise TimeoutError(f"{kind} has no leaders")


def is_interrupted(kind: str) -> Figures:
    raise KeyboardInterrupt


def test_brokers_alternate_and_change_places(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workloads(monkeypatch, small=well)
    path = tmp_path / "results.json"

    assert command.run_all(("small",), BOTH, 3, path, look=False) == []

    result = results.load(path)["small"]
    assert ran == ["ottla", "kafka", "kafka", "ottla", "ottla", "kafka"]
    assert result.pairs == 3
    assert result.runs == {"ottla": [well("ottla")] * 3, "kafka": [well("kafka")] * 3}
    assert result.date
    assert result.machine["cores"] >= 1


def test_the_pairs_before_a_failure_are_kept(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workloads(monkeypatch, small=lambda kind: well(kind) if len(ran) < 6 else fails(kind))
    path = tmp_path / "results.json"

    assert command.run_all(("small",), BOTH, 3, path, look=False) == ["small"]

    result = results.load(path)["small"]
    assert result.pairs == 2
    assert [len(result.runs[kind]) for kind in BOTH] == [2, 2]


def test_a_workload_that_fails_is_named_and_the_others_go_on(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    workloads(monkeypatch, first=well, second=fails, third=well)
    path = tmp_path / "results.json"

    failed = command.run_all(("first", "second", "third"), BOTH, 1, path, look=False)

    assert failed == ["second"]
    assert list(results.load(path)) == ["first", "third"]
    assert "ottla has no leaders" in capsys.readouterr().err


def test_an_interrupt_keeps_what_is_done(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workloads(monkeypatch, first=well, second=is_interrupted, third=well)
    path = tmp_path / "results.json"

    failed = command.run_all(("first", "second", "third"), BOTH, 1, path, look=False)

    assert failed == ["second", "third"]
    assert list(results.load(path)) == ["first"]


def test_an_interrupt_leaves_what_was_measured_before(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workloads(monkeypatch, first=well)
    path = tmp_path / "results.json"
    command.run_all(("first",), BOTH, 3, path, look=False)
    workloads(monkeypatch, first=lambda kind: well(kind) if len(ran) < 9 else is_interrupted(kind))

    assert command.run_all(("first",), BOTH, 3, path, look=False) == ["first"]
    assert results.load(path)["first"].pairs == 3


def test_a_missing_tool_ends_it(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def lacks(kind: str) -> Figures:
        raise MissingToolError("install it")

    workloads(monkeypatch, first=lacks, second=well)

    with pytest.raises(MissingToolError, match="install it"):
        command.run_all(("first", "second"), BOTH, 1, tmp_path / "results.json", look=False)


def test_the_figures_stay_when_looking_fails(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def blind(name: str, workload: object) -> Seen:
        raise ValueError("no holds")

    workloads(monkeypatch, first=well)
    monkeypatch.setattr(profile, "look_at", blind)
    path = tmp_path / "results.json"

    assert command.run_all(("first",), BOTH, 1, path, look=True) == ["first"]
    assert results.load(path)["first"].median("kafka", "requests_per_s") == 5


def test_what_was_seen_is_kept_beside_the_figures(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workloads(monkeypatch, first=well)
    monkeypatch.setattr(profile, "look_at", lambda name, workload: Seen(Hold(2, 3.0, 1.0, "serve"), f"of {name}"))
    path = tmp_path / "results.json"

    assert command.run_all(("first",), BOTH, 1, path, look=True) == []
    assert results.load(path)["first"].hold == Hold(2, 3.0, 1.0, "serve")
    assert (tmp_path / "profiles" / "first.txt").read_text() == "of first"


def test_without_a_pair_the_figures_stay_and_it_is_looked_at(
    ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    workloads(monkeypatch, small=well)
    path = tmp_path / "results.json"
    assert command.run_all(("small",), BOTH, 1, path, look=False) == []
    before = results.load(path)["small"]
    hold = Hold(3, 1.0, 0.5, "Coordinators.tick")
    monkeypatch.setattr(profile, "look_at", lambda name, workload: Seen(hold, "text"))

    assert command.run_all(("small",), BOTH, 0, path, look=True) == []

    before.hold = hold
    assert results.load(path)["small"] == before


def test_kafka_alone_is_not_looked_at(ran: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    workloads(monkeypatch, first=well)
    path = tmp_path / "results.json"

    assert command.run_all(("first",), ("kafka",), 1, path, look=True) == []
    assert results.load(path)["first"].hold is None
