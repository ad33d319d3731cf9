"""The patterns by which topics and groups of the source are chosen."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase


class NamePattern:
    """Names with * and ? as in file names; a ! in front excludes names that others include."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._included = [it for it in patterns if not it.startswith("!")]
        self._excluded = [it[1:] for it in patterns if it.startswith("!")]
        if not self._included:
            self._included = ["*"]

    def matches(self, name: str) -> bool:
        """Whether a name is meant."""
        return any(fnmatchcase(name, it) for it in self._included) and not any(
            fnmatchcase(name, it) for it in self._excluded
        )
