"""JSON out of a schema's text, bounded in depth."""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

from ottla.registry.formats import InvalidSchemaError
from ottla.schemas.json_text import MAX_DEPTH, is_deep


def loads(text: str) -> Any:
    """The value of a text. Raises InvalidSchemaError if it is not JSON, or nested too deeply."""
    check_depth(text)
    try:
        return strict_json(text)
    except ValueError as error:
        raise InvalidSchemaError(f"it is not JSON: {error}") from None


def strict_json(text: str) -> Any:
    """The value of a JSON text. ValueError if it is none, also for numbers that JSON cannot write again."""
    return json.loads(text, parse_constant=_refuse, parse_float=_finite)


def dumps(value: Any, *, sort_keys: bool = False) -> str:
    """The text of a value, without spaces."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def check_depth(text: str) -> None:
    """InvalidSchemaError if more than MAX_DEPTH objects and arrays are inside each other."""
    if is_deep(text):
        raise InvalidSchemaError(f"it has more than {MAX_DEPTH} objects and arrays inside each other")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number
