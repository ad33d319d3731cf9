"""A tenant's regular expression (RE2) as one for whole names with the tenant's prefix.

Behind the prefix nothing is at the start of the text. So `^` and `\\A` are removed where they stand at the start of a
tenant's name; elsewhere they match nothing, as before. At the start, `\\b` and `\\B` change places if the prefix ends
in a character of a word. Ends are where they were.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

_TOKEN: Final = re.compile(
    r"""
      (?P<quote> \\Q .*? (?: \\E | \Z ) )
    | (?P<start> \^ | \\A )
    | (?P<end> \$ | \\z )
    | (?P<word> \\[bB] )
    | (?P<flags> \(\? [a-zA-Z-]+ \) )
    | (?P<open> \( (?: \? (?: P?<\w+> | [a-zA-Z-]* : ) )? )
    | (?P<close> \) )
    | (?P<bar> \| )
    | (?P<repeat> (?: [*+?] | \{ \d+ (?: ,\d* )? \} ) \?? )
    | (?P<atom> \[ \^? \]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* \]
      | \\[pP]\{ \^? \w+ \} | \\x\{ [0-9a-fA-F]+ \} | \\. | . )
    """,
    re.VERBOSE | re.DOTALL,
)
_OPTIONAL: Final = re.compile(r"[*?]|\{0+[,}]")


class UnclearError(ValueError):
    """Whether an anchor stands at the start depends on the name."""


class Passed(IntEnum):
    """How much of a name lies before a place in its expression."""

    NOTHING = 0
    PERHAPS = 1
    SOMETHING = 2


@dataclass
class _Group:
    before: Passed
    ends: list[Passed] = field(default_factory=list)
    has_changed: bool = False

    @property
    def after(self) -> Passed:
        return self.ends[0] if len(set(self.ends)) == 1 else Passed.PERHAPS


class _Walk:
    """Over an expression, token by token."""

    def __init__(self, *, swaps: bool) -> None:
        self._swaps = swaps
        self._groups = [_Group(Passed.NOTHING)]
        self._passed = Passed.NOTHING
        # What a repetition would repeat: what lay before it, and it itself if it is a group.
        self._before = Passed.NOTHING
        self._closed: _Group | None = None

    def moved(self, pattern: str) -> Iterator[str]:
        for match in _TOKEN.finditer(pattern):
            token, kind = match[0], match.lastgroup
            if kind == "repeat":
                self._repeat(token)
                yield token
                continue
            self._closed = None
            if kind in ("start", "word"):
                is_repeated = match.end() < len(pattern) and pattern[match.end()] in "*+?{"
                yield self._assert(token, empty="(?:)" if is_repeated else "")
            elif kind == "quote":
                quoted = token.removeprefix("\\Q").removesuffix("\\E")
                self._consume(Passed.SOMETHING if quoted else self._passed)
                yield f"\\Q{quoted}\\E"
            else:
                self._take(kind)
                yield token

    def _take(self, kind: str | None) -> None:
        match kind:
            case "open":
                self._groups.append(_Group(self._passed))
            case "bar":
                self._groups[-1].ends.append(self._passed)
                self._passed = self._groups[-1].before
            case "close":
                self._closed = closed = self._groups.pop()
                closed.ends.append(self._passed)
                self._before, self._passed = closed.before, closed.after
                self._groups[-1].has_changed |= closed.has_changed
            case "atom":
                self._consume(Passed.SOMETHING)

    def _consume(self, passed: Passed) -> None:
        self._before, self._passed = self._passed, passed

    def _assert(self, token: str, *, empty: str) -> str:
        """Rewrite an anchor, or a boundary of words."""
        self._before = self._passed
        is_word = token in ("\\b", "\\B")
        if self._passed is Passed.SOMETHING or (is_word and not self._swaps):
            return token
        if self._passed is Passed.PERHAPS:
            raise UnclearError(f"{token} stands behind something that may be empty")
        self._groups[-1].has_changed = True
        return token.swapcase() if is_word else empty

    def _repeat(self, token: str) -> None:
        if self._closed is not None and self._closed.has_changed and token[0] != "?":
            raise UnclearError(f"{token} repeats what can only be at the start")
        if _OPTIONAL.match(token) and self._passed is not self._before:
            self._passed = max(self._before, Passed.PERHAPS)


def prefixed(prefix: str, pattern: str) -> str:
    """The expression for whole names with this prefix; `pattern` is valid by itself. Raises UnclearError."""
    swaps = bool(prefix) and (prefix[-1].isascii() and (prefix[-1].isalnum() or prefix[-1] == "_"))
    return f"{re.escape(prefix)}(?:{''.join(_Walk(swaps=swaps).moved(pattern))})"
