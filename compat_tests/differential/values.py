"""Fields of a request from a history's plain data, for one broker and one play.

`{"$ref": [step, "path.0.field"], "else": value, "plus": 1}` is what that step was answered, or `else` if it was not.
`{"$bytes": hex}`, `{"$text": "..."}` are bytes; `{"$raw": hex}` is a string that need not be UTF-8; `{"$uuid": text}`;
`{"$epoch": n}` is a leader epoch, counted from that of a new topic; `{"$now": milliseconds}` is the time of the play;
`{"$subscription": {...}}`, `{"$assignment": {...}}` are what classic
consumers tell each other, in the version that `"version"` names (`"as"`: what they claim it is);
`{"$batches": [...]}` are record batches (`compat_tests.differential.batches`).
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from compat_tests.differential.batches import build_batches
from compat_tests.differential.history import PREFIX_MARK
from ottla.kproto import codec
from ottla.kproto.internal_records.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.kproto.schema import Field, Message, Struct, StructType


class Values:
    """What a play knows: its prefix, the time that it calls now, and what each step was answered, as plain data."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.now_ms = int(time.time() * 1000)
        self.answers: dict[int, Any] = {}
        #: The leader epoch that the broker gives to new topics; None before there is one.
        self.new_epoch: int | None = None
        self._raw: dict[bytes, bytes] = {}

    def message(self, cls: StructType, fields: Mapping[str, Any], version: int) -> Any:
        """A struct of those fields that the version has; LookupError for a name that no version has."""
        declared: dict[str, Field] = {each.name: each for each in cls.FIELDS}
        if unknown := fields.keys() - declared.keys():
            raise LookupError(f"{cls.__name__} has no field {', '.join(unknown)}")
        present = {
            name: self._field(declared[name], value, version)
            for name, value in fields.items()
            if declared[name].versions.includes(version) or declared[name].is_tagged(version)
        }
        return cls(**present)

    def patched(self, frame: bytes) -> bytes:
        """The frame with the bytes in it that the codec would not build."""
        for placeholder, raw in self._raw.items():
            frame = frame.replace(placeholder, raw)
        self._raw.clear()
        return frame

    def resolved(self, value: Any) -> Any:
        """A value that is no struct, with its references, prefix and special objects put in."""
        if isinstance(value, str):
            return value.replace(PREFIX_MARK, self.prefix)
        if isinstance(value, list):
            return [self.resolved(each) for each in value]
        if isinstance(value, dict):
            name = next(iter(value))
            return _SPECIAL[name](self, value) if name in _SPECIAL else {k: self.resolved(v) for k, v in value.items()}
        return value

    def _field(self, field: Field, value: Any, version: int) -> Any:
        if isinstance(field.element, StructType):
            if _is_special(value):
                value = self.resolved(value)
            if isinstance(value, list):
                return [self.message(field.element, each, version) for each in value]
            if isinstance(value, dict):
                return self.message(field.element, value, version)
        return self.resolved(value)

    def _reference(self, value: dict[str, Any]) -> Any:
        step, path = value["$ref"]
        found = self.answers.get(step)
        for part in path.split("."):
            try:
                found = found[int(part)] if isinstance(found, list) else found[part]  # type: ignore[index]
            except (LookupError, TypeError, ValueError):
                found = None
                break
        if found is None:
            return self.resolved(value.get("else"))
        return found + value["plus"] if "plus" in value else found

    def _raw_string(self, value: dict[str, Any]) -> str:
        raw = bytes.fromhex(value["$raw"])
        placeholder = (b"\x01\x02\x03\x04\x05\x06"[: 1 + len(self._raw)] * len(raw))[: len(raw)]
        if len(raw) < 2:
            return "\x01" * len(raw)
        self._raw[placeholder] = raw
        return placeholder.decode()

    def _consumer_protocol(self, cls: type[Message], fields: Mapping[str, Any]) -> bytes:
        fields = dict(fields)
        version, claimed = fields.pop("version", 0), fields.pop("as", None)
        body = codec.build(self.message(cls, fields, version), version)
        return struct.pack(">h", version if claimed is None else claimed) + body


def references(value: Any) -> set[int]:
    """The steps to whose answers a request refers."""
    if isinstance(value, dict):
        own = {value["$ref"][0]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


def _is_special(value: Any) -> bool:
    return isinstance(value, dict) and next(iter(value), "") in _SPECIAL


_SPECIAL: dict[str, Callable[[Values, dict[str, Any]], Any]] = {
    "$ref": Values._reference,
    "$raw": Values._raw_string,
    "$bytes": lambda _, value: bytes.fromhex(value["$bytes"]),
    "$text": lambda self, value: self.resolved(value["$text"]).encode(),
    "$uuid": lambda _, value: UUID(value["$uuid"]),
    "$epoch": lambda self, value: (self.new_epoch or 0) + value["$epoch"],
    "$now": lambda self, value: self.now_ms + value["$now"],
    "$subscription": lambda self, value: self._consumer_protocol(ConsumerProtocolSubscription, value["$subscription"]),
    "$assignment": lambda self, value: self._consumer_protocol(ConsumerProtocolAssignment, value["$assignment"]),
    "$batches": lambda self, value: build_batches([self.resolved(each) for each in value["$batches"]]),
}


def plain(value: Any) -> Any:
    """An answer as dicts, lists and plain values; a struct's fields in their order."""
    if isinstance(value, Struct):
        return {field.name: plain(getattr(value, field.name)) for field in value.FIELDS}
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, memoryview | bytearray):
        return bytes(value)
    return value
