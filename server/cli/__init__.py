"""The `ottla` command. Each subcommand is a module with `configure(parser)` and `run(arguments) -> int`.

Only the module of the command that was called is loaded, so that `ottla serve` starts fast.

Exit codes: 0 done, 1 it failed (one line on stderr says why and what to do), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Final

COMMANDS: Final = {
    "serve": "start a broker",
    "topic": "create, list, describe, alter and delete topics",
    "produce": "send records from files or standard input",
    "consume": "print records",
    "decode": "show bytes of the Kafka protocol as messages",
    "fsck": "check a data folder for damage",
    "dump": "show the blocks, runs and records of data files",
}


class CommandError(Exception):
    """The command failed. The text is one sentence for people: what happened and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = sys.argv[1:] if argv is None else list(argv)
    called = next((word for word in arguments if not word.startswith("-")), None)
    parser = _parser(called)
    parsed = parser.parse_args(arguments)
    if parsed.command is None:
        parser.print_help()
        return 2
    try:
        return int(parsed.run(parsed))
    except CommandError as error:
        print(f"ottla {parsed.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read our output has enough of it (ottla consume … | head); nothing is left to be flushed.
        sys.stdout = None
        return 0
    except KeyboardInterrupt:
        return 130


def _parser(called: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="ottla", description="A broker that speaks Kafka's protocol.")
    parser.add_argument("--version", action="version", version=f"ottla {version()}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name, summary in COMMANDS.items():
        if find_spec(f"{__name__}.{name}") is None:
            continue
        command = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name == called:
            module = import_module(f"{__name__}.{name}")
            module.configure(command)
            command.set_defaults(run=module.run)
    return parser


def version() -> str:
    """The installed version of the package."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("ottla")
    except PackageNotFoundError:
        return "unknown"
