"""The parts of argparse's parsers, for completion and for the reference page."""

from __future__ import annotations

import argparse
from typing import NamedTuple


class Argument(NamedTuple):
    """An option, or a positional argument (then `flags` is empty)."""

    flags: tuple[str, ...]
    name: str
    value: str | None
    choices: tuple[str, ...]
    help: str
    is_repeated: bool


def arguments_of(parser: argparse.ArgumentParser) -> list[Argument]:
    """The options in the order in which they were declared, without --help and the subcommands."""
    return [
        _argument(action, parser)
        for action in parser._actions  # noqa: SLF001 - argparse has no other door
        if not isinstance(action, argparse._SubParsersAction | argparse._HelpAction)  # noqa: SLF001
        and action.help != argparse.SUPPRESS
    ]


def actions_of(parser: argparse.ArgumentParser) -> dict[str, tuple[str, argparse.ArgumentParser]]:
    """The subcommands of a command, by name: what they do, and their parsers."""
    for action in parser._actions:  # noqa: SLF001
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            helps = {it.dest: it.help or "" for it in action._choices_actions}  # noqa: SLF001
            return {name: (helps.get(name, ""), child) for name, child in action.choices.items()}
    return {}


def _argument(action: argparse.Action, parser: argparse.ArgumentParser) -> Argument:
    takes_value = action.nargs != 0
    metavar = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    choices = tuple(map(str, action.choices or ()))
    if choices and action.metavar is None:
        metavar = "|".join(choices)
    # argparse fills %(default)s and the like in only when it prints.
    text = parser._get_formatter()._expand_help(action) if action.help else ""  # noqa: SLF001
    return Argument(
        tuple(action.option_strings),
        action.dest,
        str(metavar) if takes_value else None,
        choices,
        text,
        action.nargs in ("*", "+", "...") or isinstance(action, argparse._AppendAction),  # noqa: SLF001
    )
