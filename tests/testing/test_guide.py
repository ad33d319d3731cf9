"""The testing guide is true: its tests pass, and the command line knows what it tells to type."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path

import pytest

from ottla.cli import load

GUIDE = Path(__file__).parents[2] / "docs/testing.md"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """The guide's blocks in a language, each with the file that it shows, if any."""
    return [(title, code) for found, title, code in BLOCK.findall(GUIDE.read_text()) if found == language]


def test_every_test_in_the_guide_passes(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    code = [text for _, text in blocks("python")]
    for number, text in enumerate(code):
        (pytester.path / f"test_guide_{number:02}.py").write_text(text)
    for title, text in blocks("json"):
        (pytester.path / title).write_text(text)

    result = pytester.runpytest_subprocess("-p", "ottla.testing.pytest_plugin", "--strict-markers")

    result.assert_outcomes(passed=sum(text.count("def test_") for text in code))
    assert len(code) >= 10


def test_settings_of_a_project_are_known(pytester: pytest.Pytester) -> None:
    ((title, text),) = blocks("toml")
    assert title == "pyproject.toml"
    config = pytester.parseconfig("-c", str(pytester.makefile(".toml", pyproject=text)))
    assert config.getini("ottla_config") == ["num.partitions=6"]


def test_commands_are_ones_that_the_command_line_takes() -> None:
    typed = [line.removeprefix("$ ottla ") for _, text in blocks("console") for line in text.splitlines()]
    commands = [shlex.split(line) for line in typed if line.split()[0] in ("test-broker", "record", "replay")]
    assert len(commands) >= 5
    for name, *words in commands:
        parser = argparse.ArgumentParser(exit_on_error=False)
        load(name).configure(parser)
        parser.parse_intermixed_args(words)
