"""The parameters of an address. Anybody may write anything there, so whatever makes no sense counts as not given."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.requests import Request

_MAX_TEXT: Final = 4_096
_MAX_NUMBER: Final = 2**63 - 1


def text(request: Request, name: str, longest: int = _MAX_TEXT) -> str:
    """A parameter's text, empty if there is none."""
    return request.query_params.get(name, "")[:longest]


def integer(request: Request, name: str, default: int) -> int:
    """A parameter's number in the range of an offset; the default if it is not one."""
    return as_integer(request.query_params.get(name, ""), default)


def number(request: Request, name: str) -> float:
    """A parameter's number; 0 if it is not one."""
    try:
        value = float(request.query_params.get(name, "0")[:40])
    except ValueError:
        return 0.0
    return value if isfinite(value) else 0.0


def as_integer(value: str, default: int) -> int:
    """The number that a text says, or the default."""
    value = value.strip()
    if len(value) > 20 or not value.isascii() or not value.removeprefix("-").isdigit():
        return default
    number = int(value)
    return number if -_MAX_NUMBER <= number <= _MAX_NUMBER else default
