"""Writes docs/command-line.md from the commands' parsers: `python docs/generate_command_line.py`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path

from ottla.cli import COMMANDS, load, parser_of
from ottla.cli.parsers import Argument, actions_of, arguments_of

PAGE = Path(__file__).with_name("command-line.md")

_INTRODUCTION = """\
# The command line

This page is generated from the commands by `docs/generate_command_line.py`. `ottla COMMAND --help` says the same.

`ottla` speaks to any Kafka broker, not only to Ottla. `--bootstrap`, or the variable `OTTLA_BOOTSTRAP`, says where one
is. Every listing takes `--json`. Tables, sentences and JSON go to standard output; what goes wrong to standard error,
in one line, which also says what to do where the command can know it. Long work shows its progress on a terminal.

| exit code | meaning |
|---:|---|
| 0 | done |
| 1 | it failed |
| 2 | wrong usage |
| 3 | `fsck`: only what the next start repairs by itself |
| 4 | `fsck`, `dump`: damage |
| 130 | interrupted |
"""

# Said once above, or the same everywhere.
_COMMON = ("bootstrap", "timeout", "json")


def page() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for name, command in COMMANDS.items():
        parts.append("\n".join(_command(name, command.summary)))
    return "\n".join(parts)


def _command(name: str, summary: str) -> Iterator[str]:
    parser = parser_of(name)
    yield f"## ottla {name}"
    yield ""
    yield _explanation(name) or f"{summary[0].upper()}{summary[1:]}."
    yield ""
    if actions := actions_of(parser):
        for action, (what, child) in actions.items():
            yield f"### {_usage(f'ottla {name} {action}', child)}"
            yield ""
            yield f"{what[:1].upper()}{what[1:]}."
            yield ""
            yield from _table(child)
    else:
        yield f"`{_usage(f'ottla {name}', parser)}`"
        yield ""
        yield from _table(parser)


def _explanation(name: str) -> str:
    """What the module says of itself, without its title."""
    _, _, rest = cleandoc(load(name).__doc__ or "").partition("\n\n")
    return rest


def _usage(command: str, parser: argparse.ArgumentParser) -> str:
    places = [argument for argument in arguments_of(parser) if not argument.flags]
    return " ".join([command, *map(_place, places)])


def _place(argument: Argument) -> str:
    shown = (argument.value or argument.name).upper()
    return f"{shown} …" if argument.is_repeated else shown


def _table(parser: argparse.ArgumentParser) -> Iterator[str]:
    known = arguments_of(parser)
    rows = [it for it in known if it.name not in _COMMON and (it.flags or it.help)]
    if not rows:
        return
    yield "| | |"
    yield "|---|---|"
    for argument in rows:
        yield f"| {_shown(argument)} | {_cell(argument.help)} |"
    yield ""


def _shown(argument: Argument) -> str:
    if not argument.flags:
        return f"`{_cell(_place(argument))}`"
    value = f" {argument.value}" if argument.value else ""
    return _cell(", ".join(f"`{flag}{value}`" for flag in argument.flags))


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
