"""How one option's text is read: whole numbers, choices, durations, JSON. OptionError says what to write."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final

from ottla.pipeline.errors import OptionError

__all__ = ["choice", "duration_ms", "is_int", "json_object", "number_of", "positive"]

_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)")
_UNITS_MS: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def json_object(name: str, text: str, example: str) -> dict[str, object]:
    """The JSON object that an option holds; `example` is what a message says to write."""
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise OptionError(f"Option {name} is not JSON ({error}): write {example}.") from None
    if not isinstance(found, dict):
        raise OptionError(f"Option {name} is {text}: write {example}.")
    return found


def choice(given: Mapping[str, str], name: str, choices: Mapping[str, bool], default: str) -> bool:
    """What one of a few words stands for."""
    text = given.get(name.lower(), default)
    found = choices.get(text.lower())
    if found is None:
        raise OptionError(f"Option {name} is {text!r}: write one of {', '.join(choices)}.")
    return found


def positive(given: Mapping[str, str], name: str, most: int | None = None) -> int | None:
    """A number above 0, None if the option is not given."""
    text = given.get(name.lower())
    if text is None:
        return None
    number = number_of(name, text)
    if number <= 0:
        raise OptionError(f"Option {name} is {text}: write a number above 0.")
    if most is not None and number > most:
        raise OptionError(f"Option {name} is {text}: write a number of at most {most}.")
    return number


def number_of(name: str, text: str) -> int:
    """A whole number."""
    try:
        return int(text)
    except ValueError:
        raise OptionError(f"Option {name} is {text!r}: write a whole number.") from None


def duration_ms(given: Mapping[str, str], name: str, default: str) -> int:
    """A duration, such as 15m, in milliseconds."""
    text = given.get(name.lower(), default)
    found = _DURATION.fullmatch(text.lower())
    if found is None:
        raise OptionError(f"Option {name} is {text!r}: write a number and ms, s, m, h or d, such as 15m.")
    return int(found[1]) * _UNITS_MS[found[2]]


def is_int(number: object) -> bool:
    """Whether a value of JSON is a whole number, which `true` is not."""
    return isinstance(number, int) and not isinstance(number, bool)
