"""Every option has a help text, which says what holds without the option."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from ottla.cli import available, parser_of
from ottla.cli.parsers import actions_of


def options(parser: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, argparse.Action]]:
    for action in parser._actions:
        if action.option_strings and action.help != argparse.SUPPRESS:
            yield f"{name} {action.option_strings[-1]}", action
    for child, (_, inner) in actions_of(parser).items():
        yield from options(inner, f"{name} {child}")


@pytest.mark.parametrize("name", available())
def test_every_option_says_its_default(name: str) -> None:
    if name == "table" and find_spec("pyspark") is None:
        pytest.skip("pyspark is not installed")
    silent = [
        option
        for option, action in options(parser_of(name), name)
        if not action.help
        or (action.default not in (None, False, [], argparse.SUPPRESS) and "default" not in action.help)
    ]
    assert silent == []
