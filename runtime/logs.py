"""Log lines: for people on a terminal, JSON for programs.

A line says in its words all that a reader needs. What a program would search by it carries as keys too, which are the
record's `extra`: `logger.info("…", extra={"topic": …, "partition": …})`. The names of keys are those of `KEYS`.

These are the standard library's records with formatters of our own: structlog's import alone would take a third of
the time in which a broker is to start (docs/decisions/0007-log-lines-and-metrics.md).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections.abc import Callable
from typing import IO, Any, Final

LINES_PER_SECOND: Final = 100
"""Invalid requests must neither fill the disk with log lines nor hold the loop while those are written."""

#: What a key means wherever it stands.
KEYS: Final = {
    "api": "name of the API of the request",
    "client": "address and port of the client",
    "client_id": "the client's name for itself, as in its last request",
    "duration_ms": "how long it took",
    "error": "what went wrong, as text",
    "generation": "generation of the group",
    "group": "id of the group",
    "http": "where the HTTP port is",
    "listener": "name of the listener to which the client connected",
    "listeners": "names and addresses that the broker listens on",
    "member": "id of the group's member",
    "logged_by": "id of the broker that writes the line, where several share a stream",
    "members": "how many members",
    "node": "id of the broker",
    "partition": "number of the partition",
    "partitions": "how many partitions",
    "path": "file or folder",
    "position": "byte in the file",
    "settings": "names of settings",
    "signal": "name of the signal",
    "task": "name of the task that held the loop",
    "topic": "name of the topic",
    "transactional_id": "transactional id of the producer",
    "version": "version of Ottla",
}

_COLORS: Final = {"DEBUG": "\x1b[2m", "WARNING": "\x1b[33m", "ERROR": "\x1b[31m", "CRITICAL": "\x1b[1;31m"}
_NO_COLOR: Final = "\x1b[0m"


class ConsoleFormatter(logging.Formatter):
    """`2026-01-31 12:00:00,000 WARNING the words`, with a colour where asked for.

    With `node_id`, `[2]` stands before the words: several nodes write to one stream.
    """

    def __init__(self, *, colors: bool = False, node_id: int | None = None) -> None:
        writer = "" if node_id is None else f"[{node_id}] "
        super().__init__(f"%(asctime)s %(levelname)-7s {writer}%(message)s")
        self._colors = colors

    def format(self, record: logging.LogRecord) -> str:
        line = super().format(record)
        color = _COLORS.get(record.levelname) if self._colors else None
        return line if color is None else f"{color}{line}{_NO_COLOR}"


class JsonFormatter(logging.Formatter):
    """One JSON object: `time` (UTC), `level`, `event` (the words), `logger`, the line's keys, and `exception`.

    With `node_id`, `logged_by` says who writes: several nodes write to one stream.
    """

    def __init__(self, *, node_id: int | None = None) -> None:
        super().__init__()
        self._writer = {} if node_id is None else {"logged_by": node_id}

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{seconds}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            "logger": record.name,
            **self._writer,
        }
        own = record.__dict__
        for key in KEYS:
            if key in own:
                line[key] = own[key]
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class LineLimit(logging.Filter):
    """Passes a limited number of records a second; the first one of a later second says how many were left out.

    Critical records always pass. Add it to a handler, which then counts all loggers together.
    """

    def __init__(
        self, lines_per_second: int = LINES_PER_SECOND, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limit = lines_per_second
        self._monotonic = monotonic
        self._second = 0
        self._lines = 0
        self._left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        second = int(self._monotonic())
        if second != self._second:
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines > self._limit and record.levelno < logging.CRITICAL:
            self._left_out += 1
            return False
        if self._left_out:
            record.msg = f"{record.getMessage()} (and {self._left_out} lines before it that are not shown)"
            record.args = None
            self._left_out = 0
        return True


def configure(level: str, form: str, stream: IO[str] | None = None, *, node_id: int | None = None) -> None:
    """Write log lines of this level and above to `stream` (standard error) in a form: auto, console or json.

    `node_id` is named in each of them, for a stream that several nodes write to.
    """
    stream = sys.stderr if stream is None else stream
    is_terminal = stream.isatty()
    formatter: logging.Formatter
    if form == "json" or (form == "auto" and not is_terminal):
        formatter = JsonFormatter(node_id=node_id)
    else:
        formatter = ConsoleFormatter(colors=is_terminal and not os.environ.get("NO_COLOR"), node_id=node_id)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    handler.addFilter(LineLimit())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
