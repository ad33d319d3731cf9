"""Oracle 2: every message in every version, encoded here, decoded and encoded again by Java, the same bytes.

What Java read is compared by content as well: its JSON converter's output holds every field by its official name.
The messages are random, many of each version.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.kproto import codec
from ottla.kproto.headers import RequestHeader
from ottla.kproto.schema import Field, Message, Struct, StructType
from tests.kproto.random_messages import random_message

pytestmark = pytest.mark.java

MESSAGES_PER_VERSION = 10

_RENAMED = {"api_key": "requestApiKey", "api_version": "requestApiVersion"}
"""Where the request header says less than Kafka's."""


def test_java_agrees(message_class: type[Message], oracle: Any) -> None:
    for version in range(message_class.VERSIONS.lowest, message_class.VERSIONS.highest + 1):
        for number in range(MESSAGES_PER_VERSION):
            message = random_message(message_class, version, number)
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
