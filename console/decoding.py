"""Keys and values as people read them: text, JSON, Avro or hexadecimal digits, cut to what a page can hold."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla.console import avro
from ottla.console.printable import is_plain
from ottla.console.rendering import Slices

if TYPE_CHECKING:
    from ottla.console.schemas import Schemas

PREVIEW_CHARACTERS: Final = 160
LIST_BYTES: Final = 8_192
"""How much of a value a row of a list shows when it is opened."""

PAGE_BYTES: Final = 65_536
"""How much of a value its own page shows."""

_STRUCTURED_BYTES: Final = 65_536
"""JSON and Avro are read up to this size: the parser cannot be interrupted."""

_HEX_COLUMNS: Final = 16
_HEX_PREVIEW: Final = 24


class Format(Enum):
    """How bytes are read; AUTO finds out."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    HEX = "hex"

    @classmethod
    def named(cls, name: str) -> Format:
        """The format of this name, AUTO for any other."""
        return next((each for each in cls if each.value == name), cls.AUTO)


class Shown(NamedTuple):
    """A key or value as it is shown.

    `text` is None for null; `note` says what was recognised, or why not; `line` is what stands for it in a list, where
    that is not its beginning.
    """

    format: Format
    text: str | None
    size_bytes: int
    is_cut: bool = False
    note: str = ""
    line: str = ""

    @property
    def preview(self) -> str:
        """One line of it."""
        if self.line:
            return self.line
        line = " ".join((self.text or "")[: 4 * PREVIEW_CHARACTERS].split())
        return line if len(line) <= PREVIEW_CHARACTERS else line[: PREVIEW_CHARACTERS - 1] + "…"

    @property
    def is_one_line(self) -> bool:
        """Whether the preview says it all."""
        return not self.is_cut and self.preview == (self.text or "")


async def decode(data: bytes | None, format_: Format, schemas: Schemas, limit_bytes: int = LIST_BYTES) -> Shown:
    """Decode bytes; never fails: what cannot be read as asked for is shown as text or digits, with a note."""
    if data is None:
        return Shown(Format.TEXT, None, 0)
    note = ""
    if format_ in (Format.AUTO, Format.AVRO):
        shown, note = await _avro(data, schemas, limit_bytes)
        if shown is not None:
            return shown
    if format_ is Format.JSON or (format_ is Format.AUTO and data[:1] in (b"{", b"[")):
        shown, why = await _json(data, limit_bytes)
        if shown is not None:
            return shown
        note = note or (why if format_ is Format.JSON else "")
    if format_ is Format.HEX:
        return await _hex(data, limit_bytes, "")
    if format_ is Format.TEXT:
        text = data[:limit_bytes].decode("utf-8", "replace")
        return _text(data, limit_bytes, note) or Shown(
            Format.TEXT, text, len(data), len(data) > limit_bytes, note or "not UTF-8"
        )
    return _text(data, limit_bytes, note, plain_only=True) or await _hex(data, limit_bytes, note or _number(data))


async def _avro(data: bytes, schemas: Schemas, limit_bytes: int) -> tuple[Shown | None, str]:
    number = avro.schema_id(data)
    if number is None or not schemas.is_configured:
        return None, ""
    schema = await schemas.get(number)
    if schema is None:
        return None, f"perhaps Avro, but schema {number} is not known"
    if len(data) > _STRUCTURED_BYTES:
        return None, f"Avro with schema {number}, too large to be decoded"
    try:
        value = avro.decode(data, schema)
    except avro.AvroError as error:
        return None, f"not Avro of schema {number}: {error}"
    text = await _pretty(value, limit_bytes)
    return _cut(Format.AVRO, text, data, limit_bytes, f"Avro, schema {number}"), ""


async def _json(data: bytes, limit_bytes: int) -> tuple[Shown | None, str]:
    if len(data) > _STRUCTURED_BYTES:
        return None, "too large to be laid out as JSON"
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return None, "not JSON"
    return _cut(Format.JSON, await _pretty(value, limit_bytes), data, limit_bytes, ""), ""


async def _pretty(value: Any, limit_characters: int) -> str:
    """JSON with one item a line, in slices, and no more of it than is shown."""
    slices = Slices()
    pieces = []
    length = 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            pieces.append(piece)
            length += len(piece)
            if length > limit_characters:
                break
            if slices.over:
                await slices.rest()
    except RecursionError:
        pieces.append("…")
    return "".join(pieces)


def _text(data: bytes, limit_bytes: int, note: str, *, plain_only: bool = False) -> Shown | None:
    part = data[:limit_bytes]
    try:
        text = part.decode()
    except UnicodeDecodeError as error:
        if len(data) <= limit_bytes or error.start < len(part) - 3:
            return None
        text = part[: error.start].decode()
    if plain_only and not is_plain(text.replace("\r\n", "\n")):
        return None
    return Shown(Format.TEXT, text, len(data), len(data) > limit_bytes, note)


async def _hex(data: bytes, limit_bytes: int, note: str) -> Shown:
    """Lines of sixteen bytes: their place, their digits, and what of them is ASCII."""
    shown = data[: limit_bytes // 4]
    lines = []
    slices = Slices()
    for start in range(0, len(shown), _HEX_COLUMNS):
        if slices.over:
            await slices.rest()
        line = shown[start : start + _HEX_COLUMNS]
        digits = f"{line[:8].hex(' ')}  {line[8:].hex(' ')}".strip()
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{start:06x}  {digits:<48}  {text}")
    beginning = f"{data[:_HEX_PREVIEW].hex(' ')}{' …' if len(data) > _HEX_PREVIEW else ''}"
    return Shown(Format.HEX, "\n".join(lines), len(data), len(shown) < len(data), note, beginning)


def _cut(format_: Format, text: str, data: bytes, limit_characters: int, note: str) -> Shown:
    return Shown(format_, text[:limit_characters], len(data), len(text) > limit_characters, note)


def _number(data: bytes) -> str:
    """What Kafka's integer serializers would have meant."""
    return f"int{len(data) * 8} {int.from_bytes(data, 'big', signed=True)}" if len(data) in (4, 8) else ""
