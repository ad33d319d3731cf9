"""Strings as Java reads them: bytes that are not UTF-8 become U+FFFD.

Kafka takes any bytes for a string, of a client id as of a group's name, and some clients send such. Java and Python
replace the same runs of bytes by one character each, except for an encoded surrogate: to Java that is one run, to
Python three.
"""

from __future__ import annotations

import codecs
from typing import Final

ERRORS: Final = "java"
"""How to decode a string of the protocol: `bytes.decode("utf-8", ERRORS)`.

It raises UnicodeDecodeError for one that might not fit into a string of the protocol any more, when each of its bytes
took the three bytes of U+FFFD: nobody could answer with it, or store it.
"""

ERRORS_OF_ANY_LENGTH: Final = "java-any"
"""The same for what is never sent on as a string."""

_REPLACEMENT: Final = "\ufffd"
_MAX_BYTES: Final = 0x7FFF // len(_REPLACEMENT.encode())


def _replace(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start = error.object, error.start
    is_surrogate = (
        len(data) >= start + 3
        and data[start] == 0xED
        and 0xA0 <= data[start + 1] <= 0xBF
        and 0x80 <= data[start + 2] <= 0xBF
    )
    return _REPLACEMENT, start + 3 if is_surrogate else error.end


def _replace_in_short(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError) or len(error.object) > _MAX_BYTES:
        raise error
    return _replace(error)


codecs.register_error(ERRORS, _replace_in_short)
codecs.register_error(ERRORS_OF_ANY_LENGTH, _replace)
