"""What `make test` says at its end of programs that are missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import programs


def test_each_missing_program_is_named_with_its_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in programs.PROGRAMS:
        if program.name not in ("etcd", "kcat"):
            (tmp_path / program.name).touch(mode=0o755)
    monkeypatch.setattr(programs, "_PATH", str(tmp_path))
    programs.main()
    told = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in told[1:-1]] == ["etcd", "kcat"]
    assert told[-1] == "On Debian: apt-get install etcd-server kcat"


def test_nothing_is_said_where_nothing_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for program in programs.PROGRAMS:
        (tmp_path / program.name).touch(mode=0o755)
    monkeypatch.setattr(programs, "_PATH", str(tmp_path))
    programs.main()
    assert capsys.readouterr().out == ""


def test_the_readme_names_the_packages_that_most_tests_need() -> None:
    readme = (Path(__file__).resolve().parents[1] / "README.md").read_text()
    for program in programs.PROGRAMS[:3]:
        assert program.package in readme
