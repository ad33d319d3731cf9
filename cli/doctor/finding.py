"""Findings of `ottla doctor`."""

from __future__ import annotations

from typing import Final, NamedTuple

OK: Final = "ok"
WARN: Final = "warn"
FAIL: Final = "fail"


class Finding(NamedTuple):
    """`advice` says what to do; it is empty if all is well."""

    level: str
    subject: str
    message: str
    advice: str = ""


def ok(subject: str, message: str) -> Finding:
    return Finding(OK, subject, message)


def warn(subject: str, message: str, advice: str) -> Finding:
    return Finding(WARN, subject, message, advice)


def fail(subject: str, message: str, advice: str) -> Finding:
    return Finding(FAIL, subject, message, advice)
