"""Log lines: for people, and for programs."""

from __future__ import annotations

import io
import json
import logging
import re

import pytest

from ottla.runtime import logs
from ottla.runtime.logs import KEYS, ConsoleFormatter, JsonFormatter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def record(level: int = logging.INFO, text: str = "it is %s", *args: object, **extra: object) -> logging.LogRecord:
    return logging.getLogger("ottla.test").makeRecord(
        "ottla.test", level, "file.py", 1, text, args or ("so",), None, extra=extra
    )


def test_a_line_for_people_is_the_words() -> None:
    line = ConsoleFormatter().format(record(logging.WARNING, topic="t"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} WARNING it is so", line)


def test_on_a_terminal_what_matters_has_a_colour() -> None:
    formatter = ConsoleFormatter(colors=True)
    assert "\x1b" not in formatter.format(record())
    assert formatter.format(record(logging.ERROR)).startswith("\x1b[31m")
    assert formatter.format(record(logging.ERROR)).endswith("\x1b[0m")


def test_a_line_for_programs_is_an_object_with_its_keys() -> None:
    made = record(topic="t", partition=3, unknown="left out")
    made.created, made.msecs = 1_700_000_000.5, 500
    assert json.loads(JsonFormatter().format(made)) == {
        "time": "2023-11-14T22:13:20.500Z",
        "level": "info",
        "event": "it is so",
        "logger": "ottla.test",
        "topic": "t",
        "partition": 3,
    }


def test_an_exception_is_in_the_object_and_it_stays_one_line() -> None:
    error = ValueError("two\nlines")
    made = record()
    made.exc_info = (type(error), error, None)
    line = JsonFormatter().format(made)
    assert "\n" not in line
    assert "ValueError: two\nlines" in json.loads(line)["exception"]


def test_what_json_does_not_know_is_text() -> None:
    assert json.loads(JsonFormatter().format(record(error=OSError(5, "broken"))))["error"] == "[Errno 5] broken"


@pytest.mark.parametrize(
    ("form", "stream", "is_json"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("console", io.StringIO, False),
    ],
)
def test_the_form_follows_the_setting_and_the_terminal(form: str, stream: type[io.StringIO], is_json: bool) -> None:
    written = stream()
    logs.configure("warning", form, written)
    logging.getLogger("ottla.test").info("not this")
    logging.getLogger("ottla.test").warning("this")
    (line,) = written.getvalue().splitlines()
    assert line.startswith("{") == is_json
    assert "this" in line


def test_colours_can_be_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    written = Terminal()
    logs.configure("info", "auto", written)
    logging.getLogger("ottla.test").error("plain")
    assert "\x1b" not in written.getvalue()


def test_keys_do_not_hide_what_a_record_has_of_its_own() -> None:
    assert not KEYS.keys() & record().__dict__.keys()
