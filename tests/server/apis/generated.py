"""Requests generated from the schemas: each field in turn empty, null, smallest, largest, unknown or twice there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ottla.kproto import codec
from ottla.kproto.api_keys import ApiKey
from ottla.kproto.errors import EncodeError
from ottla.kproto.messages import request_class
from ottla.kproto.schema import Field, Primitive, Request, StructType, TaggedField
from ottla.server.apis.table import declaration

TOPIC = "known"
LONGEST = "x" * 32_767

_NUMBERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_UNKNOWN_ID = UUID(int=(0xDEAD << 64) + 1)


def requests(key: ApiKey, version: int, topic_id: UUID) -> Iterator[Request]:
    """Every generated request of an API in one version: ordinary ones in which one field after the other is odd."""
    cls = request_class(key)
    bare = cls()
    seen = set()
    for request in (bare, *_with_one_odd_field(cls, version, topic_id)):
        _give_time(request)
        try:
            body = codec.build(request, version)
        except EncodeError:
            continue  # null where the version knows none, or a field that it does not have
        if body not in seen:
            seen.add(body)
            yield request


def plain_request(key: ApiKey, version: int, topic_id: UUID) -> Request:
    """A request in which every field is ordinary and every list has one element."""
    request: Request = _plain_struct(request_class(key), version, topic_id)
    _give_time(request)
    return request


def _give_time(request: Any) -> None:
    """Without any time it would not be looked at."""
    if declaration(request.API_KEY).timed and request.timeout_ms == 0:
        request.timeout_ms = 60_000


def _with_one_odd_field(cls: StructType, version: int, topic_id: UUID) -> Iterator[Any]:
    plain = {field.name: _plain(field, version, topic_id) for field in _fields(cls, version)}
    yield cls(**plain)
    if issubclass(cls, Request) and cls.FLEXIBLE_VERSIONS.includes(version):
        yield cls(**plain, unknown_tagged_fields=(TaggedField(1000, b"unknown"),))
    for field in _fields(cls, version):
        for odd in _odd(field, version, topic_id):
            yield cls(**{**plain, field.name: odd})


def _fields(cls: StructType, version: int) -> list[Field]:
    return [field for field in cls.FIELDS if field.versions.includes(version)]


def _plain(field: Field, version: int, topic_id: UUID) -> Any:
    if field.kind == "array":
        assert field.element is not None
        return [_plain_element(field, field.element, version, topic_id)]
    if field.kind == "struct":
        assert isinstance(field.element, StructType)
        return _plain_struct(field.element, version, topic_id)
    return _plain_value(field.kind, field.name, topic_id)


def _plain_element(field: Field, element: Primitive | StructType, version: int, topic_id: UUID) -> Any:
    if isinstance(element, StructType):
        return _plain_struct(element, version, topic_id)
    return _plain_value(element.name, field.name, topic_id)


def _plain_struct(cls: StructType, version: int, topic_id: UUID) -> Any:
    return cls(**{field.name: _plain(field, version, topic_id) for field in _fields(cls, version)})


def _plain_value(kind: str, name: str, topic_id: UUID) -> Any:
    if kind == "string":
        return TOPIC if name in ("topic", "name", "topics", "topic_name", "resource_name", "topic_names") else "some"
    if kind == "uuid":
        return topic_id
    if kind in ("bytes", "records"):
        return b"some"
    if kind == "bool":
        return False
    if kind == "float64":
        return 1.0
    # Waits are as short as they can be.
    return 0 if "wait" in name or "timeout" in name or "acks" in name else 1


def _odd(field: Field, version: int, topic_id: UUID) -> Iterator[Any]:
    yield None
    if field.kind == "array":
        assert field.element is not None
        plain = _plain_element(field, field.element, version, topic_id)
        yield []
        yield [plain, plain]
        if isinstance(field.element, StructType):
            yield from ([odd] for odd in _with_one_odd_field(field.element, version, topic_id))
        else:
            yield from ([odd] for odd in _odd_values(field.element.name))
    elif field.kind == "struct":
        assert isinstance(field.element, StructType)
        yield from _with_one_odd_field(field.element, version, topic_id)
    else:
        yield from _odd_values(field.kind)


def _odd_values(kind: str) -> Iterator[Any]:
    if kind == "string":
        yield from ("", "unknown", "a/../\0é", "7", LONGEST)
    elif kind == "uuid":
        yield from (UUID(int=0), UUID(int=1), _UNKNOWN_ID)
    elif kind in ("bytes", "records"):
        yield from (b"", bytes(61), b"\xff" * 100)
    elif kind == "bool":
        yield True
    elif kind == "float64":
        yield from (0.0, -1.0, float("inf"), float("nan"), 1e308)
    elif kind in _NUMBERS:
        bits = _NUMBERS[kind]
        yield from (0, -1, 2, 3, 100, -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    else:
        yield from (0, (1 << (16 if kind == "uint16" else 32)) - 1)
