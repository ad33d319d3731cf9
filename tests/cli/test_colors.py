"""Colors are for terminals, and not for those who set NO_COLOR."""

from __future__ import annotations

import io

import pytest

from ottla.cli.options import colored


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


def test_a_terminal_has_colors_and_a_file_has_none() -> None:
    assert colored("FAIL", "red", Terminal()) == "\x1b[31mFAIL\x1b[0m"
    assert colored("FAIL", "red", io.StringIO()) == "FAIL"


@pytest.mark.parametrize(
    ("variable", "value", "is_colored"), [("NO_COLOR", "1", False), ("NO_COLOR", "", True), ("TERM", "dumb", False)]
)
def test_who_wants_no_colors_has_none(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str, is_colored: bool
) -> None:
    monkeypatch.setenv(variable, value)
    assert (colored("ok", "green", Terminal()) != "ok") is is_colored
