"""The `ottla` command. Each subcommand is a module with `configure(parser)` and `run(arguments) -> int`.

Only the module of the command that was called is loaded, so that `ottla serve` starts fast.

Exit codes: 0 done, 1 it failed (one line on stderr says why and what to do), 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import argparse
import gc
import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Final, NamedTuple, NoReturn


class Command(NamedTuple):
    """A command: its module, in this package or by its whole name, and what it does.

    Modules of other packages are named by strings, because the server never imports them.
    """

    module: str
    summary: str


COMMANDS: Final = {
    "serve": Command("serve.serve", "start a broker"),
    "test-broker": Command(
        "ottla.testing.control", "start a broker for tests in any language, which control it over HTTP"
    ),
    "proxy": Command("proxy.proxy", "stand in front of a cluster and forward its clients' requests"),
    "registry": Command("registry", "serve a schema registry before any Kafka"),
    "mirror": Command("mirror.mirror", "keep exact copies of another cluster's topics, and move from there to here"),
    "topic": Command(
        "topics.topic", "create, list, describe, alter and delete topics, and delete their oldest records"
    ),
    "config": Command("cluster.config", "get, set and unset dynamic settings of topics, brokers, groups and loggers"),
    "quota": Command("access.quota", "list, set and unset what users, clients and addresses may use"),
    "user": Command("access.user", "add, list and delete users who authenticate with a password"),
    "cert": Command("access.cert", "make certificates for more brokers and for clients"),
    "acl": Command("access.acl", "add, list, delete and explain who may do what"),
    "group": Command("groups.group", "list, describe, seek and delete groups"),
    "transaction": Command("cluster.transaction", "list, describe and abort transactions"),
    "produce": Command("records.produce", "send records from files or standard input"),
    "consume": Command("records.consume", "print records"),
    "record": Command("records.record", "write the records of topics into a file that people can read"),
    "replay": Command("records.replay", "send a recording again, with its timing, faster, or at once"),
    "decode": Command("records.decode", "show bytes of the Kafka protocol as messages"),
    "cluster": Command("cluster.cluster", "show the cluster: its brokers, features and APIs"),
    "log-dirs": Command("cluster.log_dirs", "show how much of the disk each partition takes"),
    "tier": Command("tiers.tier", "show what is in the object store of tiered topics"),
    "mcp": Command("mcp", "offer tools for agents: topics, records, groups, settings and rights"),
    "top": Command("cluster.top", "watch rates, lag, memory and connections, live"),
    "doctor": Command("doctor", "check whether a broker can run here and be reached"),
    "backup": Command("folders.backup", "copy a data folder, even while its broker runs"),
    "restore": Command("folders.restore", "make a data folder from a backup, or recreate its lost metadata"),
    "fsck": Command("folders.fsck", "check a data folder, or the object store of tiered topics, for damage"),
    "dump": Command("folders.dump", "show the blocks, runs and records of data files"),
    "salvage": Command("folders.salvage", "take records out of data files that are damaged or were set aside"),
    "completion": Command("completion", "complete commands, options and topics in bash, zsh and fish"),
    "simulate": Command(
        "ottla.simulation.command",
        "run clusters, storage or coordinators as seeds decide, under faults, and check what is seen",
    ),
    "table": Command("ottla.pipeline.cli", "keep tables in step with topics, or send a table to a topic, on Spark"),
}

#: Modules of distributions with other names.
_DISTRIBUTIONS: Final = {"grpc_tools": "grpcio-tools", "google": "protobuf"}
_OF_EXTRA: Final = re.compile(r"""([\w.-]+)[^;]*;.*extra == ['"]([\w-]+)['"]""")
#: How argparse refuses what is none of the choices, and an option that it does not know.
_INVALID_CHOICE: Final = re.compile(r"invalid choice: '?([^' ]*)'? \(choose from (.*)\)")
_UNKNOWN_OPTION: Final = re.compile(r"unrecognized arguments: (--[\w-]+)")
_CHOICE: Final = re.compile(r"[\w.-]+")


class Parser(argparse.ArgumentParser):
    """Names what was probably meant where a command, an action or a choice is misspelt; its actions do so, too."""

    def error(self, message: str) -> NoReturn:
        if (found := _INVALID_CHOICE.search(message)) is not None:
            message += _did_you_mean(found[1], _CHOICE.findall(found[2]))
        elif (found := _UNKNOWN_OPTION.search(message)) is not None:
            message += _did_you_mean(found[1], _options_of(self))
        super().error(message)


def _did_you_mean(word: str, known: Sequence[str]) -> str:
    from difflib import get_close_matches

    nearest = get_close_matches(word, known, n=1)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def _options_of(parser: argparse.ArgumentParser) -> list[str]:
    """The options of a parser and of its actions."""
    from ottla.cli.parsers import actions_of, arguments_of

    parsers = [parser, *(action for _, action in actions_of(parser).values())]
    return sorted({flag for each in parsers for argument in arguments_of(each) for flag in argument.flags})


class CommandError(Exception):
    """The command failed. The text is one sentence for people: what happened and what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. Wrong usage raises SystemExit(2), as argparse does."""
    try:
        try:
            return _main(sys.argv[1:] if argv is None else list(argv))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        # The reader of our output has closed the pipe (ottla consume … | head). Without this, the rest would be
        # flushed at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _main(words: list[str]) -> int:
    name = words[0] if words and words[0] in COMMANDS and _is_installed(words[0]) else None
    if name is None:
        _overview().parse_args(words)  # --help, --version, or what is wrong
        _overview().print_help(sys.stderr)
        return 2
    try:
        with _uncollected():
            module = load(name)
            arguments = _parse(module, parser_of(name), words[1:])
        return int(module.run(arguments))
    except CommandError as error:
        _print_failure(name, str(error))
        return 1
    except OSError as error:
        if error.filename is None:
            raise
        _print_failure(name, f"{error.filename}: {error.strerror}")
        return 1
    except ModuleNotFoundError as error:
        extra = _extra_of(error.name or "")
        if extra is None:
            raise
        _print_failure(name, f"{error.name} is not installed: pip install 'ottla[{extra}]' brings it")
        return 1
    except KeyboardInterrupt:
        return 130


def _extra_of(module: str) -> str | None:
    """The extra of Ottla that brings a module; None if it is none of an extra's."""
    from collections import Counter
    from importlib.metadata import PackageNotFoundError, requires

    package = module.partition(".")[0]
    package = _DISTRIBUTIONS.get(package, package).replace("_", "-").lower()
    try:
        wanted = requires("ottla") or []
    except PackageNotFoundError:
        return None
    found = [(each[1].lower(), each[2]) for each in map(_OF_EXTRA.match, wanted) if each is not None]
    sizes = Counter(extra for _, extra in found)
    # Of several extras the one that brings the least besides.
    return min((extra for name, extra in found if name == package), key=sizes.__getitem__, default=None)


def _print_failure(name: str, text: str) -> None:
    from ottla.cli.options import colored

    print(f"{colored(f'ottla {name}:', 'red', sys.stderr)} {text}", file=sys.stderr)


@contextmanager
def _uncollected() -> Iterator[None]:
    """Importing makes many objects and little garbage; collecting it would take a tenth of a command's start."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _parse(module: ModuleType, parser: argparse.ArgumentParser, words: list[str]) -> argparse.Namespace:
    """Allow files among the options; argparse cannot do that for a command that has subcommands."""
    has_arguments = bool(parser._get_positional_actions())  # noqa: SLF001 - finding that there are none costs much
    if has_arguments and not getattr(module, "HAS_ACTIONS", False):
        return parser.parse_intermixed_args(words)
    return parser.parse_args(words)


def load(name: str) -> ModuleType:
    """The module of a command."""
    return import_module(_module(name))


def parser_of(name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    parser = Parser(prog=f"ottla {name}", description=_sentence(COMMANDS[name].summary))
    load(name).configure(parser)
    return parser


def available() -> list[str]:
    """The commands that are installed."""
    return list(filter(_is_installed, COMMANDS))


def _is_installed(name: str) -> bool:
    return find_spec(_module(name)) is not None


def _module(name: str) -> str:
    module = COMMANDS[name].module
    return module if module.startswith("ottla.") else f"{__name__}.{module}"


def _overview() -> argparse.ArgumentParser:
    from ottla.runtime.version import version

    parser = Parser(prog="ottla", description="A broker that speaks Kafka's protocol.")
    parser.add_argument("--version", action="version", version=f"ottla {version()}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    for name in available():
        commands.add_parser(name, help=COMMANDS[name].summary, description=_sentence(COMMANDS[name].summary))
    return parser


def _sentence(summary: str) -> str:
    return summary[0].upper() + summary[1:] + "."
