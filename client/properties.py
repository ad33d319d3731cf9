"""Java's properties format, as far as server.properties files use it: comments, the three separators,
continued lines and backslash escapes (java.util.Properties.load)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_ESCAPE: Final = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.)|$)", re.DOTALL)
_KEY: Final = re.compile(r"(?:\\.|[^\\=:\s])*")
_SEPARATOR: Final = re.compile(r"\s*[=:]?\s*")
_CONTROL: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (key, value, number of its first line, from 1)."""
    for line, number in _logical_lines(text):
        key = _KEY.match(line)
        assert key is not None  # it matches the empty text as well
        separator = _SEPARATOR.match(line, key.end())
        assert separator is not None
        yield _unescape(key.group()), _unescape(line[separator.end() :]).rstrip(), number


def _logical_lines(text: str) -> Iterator[tuple[str, int]]:
    joined, first = "", 0
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.lstrip()
        if not joined:
            if not line or line[0] in "#!":
                continue
            first = number
        joined += line
        if (len(joined) - len(joined.rstrip("\\"))) % 2 == 1:
            joined = joined[:-1]
            continue
        yield joined, first
        joined = ""
    if joined:
        yield joined, first


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        code, character = match.groups()
        if code is not None:
            return chr(int(code, 16))
        return _CONTROL.get(character, character or "")

    return _ESCAPE.sub(replace, text) if "\\" in text else text
