"""How consumed records are printed: kcat's format strings, and JSON."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla.cli import CommandError
from ottla.cli.options import unescape
from ottla.kproto.records import Record, TimestampType


class Consumed(NamedTuple):
    """A record and its place."""

    topic: str
    partition: int
    timestamp_type: TimestampType
    record: Record


Formatter = Callable[[Consumed], bytes]


def _text(value: int) -> bytes:
    return str(value).encode()


def _length(value: bytes | None) -> bytes:
    return b"-1" if value is None else _text(len(value))


def _headers(consumed: Consumed) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if v is None else v) for name, v in consumed.record.headers)


_FIELDS: Final[dict[str, Formatter]] = {
    "t": lambda consumed: consumed.topic.encode(),
    "p": lambda consumed: _text(consumed.partition),
    "o": lambda consumed: _text(consumed.record.offset),
    "k": lambda consumed: consumed.record.key or b"",
    "K": lambda consumed: _length(consumed.record.key),
    "s": lambda consumed: consumed.record.value or b"",
    "S": lambda consumed: _length(consumed.record.value),
    "T": lambda consumed: _text(consumed.record.timestamp_ms),
    "h": _headers,
    "R": lambda consumed: (-1 if (v := consumed.record.value) is None else len(v)).to_bytes(4, "big", signed=True),
    "%": lambda consumed: b"%",
}


FORMAT_HELP: Final = """\
--format prints each record as the text says, with these fields filled in:

  %t  topic                    %k  key                %h  headers
  %p  partition                %K  the key's length   %%  a percent sign
  %o  offset                   %s  value
  %T  timestamp in ms          %S  the value's length
                               %R  the value's length as four bytes

The length of a null is -1. \\n, \\t and \\xHH stand for a newline, a tab and a byte. Example: '%p %o %k: %s\\n'
"""


def parse_format(text: str) -> Formatter:
    """Compile a format, as FORMAT_HELP explains it; CommandError if it has an unknown field."""
    pieces: list[Formatter] = []
    literal = ""
    position = 0
    while position < len(text):
        char = text[position]
        if char != "%":
            literal += char
            position += 1
            continue
        kind = text[position + 1 : position + 2]
        if kind not in _FIELDS:
            known = " ".join(f"%{name}" for name in _FIELDS)
            raise CommandError(f"the format {text!r} has an unknown field %{kind}: there are {known}")
        if literal:
            pieces.append(_constant(unescape(literal)))
            literal = ""
        pieces.append(_FIELDS[kind])
        position += 2
    if literal:
        pieces.append(_constant(unescape(literal)))
    return lambda consumed: b"".join([piece(consumed) for piece in pieces])


def _constant(text: str) -> Formatter:
    data = text.encode()
    return lambda consumed: data


def format_json(consumed: Consumed) -> bytes:
    """One JSON object per line, with kcat's names. Bytes that are not text are kept, as {"base64": …}."""
    record = consumed.record
    return (
        json.dumps(
            {
                "topic": consumed.topic,
                "partition": consumed.partition,
                "offset": record.offset,
                "tstype": "logappend" if consumed.timestamp_type is TimestampType.LOG_APPEND_TIME else "create",
                "ts": record.timestamp_ms,
                "headers": [item for name, value in record.headers for item in (name, _json_text(value))],
                "key": _json_text(record.key),
                "payload": _json_text(record.value),
            },
            ensure_ascii=False,
        ).encode()
        + b"\n"
    )


def _json_text(value: bytes | None) -> str | dict[str, str] | None:
    """Text as such, and bytes that are not text as {"base64": …}, as `ottla record` writes them."""
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(value).decode()}
