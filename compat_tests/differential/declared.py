"""Differences on purpose: `differences.toml`. Each has a reason, and its row in docs/compatibility.md or a decision.

[[difference]]
api = "METADATA"                 # patterns of fnmatch, as `path`, `kafka` and `ottla` are; several with | between
path = "topics[].is_internal"
kafka = "*"
ottla = "*"
request = "regular expression"   # optional: found in the request's fields, as JSON
after = "regular expression"     # optional: found in the requests up to this one, each a line as `_asked` writes it
reason = "why a user would accept it"
row = "words of the row in docs/compatibility.md or of the decision that says so"
ends = true                      # optional: what comes after may follow from it, and is not looked at
"""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from compat_tests.differential.compare import Difference
from compat_tests.differential.history import Step

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
    after: str = ""
    ends: bool = False

    def covers(self, difference: Difference) -> bool:
        patterns = (self.api, self.path, self.kafka, self.ottla)
        return all(
            pattern == "*" or text == pattern or any(_fits(text, each) for each in pattern.split("|"))
            for text, pattern in zip(difference.key, patterns, strict=True)
        ) and self._is_about(difference)

    def _is_about(self, difference: Difference) -> bool:
        if not re.search(self.request, json.dumps(difference.step.fields, ensure_ascii=False)):
            return False
        if not self.after:
            return True
        asked = "\n".join(map(_asked, (*difference.before, difference.step)))
        return bool(re.search(self.after, asked, re.MULTILINE))


def _asked(step: Step) -> str:
    cut = f' {{"cut_bytes": {step.cut_bytes}}}' if step.cut_bytes else ""
    return f"{step.connection} {step.api} {json.dumps(step.fields, ensure_ascii=False)}{cut}"


def _fits(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


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
        return bool(self._covering(difference))

    def undeclared(self, found: Sequence[Difference]) -> list[Difference]:
        """What is left of a history's differences, up to the step at which one `ends` them."""
        left: list[Difference] = []
        end = None
        for difference in found:
            if end is not None and difference.step.id != end:
                break
            covering = self._covering(difference)
            if not covering:
                left.append(difference)
            elif any(each.ends for each in covering):
                end = difference.step.id
        return left

    def ends(self, found: Sequence[Difference]) -> bool:
        """Whether one of these says that what the history leaves behind differs."""
        return any(each.ends for difference in found for each in self._covering(difference))

    def _covering(self, difference: Difference) -> list[Declaration]:
        covering = [each for each in self._declarations if each.covers(difference)]
        self._needed.update(covering)
        return covering

    @property
    def unneeded(self) -> list[Declaration]:
        return [each for each in self._declarations if each not in self._needed]

    def __iter__(self):  # type: ignore[no-untyped-def]
        return iter(self._declarations)
