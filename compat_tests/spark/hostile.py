"""Values that are made to break a job whose schema is `n BIGINT, key STRING`."""

from __future__ import annotations

import json
from typing import Final

__all__ = ["HOSTILE", "with_a_doubled_key", "with_much_beside"]

_MUCH: Final = "x" * 100_000

HOSTILE: Final = (
    b"not json",
    b"",
    b'{"n":' * 1_500 + b"1" + b"}" * 1_500,
    b'{"n":1,"more":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"n":1}}',
    b'{"n":1} {"n":2}',
    b'{"n":1.5}',
    b'{"n":1e400}',
    b'{"n":NaN}',
    b'{"n":01}',
    b'{"n":123456789012345678901234567890}',
    b'{"n":' + b"9" * 10_000 + b"}",
    b'{"n":"1"}',
    b'{"n":[1]}',
    b'{"n":{"n":1}}',
    b'{"n":1,"n":"two"}',
    b"{'n':1}",
    b'{"n":1,"key":"\xff"}',
    b'{"n":1,"key":"\xed\xa0\x80"}',
    b'\xef\xbb\xbf{"n":1}',
    '{"n":1}'.encode("utf-16"),
    '{"n":1}'.encode("utf-16-le"),
    '{"n":1}'.encode("utf-32-be"),
)
"""None of them is a row."""


def with_a_doubled_key(number: int, key: str) -> bytes:
    """A row all the same: of fields with one name the last counts."""
    return b'{"n":-1,"key":%b,"n":%d}' % (json.dumps(key).encode(), number)


def with_much_beside(number: int, key: str) -> bytes:
    """A row of 100 KB, most of it in a field that the schema does not have."""
    return json.dumps({"n": number, "key": key, "much": _MUCH}).encode()
