"""Which names a topic may have (org.apache.kafka.common.internals.Topic)."""

from __future__ import annotations

import re
from typing import Final

from ottla.metadata.errors import InvalidTopicError

MAX_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise InvalidTopicError with Kafka's reason if no topic can have this name."""
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise InvalidTopicError(f"Topic name is invalid: {reason}")


class CollisionIndex:
    """Finds names that differ only in '.' and '_', which metrics cannot tell apart, without going through all names."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def add(self, name: str) -> None:
        if "." in name or "_" in name:
            self._names[name.replace(".", "_")] = name

    def remove(self, name: str) -> None:
        self._names.pop(name.replace(".", "_"), None)

    def find(self, name: str) -> str | None:
        """The existing name that a different new one collides with, or None."""
        other = self._names.get(name.replace(".", "_"))
        return None if other == name else other
