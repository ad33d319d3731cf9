"""The seven levels of compatibility: which versions a new schema is compared with, and in which directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from ottla.registry import formats
from ottla.registry.errors import RegistryError, invalid_compatibility_level
from ottla.registry.formats import Parsed
from ottla.registry.limits import MAX_MESSAGES

DEFAULT_LEVEL: Final = "BACKWARD"
LEVELS: Final = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)
_MAX_SHOWN: Final = 10_000


class Earlier(NamedTuple):
    """A version that a new schema is compared with; `parsed` raises RegistryError if it cannot be understood."""

    version: int
    kind: str
    text: str
    parsed: Callable[[], Parsed]


def checked_level(name: object) -> str:
    """A level as it is written. Raises RegistryError 42203."""
    level = name.upper() if isinstance(name, str) else ""
    if level not in LEVELS:
        raise invalid_compatibility_level()
    return level


def compared(level: str, earlier: Sequence[Earlier]) -> Sequence[Earlier]:
    """Those of all versions (the oldest first) that count for a level."""
    if level == "NONE":
        return ()
    return earlier if level.endswith("_TRANSITIVE") else earlier[-1:]


def messages(kind: str, new: Parsed, earlier: Sequence[Earlier], level: str) -> list[str]:
    """Why a schema is not compatible with these versions; empty if it is. Call it in a worker thread."""
    direction = level.removesuffix("_TRANSITIVE")
    for old in reversed(compared(level, earlier)):
        found = _with_one(kind, new, old, direction)
        if found:
            shown = old.text if len(old.text) <= _MAX_SHOWN else f"{old.text[:_MAX_SHOWN]}…"
            return [
                *found[:MAX_MESSAGES],
                f"{{oldSchemaVersion: {old.version}}}",
                f"{{oldSchema: '{shown}'}}",
                f"{{compatibility: '{level}'}}",
            ]
    return []


def _with_one(kind: str, new: Parsed, old: Earlier, direction: str) -> list[str]:
    if kind != old.kind:
        return [f"Incompatible because of different schema type: {kind} is new, {old.kind} was registered"]
    try:
        parsed = old.parsed()
    except RegistryError as error:
        return [f"The earlier schema cannot be understood: {error.message}"]
    found: list[str] = []
    if direction in ("BACKWARD", "FULL"):
        found += formats.messages(kind, new, parsed, is_reader_new=True)
    if direction in ("FORWARD", "FULL"):
        found += formats.messages(kind, parsed, new, is_reader_new=False)
    return found
