"""JSON that comes from outside, bounded in depth."""

from __future__ import annotations

import json
from typing import Any, Final

from ottla.schemas.errors import SchemaError, ValueMismatchError

MAX_DEPTH: Final = 100
"""Objects and arrays inside each other in a schema. Recursive code uses a few frames for each; Python allows 1,000."""


def is_deep(text: str, limit: int = MAX_DEPTH) -> bool:
    """Whether more than so many objects and arrays are inside each other."""
    # Most texts cannot be that deep, and counting is ten times as fast as looking.
    if text.count("[") + text.count("{") <= limit:
        return False
    depth, is_text, is_escaped = 0, False, False
    for character in text:
        if is_text:
            if is_escaped:
                is_escaped = False
            elif character == "\\":
                is_escaped = True
            elif character == '"':
                is_text = False
        elif character == '"':
            is_text = True
        elif character in "[{":
            depth += 1
            if depth > limit:
                return True
        elif character in "]}":
            depth -= 1
    return False


def schema_json(text: str) -> Any:
    """A schema's text that is JSON. Raises SchemaError."""
    if is_deep(text):
        raise SchemaError(f"it has more than {MAX_DEPTH} objects and arrays inside each other")
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"it is not JSON: {error}") from None


def value_json(data: bytes | str) -> Any:
    """A value that is JSON. Raises ValueMismatchError."""
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ValueMismatchError(f"it is not JSON: {error}") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number in JSON")
