"""The meaning of a declaration, by interpretation: any message in any version as a `construct` type.

Slow, small and obvious. The compiled codec must agree with it on every message, version and value, and the tests see to
that; errors name the path to the field. Nothing here is imported when serving.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

import construct
from construct import Adapter, Construct

from ottla.kproto import types
from ottla.kproto.errors import DecodeError, EncodeError
from ottla.kproto.schema import FRESH, Field, Message, Primitive, Struct, StructType, TaggedField

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ottla.kproto.types import Buffer

M = TypeVar("M", bound=Message)

_TAGS = "__tags__"

_FIXED: Mapping[str, Construct] = {
    "bool": types.Boolean,
    "int8": types.Int8,
    "int16": types.Int16,
    "uint16": types.UInt16,
    "int32": types.Int32,
    "uint32": types.UInt32,
    "int64": types.Int64,
    "float64": types.Float64,
    "uuid": types.Uuid,
}


def parse(cls: type[M], version: int, buf: Buffer) -> M:
    """Parse a whole message. Raises DecodeError, which names the path to what is wrong."""
    if not cls.VERSIONS.includes(version):
        raise DecodeError(f"{cls.__name__} has no version {version}")
    subcon = message_type(cls, version)
    try:
        message: M = types.parse_whole(subcon, bytes(buf), cls.__name__)
    except construct.ConstructError as error:
        raise DecodeError(" ".join(str(error).split())) from error
    return message


def build(message: Message, version: int) -> bytes:
    """Encode a message. Raises EncodeError, which names the path to what does not fit."""
    if not message.VERSIONS.includes(version):
        raise EncodeError(f"{type(message).__name__} has no version {version}")
    try:
        encoded: bytes = message_type(type(message), version).build(message)
    except (construct.ConstructError, struct.error, TypeError, AttributeError, ValueError) as error:
        raise EncodeError(" ".join(str(error).split())) from error
    return encoded


@cache
def message_type(cls: type[Message], version: int) -> Construct:
    """The `construct` type that parses to, and builds from, instances of the class in that version."""
    return struct_type(cls, version, flexible=cls.FLEXIBLE_VERSIONS.includes(version))


def struct_type(cls: StructType, version: int, *, flexible: bool) -> Construct:
    """A struct as a part of a message of that version."""
    present = [f for f in cls.FIELDS if f.versions.includes(version)]
    plain = {f.name: _field_type(f, version, flexible) for f in present if not f.is_tagged(version)}
    tagged = {f.tag: f for f in present if f.tag is not None and f.is_tagged(version)}
    subcons = [name / subcon for name, subcon in plain.items()]
    if flexible:
        subcons.append(
            _TAGS / types.TaggedFields({tag: _field_type(f, version, flexible) for tag, f in tagged.items()})
        )  # fmt: skip
    return _StructAdapter(construct.Struct(*subcons), cls, version, tagged, flexible)


def _field_type(field: Field, version: int, flexible: bool) -> Construct:
    nullable = field.nullable.includes(version)
    if field.flexible is not None:
        flexible = field.flexible.includes(version)
    if field.kind == "struct":
        assert isinstance(field.element, StructType)
        nested = struct_type(field.element, version, flexible=flexible)
        return types.NullableStruct(nested, null=0 if field.is_tagged(version) else -1) if nullable else nested
    if field.kind == "array":
        length = types.CompactLength if flexible else types.Int32
        return types.Array(length, _element_type(field, version, flexible), nullable=nullable)
    return _value_type(field.kind, nullable or field.kind == "records", flexible)


def _element_type(field: Field, version: int, flexible: bool) -> Construct:
    if isinstance(field.element, StructType):
        return struct_type(field.element, version, flexible=flexible)
    assert isinstance(field.element, Primitive)
    return _value_type(field.element.name, False, flexible)


def _value_type(kind: str, nullable: bool, flexible: bool) -> Construct:
    if kind in _FIXED:
        return _FIXED[kind]
    if kind == "string":
        return types.String(types.CompactLength if flexible else types.Int16, nullable=nullable)
    return types.Bytes(types.CompactLength if flexible else types.Int32, nullable=nullable)


class _StructAdapter(Adapter):  # type: ignore[misc]
    """Between construct's containers and instances of the declared class."""

    def __init__(
        self, subcon: Construct, cls: StructType, version: int, tagged: Mapping[int, Field], flexible: bool
    ) -> None:
        super().__init__(subcon)
        self._cls = cls
        self._version = version
        self._tagged = tagged
        self._flexible = flexible

    def _decode(self, obj: Any, context: Any, path: str) -> Struct:
        values = {name: value for name, value in obj.items() if name not in (_TAGS, "_io")}
        unknown = []
        for tag, value in obj.get(_TAGS, {}).items():
            if tag in self._tagged:
                values[self._tagged[tag].name] = value
            else:
                unknown.append(TaggedField(tag, value))
        instance: Struct = self._cls(**values, unknown_tagged_fields=tuple(unknown))
        return instance

    def _encode(self, obj: Struct, context: Any, path: str) -> dict[str, Any]:
        values: dict[str, Any] = {}
        tags: dict[int, Any] = {}
        for field in self._cls.FIELDS:
            value = getattr(obj, field.name)
            if not field.versions.includes(self._version):
                if not field.ignorable and not is_default(field, value):
                    raise types.MalformedError(f"{field.name} is set but not in this version", path=path)
            elif not field.is_tagged(self._version):
                values[field.name] = value
            elif not is_default(field, value):
                assert field.tag is not None
                tags[field.tag] = value
        for tag, data in obj.unknown_tagged_fields:
            if tag in tags or tag in self._tagged:
                raise types.MalformedError(f"tag {tag} is declared or occurs twice", path=path)
            tags[tag] = data
        if tags and not self._flexible:
            raise types.MalformedError("this version has no tagged fields", path=path)
        return {**values, _TAGS: tags}


def is_default(field: Field, value: object) -> bool:
    """Whether a field holds what a message without it would be read as."""
    if field.default is not FRESH:
        return bool(value == field.default)
    return bool(value == field.fresh_default())
