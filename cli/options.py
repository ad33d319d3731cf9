"""Common parts of several commands: options, progress, tables."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from ottla.settings.units import size_bytes, with_unit, without_unit

_COLORS: Final = {"bold": 1, "red": 31, "green": 32, "yellow": 33}
_NEXT_SETTING: Final = re.compile(r",(?=\s*[A-Za-z][A-Za-z0-9_.-]*=)\s*")
_PROGRESS_SECONDS: Final = 0.2
_BAR_WIDTH: Final = 30


def add_bootstrap(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT[,…]",
        help="brokers to ask first (default: $OTTLA_BOOTSTRAP, else 127.0.0.1:9092)",
    )
    parser.add_argument(
        "--command-config",
        type=Path,
        metavar="FILE",
        help="how to connect: a client's properties, as Kafka's tools take them (default: $OTTLA_COMMAND_CONFIG)",
    )
    parser.add_argument(
        "--timeout", type=seconds, default=30, metavar="SECONDS", help="how long to wait for an answer (default: 30)"
    )


def add_json(parser: argparse.ArgumentParser, *, instead_of: str = "a table") -> None:
    parser.add_argument("--json", action="store_true", help=f"print JSON instead of {instead_of}")


def name_and_value(text: str) -> tuple[str, str]:
    """`name=value`, for argparse."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r}: write name=value")
    return name, value


def setting(text: str) -> tuple[str, str]:
    """`name=value` of a setting, for argparse; a unit (`7d`, `100MiB`) is converted to the setting's own."""
    name, value = name_and_value(text)
    try:
        return name, without_unit(name, value)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def setting_value(name: str, value: str | None) -> str:
    """A setting's value for people: as it is, and behind it as they would write it: `604800000 (7d)`."""
    if value is None:
        return "(none)"
    written = with_unit(name, value)
    return value if written is None else f"{value} ({written})"


def settings(text: str) -> list[tuple[str, str]]:
    """Settings separated by commas, for argparse; a comma that no `name=` follows belongs to the value (a list)."""
    return [setting(part) for part in _NEXT_SETTING.split(text)]


def mib(text: str) -> int:
    """A size in MiB, or with a unit, for argparse."""
    size = size_bytes(text)
    if size is None and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write a number of MiB, or one like 512MiB or 2GiB")
    return int(text) if size is None else size // 1_048_576


def plain_number(value: float) -> str:
    """All digits, and a fraction only if there is one: 1048576, 0.5."""
    return str(int(value)) if value == int(value) else repr(value)


def counted(number: int, noun: str) -> str:
    """How many, in words: `1 topic`, `2,000 topics`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def port(text: str) -> int:
    """A TCP port, or 0, for argparse."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: write a number from 0 to 65535")
    return int(text)


def number(text: str) -> int:
    """A whole number, for argparse."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def count(text: str) -> int:
    """How many of something, for argparse: at least one."""
    if (value := number(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is too few: write 1 or more")
    return value


def seconds(text: str) -> float:
    """A time, for argparse: more than nothing, less than forever."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time: write a number of seconds, such as 30 or 0.5")
    return value


def nodes(text: str) -> int:
    """How many nodes, for argparse; 0 stands for auto."""
    if text != "auto" and not (text.isdecimal() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of nodes: write 1 or more, or auto")
    return 0 if text == "auto" else int(text)


def unescape(text: str) -> str:
    """Turn backslash escapes (`\\n`, `\\t`, `\\x1f`, …) into what they stand for."""
    escapes = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
    out = []
    position = 0
    while position < len(text):
        char = text[position]
        if char != "\\" or position + 1 == len(text):
            out.append(char)
            position += 1
            continue
        kind = text[position + 1]
        digits = text[position + 2 : position + 4]
        if kind == "x" and len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            out.append(chr(int(digits, 16)))
            position += 4
            continue
        out.append(escapes.get(kind, char + kind))
        position += 2
    return "".join(out)


def colored(text: str, color: str, stream: IO[str]) -> str:
    """The text in one of _COLORS on a terminal that knows colors, unless NO_COLOR is set (https://no-color.org)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\x1b[{_COLORS[color]}m{text}\x1b[0m"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Aligned columns, line by line."""
    lines = [list(head), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns."""
    for number, line in enumerate(table(head, rows)):
        print(line if number else colored(line, "bold", sys.stdout))


class Progress:
    """A line on stderr that shows the progress of a long job; nothing if stderr is not a terminal.

    A job that counts records calls `add`; one that knows how many bytes there are calls `set_bytes` and gets a bar.
    """

    def __init__(self, verb: str, *, enabled: bool = True) -> None:
        self._verb = verb
        self._enabled = enabled and sys.stderr.isatty()
        self._started = self._shown = time.monotonic()
        self.records = 0
        self.size_bytes = 0
        self.total_bytes: int | None = None

    def add(self, records: int, size_bytes: int) -> None:
        self.records += records
        self.size_bytes += size_bytes
        self._show()

    def set_bytes(self, size_bytes: int, total_bytes: int) -> None:
        self.size_bytes, self.total_bytes = size_bytes, total_bytes
        self._show()

    def finish(self) -> None:
        if self._enabled:
            print(f"\r\x1b[K{self._line(time.monotonic())}", file=sys.stderr, flush=True)

    def _show(self) -> None:
        now = time.monotonic()
        if self._enabled and now - self._shown >= _PROGRESS_SECONDS:
            self._shown = now
            print(f"\r\x1b[K{self._line(now)}", end="", file=sys.stderr, flush=True)

    def _line(self, now: float) -> str:
        seconds = max(now - self._started, 1e-3)
        if self.total_bytes is None:
            rate = self.records / seconds
            return f"{self._verb} {self.records:,} records, {self.size_bytes / 1e6:,.1f} MB, {rate:,.0f} a second"
        share = self.size_bytes / self.total_bytes if self.total_bytes else 1.0
        bar = ("#" * round(share * _BAR_WIDTH)).ljust(_BAR_WIDTH, ".")
        rate = self.size_bytes / seconds
        left = f", {(self.total_bytes - self.size_bytes) / rate:,.0f} s left" if rate and share < 1 else ""
        done = f"{self.size_bytes / 1e6:,.1f} of {self.total_bytes / 1e6:,.1f} MB"
        return f"{self._verb} [{bar}] {share:4.0%}  {done}, {rate / 1e6:,.1f} MB/s{left}"


def human_size(size_bytes: float) -> str:
    """`1.5 GB`: four characters and a unit of powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if abs(size_bytes) < 999.5:
            return f"{size_bytes:.0f} {unit}" if unit == "B" or size_bytes >= 100 else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1000
    return f"{size_bytes:.1f} TB"
