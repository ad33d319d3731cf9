"""The bound on log lines."""

import logging

from ottla.runtime.logs import LineLimit


def record(level: int = logging.INFO) -> logging.LogRecord:
    return logging.LogRecord("x", level, "x.py", 1, "line %d", (7,), None)


def test_lines_beyond_the_limit_are_counted_and_told_later() -> None:
    now = 5.0
    limit = LineLimit(3, lambda: now)
    assert [limit.filter(record()) for _ in range(10)] == [True] * 3 + [False] * 7
    assert limit.filter(record(logging.ERROR)) is False
    now = 6.1
    told = record()
    assert limit.filter(told)
    assert told.getMessage() == "line 7 (and 8 lines before it that are not shown)"
    following = record()
    assert limit.filter(following)
    assert following.getMessage() == "line 7"


def test_critical_lines_always_pass() -> None:
    limit = LineLimit(1, lambda: 0.0)
    assert [limit.filter(record(logging.CRITICAL)) for _ in range(5)] == [True] * 5
