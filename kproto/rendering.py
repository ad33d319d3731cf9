"""Messages as text for people, and as JSON for tools."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import ErrorCode, ProtocolError
from ottla.kproto.records import Record, crc_matches, iter_batches, iter_records
from ottla.kproto.schema import Field, Struct

MAX_SHOWN_BYTES = 48
"""How much of a byte string the text form shows."""


def render(message: Struct, version: int, *, with_records: bool = False) -> str:
    """A message as indented text: the fields it has on the wire, codes with their names, batches by their headers."""
    return "\n".join(_struct_lines(message, version, "", with_records))


def to_json(value: Any) -> Any:
    """A message as what `json.dumps` takes: ids in Kafka's notation, bytes as hexadecimal text."""
    if isinstance(value, Struct):
        plain = {field.name: to_json(getattr(value, field.name)) for field in value.FIELDS}
        if value.unknown_tagged_fields:
            plain["unknown_tagged_fields"] = {str(tag): data.hex() for tag, data in value.unknown_tagged_fields}
        return plain
    if isinstance(value, list):
        return [to_json(item) for item in value]
    if isinstance(value, UUID):
        return format_uuid(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return value.hex()
    return value


def format_uuid(value: UUID) -> str:
    """A uuid as Kafka's tools print it: URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def _struct_lines(struct: Struct, version: int, indent: str, with_records: bool) -> Iterator[str]:
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        left_out = field.is_tagged(version) and value == field.fresh_default()
        if field.versions.includes(version) and not left_out:
            yield from _field_lines(field, value, version, indent, with_records)
    for tag, data in struct.unknown_tagged_fields:
        yield f"{indent}unknown tagged field {tag}: {_bytes(data)}"


def _field_lines(field: Field, value: Any, version: int, indent: str, with_records: bool) -> Iterator[str]:
    name = f"{indent}{field.name}:"
    if isinstance(value, Struct):
        yield name
        yield from _struct_lines(value, version, indent + "  ", with_records)
    elif isinstance(value, list) and value and isinstance(value[0], Struct):
        yield name
        for item in value:
            lines = list(_struct_lines(item, version, indent + "    ", with_records)) or [indent + "    {}"]
            yield f"{indent}  - {lines[0].lstrip()}"
            yield from lines[1:]
    elif field.kind == "records" and value:
        yield f"{name} {len(value)} bytes"
        yield from _batch_lines(value, indent + "  ", with_records)
    else:
        yield f"{name} {_scalar(field.name, value)}"


def _scalar(name: str, value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_scalar('', item) for item in value)}]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return repr(value)
    if isinstance(value, UUID):
        return format_uuid(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _bytes(value)
    if name.endswith("error_code"):
        return _named(ErrorCode, value)
    return _named(ApiKey, value) if name == "api_key" else str(value)


def _named(names: type[ErrorCode] | type[ApiKey], value: int) -> str:
    try:
        return f"{int(value)} {names(value).name}"
    except ValueError:
        return f"{value} (unknown)"


def _bytes(value: bytes | bytearray | memoryview) -> str:
    shown = bytes(value[:MAX_SHOWN_BYTES])
    text = repr(shown)[1:] if shown.isascii() and shown.decode().isprintable() else f"0x{shown.hex()}"
    return f"{len(value)} bytes {text}{'…' if len(value) > MAX_SHOWN_BYTES else ''}" if value else "0 bytes"


def _batch_lines(data: bytes | memoryview, indent: str, with_records: bool) -> Iterator[str]:
    try:
        for pos, header in iter_batches(data):
            kind = "control " if header.is_control else "transactional " if header.is_transactional else ""
            crc = "" if crc_matches(data, pos, header) else ", CRC IS WRONG"
            producer = ""
            if header.has_producer_id:
                producer = f", producer {header.producer_id} epoch {header.producer_epoch} from {header.base_sequence}"
            yield (
                f"{indent}- {kind}batch of offsets {header.base_offset} to {header.last_offset}, "
                f"{header.record_count} records, {header.compression.name.lower()}, "
                f"leader epoch {header.leader_epoch}{producer}{crc}"
            )
            if with_records:
                yield from (_record_line(record, indent + "    ") for record in iter_records(data, pos, header))
    except ProtocolError as error:
        yield f"{indent}- unreadable: {error}"


def _record_line(record: Record, indent: str) -> str:
    key = "null" if record.key is None else _bytes(record.key)
    value = "null" if record.value is None else _bytes(record.value)
    headers = "".join(f", {name}={'null' if data is None else _bytes(data)}" for name, data in record.headers)
    return f"{indent}{record.offset} at {record.timestamp_ms}: {key} -> {value}{headers}"
