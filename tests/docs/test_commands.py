"""Every `ottla` command that the documentation shows is one: it exists, and it takes those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from ottla import cli

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

NOTES = ROOT / "packaging/helm/ottla/templates/NOTES.txt"

_BLOCK = re.compile(r"^```(?:sh|console|bash)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMAND = re.compile(r"(?:^|\| )\$? ?(ottla [a-z-]+.*)$")
#: Where a command ends in a shell's line; `#` begins a comment, as shlex has it.
_ENDS = {"|", "||", "&&", "&", ";", ">", "<", "<<<", "2>"}


def commands() -> Iterator[object]:
    for page in PAGES:
        for block in _BLOCK.findall(page.read_text()):
            for line in block.replace("\\\n", " ").splitlines():
                found = _COMMAND.search(line)
                if found is not None:
                    words = shlex.split(found[1], comments=True)
                    end = next((place for place, word in enumerate(words) if word in _ENDS), len(words))
                    yield pytest.param(words[1:end], id=f"{page.stem}: {found[1][:60].strip()}")

    for line in NOTES.read_text().splitlines():
        if " -- ottla " in line:
            yield pytest.param(shlex.split(line.partition(" -- ottla ")[2]), id=f"{NOTES.stem}: {line[-60:]}")


@pytest.mark.parametrize("words", list(commands()))
def test_the_command_is_understood(words: list[str]) -> None:
    name, *arguments = words
    assert name in cli.COMMANDS
    if name == "table" and find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed")
    module, parser = cli.load(name), cli.parser_of(name)
    if getattr(module, "HAS_ACTIONS", False):
        parser.parse_args(arguments)
    else:
        parser.parse_intermixed_args(arguments)


def test_there_are_commands() -> None:
    assert len(list(commands())) > 40
