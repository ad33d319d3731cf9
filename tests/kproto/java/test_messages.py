"""Oracle 2: every message in every version, encoded here, decoded and encoded again by Java, the same bytes.

What Java read is compared by content as well: its JSON converter's output holds every field by its official name.
The messages are random, many of each version; a seed makes each reproducible. (Hypothesis took ten times as long.)
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest

from ottla.kproto import codec
from ottla.kproto.headers import RequestHeader
from ottla.kproto.schema import FRESH, Field, Message, Primitive, Struct, StructType, TaggedField

pytestmark = pytest.mark.java

MESSAGES_PER_VERSION = 15

_RENAMED = {"api_key": "requestApiKey", "api_version": "requestApiVersion"}
"""Where the request header says less than Kafka's."""


def test_java_agrees(message_class: type[Message], oracle: Any) -> None:
    for version in range(message_class.VERSIONS.lowest, message_class.VERSIONS.highest + 1):
        for number in range(MESSAGES_PER_VERSION):
            message = _Generator(f"{message_class.__name__} v{version} #{number}", message_class, version).message()
            encoded = codec.build(message, version)
            recoded, content = oracle.recode(message_class.__name__, version, encoded)
            assert recoded == encoded, message
            assert codec.parse(message_class, version, recoded) == message
            _compare(message, version, content, f"#{number} of {message_class.__name__} v{version}")


def test_defaults_are_javas(message_class: type[Message], oracle: Any) -> None:
    theirs = oracle.defaults(message_class.__name__)
    for cls in _structs(message_class):
        name = cls.__name__ if cls is not message_class else _java_name(cls)
        ours = {_official_name(field, cls): _shown_default(field) for field in cls.FIELDS}
        assert theirs[cls.OFFICIAL_NAME if cls is not message_class else name] == ours, name


def _structs(cls: StructType) -> Iterator[StructType]:
    yield cls
    for field in cls.FIELDS:
        if isinstance(field.element, StructType):
            yield from _structs(field.element)


def _java_name(cls: StructType) -> str:
    return cls.__name__ + "Data" if cls.__name__.endswith(("Request", "Response", "Header")) else cls.__name__


def _shown_default(field: Field) -> Any:
    value = field.fresh_default()
    if value is None or field.kind in ("array", "struct"):
        return None if value is None else "empty" if field.kind == "array" else "struct"
    return "empty" if field.kind == "bytes" else _leaf(field.kind, value)


class _Generator:
    """Makes a message of a class and version from a seed; what the version lacks stays at its default."""

    def __init__(self, seed: str, cls: type[Message], version: int) -> None:
        self._random = Random(seed)
        self._cls = cls
        self._version = version
        self._flexible = cls.FLEXIBLE_VERSIONS.includes(version)

    def message(self) -> Message:
        message: Message = self._struct(self._cls)
        return message

    def _struct(self, cls: StructType) -> Any:
        values = {f.name: self._field(f) for f in cls.FIELDS if f.versions.includes(self._version)}
        if self._flexible and self._random.random() < 0.2:
            tags = {self._random.randrange(300) for _ in range(2)} - {field.tag for field in cls.FIELDS}
            values["unknown_tagged_fields"] = tuple(TaggedField(tag, self._bytes()) for tag in sorted(tags))
        return cls(**values)

    def _field(self, field: Field) -> Any:
        chance = self._random.random()
        if field.nullable.includes(self._version) and chance < 0.2:
            return None
        if field.default is not FRESH and field.default is not None and chance < 0.4:
            return field.default
        if field.kind == "array":
            return [self._item(field.element) for _ in range(self._random.choice((0, 1, 1, 2, 3)))]
        if field.kind == "struct":
            return self._item(field.element)
        return self._primitive(field.kind)

    def _item(self, element: Primitive | StructType | None) -> Any:
        return self._primitive(element.name) if isinstance(element, Primitive) else self._struct(element)  # type: ignore[arg-type]

    def _primitive(self, kind: str) -> Any:
        if kind == "bool":
            return self._random.random() < 0.5
        if kind == "string":
            return self._text()
        if kind in ("bytes", "records"):
            return self._bytes()
        if kind == "uuid":
            return UUID(int=self._random.getrandbits(128))
        if kind == "float64":
            return struct.unpack(">d", self._random.randbytes(8))[0] if self._random.random() < 0.8 else math.inf
        bits = int(kind.lstrip("uint"))
        lowest, highest = (0, 2**bits - 1) if kind.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return self._random.choice((0, 1, lowest, highest, self._random.randint(lowest, highest)))

    def _text(self) -> str:
        size = self._random.choice((0, 1, 5, 10, 126, 127, 128))
        return "".join(self._random.choices("abc-._é€𝄞", k=size))

    def _bytes(self) -> bytes:
        return self._random.randbytes(self._random.choice((0, 1, 10, 126, 127, 140)))


def _compare(message: Struct, version: int, content: dict[str, Any], where: str) -> None:
    """Java's JSON has what the version has, except tagged fields at their default."""
    fields = {
        _official_name(field, type(message)): field for field in message.FIELDS if field.versions.includes(version)
    }
    content = {name.removesuffix("SizeInBytes"): got for name, got in content.items()}
    assert set(content) <= set(fields), where
    for name, field in fields.items():
        value = getattr(message, field.name)
        if name in content:
            _compare_value(field, value, version, content[name], f"{where}.{name}")
        else:
            assert field.is_tagged(version), f"{where}.{name}"
            assert value == field.fresh_default(), f"{where}.{name}"


def _official_name(field: Field, cls: object) -> str:
    if cls is RequestHeader and field.name in _RENAMED:
        return _RENAMED[field.name]
    first, *rest = field.name.split("_")
    return first + "".join(part.capitalize() for part in rest)


def _compare_value(field: Field, value: Any, version: int, got: Any, where: str) -> None:
    if value is None:
        assert got is None, where
    elif field.kind == "array":
        assert len(got) == len(value), where
        for index, (item, got_item) in enumerate(zip(value, got, strict=True)):
            if isinstance(item, Struct):
                _compare(item, version, got_item, f"{where}[{index}]")
            else:
                assert got_item == _leaf(field.element.name, item), where  # type: ignore[union-attr]
    elif field.kind == "struct":
        _compare(value, version, got, where)
    elif field.kind == "float64" and isinstance(got, str):
        assert float(got) == value or (math.isnan(value) and math.isnan(float(got))), where
    else:
        assert got == _leaf(field.kind, value), where


def _leaf(kind: str, value: Any) -> Any:
    if kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()
    if kind == "bytes":
        return base64.b64encode(value).decode()
    return len(value) if kind == "records" else value
