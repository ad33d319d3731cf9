"""Keys and values as people read them: text, JSON, Avro, Protobuf or hexadecimal digits, cut to fit a page."""

from __future__ import annotations

import json
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import trio

from ottla.console.printable import is_plain
from ottla.runtime.time_slice import TimeSlice
from ottla.schemas.codec import AVRO, JSON, PROTOBUF
from ottla.schemas.errors import ValueMismatchError
from ottla.schemas.framing import HEADER_SIZE_BYTES, schema_id

if TYPE_CHECKING:
    from ottla.console.messages.schemas import Schemas

PREVIEW_CHARACTERS: Final = 160
LIST_BYTES: Final = 8_192
"""How much of a value a row of a list shows when it is opened."""

PAGE_BYTES: Final = 65_536
"""How much of a value its own page shows."""

_STRUCTURED_BYTES: Final = 65_536
"""JSON, Avro and Protobuf are read up to this size: the parser cannot be interrupted."""

_INLINE_BYTES: Final = 512
"""Values up to this size are decoded on the loop."""

_HEX_COLUMNS: Final = 16
_HEX_PREVIEW: Final = 24


class Format(Enum):
    """How bytes are to be read; AUTO detects it."""

    AUTO = "auto"
    TEXT = "text"
    JSON = "json"
    AVRO = "avro"
    PROTOBUF = "protobuf"
    HEX = "hex"

    @classmethod
    def named(cls, name: str) -> Format:
        """The format of this name, AUTO for any other."""
        return next((each for each in cls if each.value == name), cls.AUTO)


LAID_OUT: Final = frozenset({Format.JSON, Format.AVRO, Format.PROTOBUF})
"""Formats whose text is JSON with one item on each line."""
_FORMATS: Final = {AVRO: Format.AVRO, JSON: Format.JSON, PROTOBUF: Format.PROTOBUF}
_NAMES: Final = {AVRO: "Avro", JSON: "JSON Schema", PROTOBUF: "Protobuf"}


class Shown(NamedTuple):
    """A key or value as it is shown.

    `text` is None for null; `note` says what was recognized, or why nothing was; `line` represents it in a list, if
    that should not be its beginning.
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
        """Whether the preview shows everything."""
        return not self.is_cut and self.preview == (self.text or "")


class Tree(NamedTuple):
    """The content of bytes that are JSON, Avro or Protobuf, as a tree. `note` says by which schema."""

    format: Format
    value: Any
    note: str = ""


async def decode(
    data: bytes | None,
    format_: Format,
    schemas: Schemas,
    limit_bytes: int = LIST_BYTES,
    *,
    message_type: str | None = None,
) -> Shown:
    """Decode bytes. This never fails: what cannot be read as requested is shown as text or digits, with a note.

    `message_type` is the Protobuf type that the topic's values are declared to have.
    """
    if data is None:
        return Shown(Format.TEXT, None, 0)
    tree, note = await _tree(data, format_, schemas, message_type)
    if tree is not None:
        text = await _pretty(tree.value, limit_bytes)
        return Shown(tree.format, text[:limit_bytes], len(data), len(text) > limit_bytes, tree.note)
    if format_ is Format.HEX:
        return await _hex(data, limit_bytes, "")
    if format_ is Format.TEXT:
        text = data[:limit_bytes].decode("utf-8", "replace")
        return _text(data, limit_bytes, note) or Shown(
            Format.TEXT, text, len(data), len(data) > limit_bytes, note or "not UTF-8"
        )
    return _text(data, limit_bytes, note, plain_only=True) or await _hex(data, limit_bytes, note or _number(data))


async def tree_of(data: bytes, schemas: Schemas, message_type: str | None) -> Tree | None:
    """The content of bytes that are JSON, Avro or Protobuf; None if they are none of these, or too large."""
    tree, _ = await _tree(data, Format.AUTO, schemas, message_type)
    return tree


async def _tree(data: bytes, format_: Format, schemas: Schemas, message_type: str | None) -> tuple[Tree | None, str]:
    """Read bytes in the given or detected format; or None, with the reason if that is worth mentioning."""
    note = ""
    if format_ is Format.PROTOBUF or (format_ is Format.AUTO and message_type is not None):
        tree, note = await _protobuf(data, schemas, message_type)
        if tree is not None:
            return tree, ""
    if format_ in (Format.AUTO, Format.AVRO, Format.PROTOBUF):
        tree, why = await _registered(data, schemas)
        note = note or why
        if tree is not None:
            return tree, ""
    if format_ is Format.JSON or (format_ is Format.AUTO and data[:1] in (b"{", b"[")):
        tree, why = _json(data)
        if tree is not None:
            return tree, ""
        note = note or (why if format_ is Format.JSON else "")
    return None, note


async def _registered(data: bytes, schemas: Schemas) -> tuple[Tree | None, str]:
    """A value that begins with the id of its schema."""
    number = schema_id(data)
    if number is None or not schemas.has_source:
        return None, ""
    if len(data) > _STRUCTURED_BYTES:
        return None, f"perhaps of schema {number}, too large to be decoded"
    codec, why = await schemas.get(number)
    if codec is None:
        return None, why
    body = data[HEADER_SIZE_BYTES:]
    try:
        if len(body) <= _INLINE_BYTES:
            value = codec.tree(body)
        else:
            value = await trio.to_thread.run_sync(codec.tree, body, abandon_on_cancel=True)
    except ValueMismatchError as error:
        return None, f"schema {number}: {error}"
    return Tree(_FORMATS[codec.kind], value, f"{_NAMES[codec.kind]}, schema {number}"), ""


async def _protobuf(data: bytes, schemas: Schemas, message_type: str | None) -> tuple[Tree | None, str]:
    if message_type is None:
        return None, "no Protobuf type is set for this topic"
    if len(data) > _STRUCTURED_BYTES:
        return None, f"Protobuf {message_type}, too large to be decoded"
    value, why = await schemas.protobuf.decode(data, message_type)
    return (None, why) if why else (Tree(Format.PROTOBUF, value, f"Protobuf, {message_type}"), "")


def _json(data: bytes) -> tuple[Tree | None, str]:
    if len(data) > _STRUCTURED_BYTES:
        return None, "too large to be laid out as JSON"
    try:
        return Tree(Format.JSON, json.loads(data)), ""
    except (ValueError, RecursionError):
        return None, "not JSON"


async def _pretty(value: Any, limit_characters: int) -> str:
    """JSON with one item per line, made in slices, and no more of it than is shown."""
    slices = TimeSlice()
    pieces = []
    length = 0
    try:
        for piece in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(value):
            pieces.append(piece)
            length += len(piece)
            if length > limit_characters:
                break
            if slices.is_over:
                await slices.maybe_yield()
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
    """Lines of sixteen bytes: their position, their digits, and the ASCII characters among them."""
    shown = data[: limit_bytes // 4]
    lines = []
    slices = TimeSlice()
    for start in range(0, len(shown), _HEX_COLUMNS):
        if slices.is_over:
            await slices.maybe_yield()
        line = shown[start : start + _HEX_COLUMNS]
        digits = f"{line[:8].hex(' ')}  {line[8:].hex(' ')}".strip()
        text = "".join(chr(byte) if 0x20 <= byte < 0x7F else "." for byte in line)
        lines.append(f"{start:06x}  {digits:<48}  {text}")
    beginning = f"{data[:_HEX_PREVIEW].hex(' ')}{' …' if len(data) > _HEX_PREVIEW else ''}"
    return Shown(Format.HEX, "\n".join(lines), len(data), len(shown) < len(data), note, beginning)


def _number(data: bytes) -> str:
    """The number, if Kafka's integer serializers wrote it."""
    return f"int{len(data) * 8} {int.from_bytes(data, 'big', signed=True)}" if len(data) in (4, 8) else ""
