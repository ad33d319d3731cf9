"""Divides a stream of JSON into its outermost objects, without parsing them."""

from __future__ import annotations

import re
from typing import Final

from ottla.rest.errors import RestError, bad_request
from ottla.rest.limits import MAX_DEPTH, MAX_RECORD_TEXT_BYTES, MAX_RECORDS

_OUTSIDE: Final = re.compile(rb'["{}\[\]]')
_INSIDE: Final = re.compile(rb'["\\]')
_SPACES: Final = re.compile(rb"[ \t\r\n]*")


class ObjectSplitter:
    """Takes parts of a stream as they come. Each byte is looked at once."""

    def __init__(self, max_text_bytes: int = MAX_RECORD_TEXT_BYTES) -> None:
        self._max_text_bytes = max_text_bytes
        self._text = bytearray()
        self._position = 0
        self._depth = 0
        self._is_string = False
        #: RestError 400 or 413, once no more objects can be found.
        self.failure: RestError | None = None

    @property
    def held_bytes(self) -> int:
        """The bytes of the unfinished object."""
        return len(self._text)

    def feed(self, data: bytes) -> list[bytes]:
        """The objects that are complete now. What follows may be none, or too large: `failure` says so."""
        found: list[bytes] = []
        if self.failure is not None:
            return found
        self._text += data
        try:
            while len(found) < MAX_RECORDS and (text := self._next()) is not None:
                found.append(text)
        except RestError as error:
            self.failure = error
        if len(found) < MAX_RECORDS and len(self._text) > self._max_text_bytes:
            self.failure = RestError(413, f"A record may have {self._max_text_bytes} bytes")
        return found

    def finish(self) -> None:
        """The stream has ended. RestError 400 if it ended within an object."""
        if self._depth:
            raise bad_request("The request ends within a record")

    def _next(self) -> bytes | None:
        text = self._text
        if not self._depth:
            del text[: _end_of_spaces(text)]
            if not text:
                return None
            if text[:1] != b"{":
                raise bad_request("A record is no object")
            self._depth, self._position = 1, 1
        while self._depth:
            found = _search(_INSIDE if self._is_string else _OUTSIDE, text, self._position)
            if found is None:
                # Beyond the end, if the character after a backslash has not arrived yet.
                self._position = max(self._position, len(text))
                return None
            self._step(*found)
        whole = bytes(text[: self._position])
        del text[: self._position]
        return whole

    def _step(self, character: bytes, end: int) -> None:
        self._position = end
        if character == b'"':
            self._is_string = not self._is_string
        elif character == b"\\":
            self._position += 1
        elif character in b"{[":
            self._depth += 1
            if self._depth > MAX_DEPTH:
                raise bad_request(f"A record has more than {MAX_DEPTH} objects and arrays inside each other")
        else:
            self._depth -= 1


def _search(pattern: re.Pattern[bytes], text: bytearray, position: int) -> tuple[bytes, int] | None:
    """The text of a match and its end, without the match itself: while that lives, its text cannot be shortened."""
    match = pattern.search(text, position)
    return None if match is None else (match.group(), match.end())


def _end_of_spaces(text: bytearray) -> int:
    match = _SPACES.match(text)
    return 0 if match is None else match.end()
