"""Errors of schemas, and of values that are written with them."""

from __future__ import annotations

from typing import Final

_MAX_REASON_LENGTH: Final = 300


class SchemaError(ValueError):
    """A schema that cannot be used; the text says why in one sentence."""


class ValueMismatchError(ValueError):
    """A value that does not fit its schema; the text says why in one sentence."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason if len(reason) <= _MAX_REASON_LENGTH else f"{reason[:_MAX_REASON_LENGTH]}…")


def first_line(error: BaseException) -> str:
    """The first line of a library's error."""
    return str(error).partition("\n")[0] or type(error).__name__
