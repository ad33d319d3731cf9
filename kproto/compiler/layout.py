"""What parser and builder must agree on: the fixed-size types and the smallest size of everything."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from ottla.kproto.schema import Primitive, StructType

if TYPE_CHECKING:
    from ottla.kproto.schema import Field

FORMATS: Final = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""The `struct` format of every type that has one size."""

NULL_STRUCT: Final = (-1, 0)
"""The byte in place of a null struct: -1 for an ordinary field, 0 for a tagged one, as Kafka's generator has it."""

MAX_STRING_SIZE: Final = 0x7FFF
"""Longest string in bytes, in both encodings, as in Kafka's own codec."""

MAX_ARRAY_LENGTH: Final = 1_000_000
MAX_TAGGED_FIELDS: Final = 10_000
"""The most elements of an array, and tagged fields of a struct, that are read, as Kafka's MessageUtil has it."""


STEP_ELEMENTS: Final = 128
"""A codec in steps stops after this many elements, about ten microseconds; a power of two."""

FEW: Final = 64
"""Arrays of fewer numbers than this are read and written by formats that are at hand."""


@cache
def unpackers(formats: str) -> tuple[Callable[..., tuple[Any, ...]], ...]:
    """For each number of values below FEW what unpacks so many."""
    return tuple(struct.Struct(f">{count}{formats}").unpack_from for count in range(FEW))


@cache
def packers(formats: str) -> tuple[Callable[..., bytes], ...]:
    """For each number of values below FEW what packs so many."""
    return tuple(struct.Struct(f">{count}{formats}").pack for count in range(FEW))


def size_of(formats: str) -> int:
    return struct.calcsize(">" + formats)


def is_flexible(field: Field, version: int, flexible: bool) -> bool:
    """Whether a field uses the compact encoding: as its message does, unless it says otherwise (client_id)."""
    return flexible if field.flexible is None else field.flexible.includes(version)


def minimum_size(element: Primitive | StructType, version: int, flexible: bool) -> int:
    """The fewest bytes that one element of an array can take; it bounds the count a peer may claim."""
    if isinstance(element, Primitive):
        return _minimum_kind_size(element.name, flexible)
    total = 1 if flexible else 0
    for field in element.FIELDS:
        if field.versions.includes(version) and not field.is_tagged(version):
            if field.kind == "struct" and not field.nullable.includes(version):
                assert field.element is not None
                total += minimum_size(field.element, version, flexible)
            else:
                total += _minimum_kind_size(field.kind, is_flexible(field, version, flexible))
    return total


def _minimum_kind_size(kind: str, flexible: bool) -> int:
    if kind in FORMATS:
        return size_of(FORMATS[kind])
    if flexible or kind == "struct":
        return 1
    return 2 if kind == "string" else 4


def carries_records(cls: StructType, version: int) -> bool:
    """Whether this version holds record batches, which are parsed to views of the input rather than copied."""
    for field in cls.FIELDS:
        if not field.versions.includes(version):
            continue
        if field.kind == "records":
            return True
        if isinstance(field.element, StructType) and carries_records(field.element, version):
            return True
    return False
