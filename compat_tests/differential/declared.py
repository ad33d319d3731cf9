"""Differences on purpose: `differences.toml`. Each has a reason, and its row in docs/compatibility.md or a decision.

[[difference]]
api = "METADATA"                 # patterns of fnmatch, as `path`, `kafka` and `ottla` are
path = "topics[].is_internal"
kafka = "*"
ottla = "*"
request = "regular expression"   # optional: found in the request's fields, as JSON
reason = "why a user would accept it"
row = "words of the row in docs/compatibility.md or of the decision that says so"
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compat_tests.differential.compare import Difference

PATH: Final = Path(__file__).with_name("differences.toml")


@dataclass(frozen=True)
class Declaration:
    api: str
    reason: str
    row: str
    path: str = "*"
    kafka: str = "*"
    ottla: str = "*"
    request: str = ""

    def covers(self, difference: Difference) -> bool:
        patterns = (self.api, self.path, self.kafka, self.ottla)
        return all(
            pattern == "*" or text == pattern or fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))
            for text, pattern in zip(difference.key, patterns, strict=True)
        ) and bool(re.search(self.request, json.dumps(difference.step.fields, ensure_ascii=False)))


class Declared:
    """The declarations, and which of them something has needed."""

    def __init__(self, declarations: list[Declaration]) -> None:
        self._declarations = declarations
        self._needed: set[Declaration] = set()

    @classmethod
    def load(cls, path: Path = PATH) -> Declared:
        entries = tomllib.loads(path.read_text()).get("difference", [])
        return cls([Declaration(**entry) for entry in entries])

    def covers(self, difference: Difference) -> bool:
        covering = [each for each in self._declarations if each.covers(difference)]
        self._needed.update(covering)
        return bool(covering)

    @property
    def unneeded(self) -> list[Declaration]:
        return [each for each in self._declarations if each not in self._needed]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._declarations)
